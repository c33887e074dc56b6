"""Schedules of crawls: what people say of them.

`schedule_starts` starts crawls when they are due.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.model.schedule_terms import Schedule, stored_rule
from scrapy_itemgraph.model.schedules import EPOCH, Kind
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import crawl_queue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.schedule_terms import NewSchedule
    from scrapy_itemgraph.model.schedules import Rule

ADD = text("""
    INSERT INTO schedules (crawl_id, kind, spec, time_zone, catch_up, overlap, grace, jitter,
        time_limit, starts_at, next_at, created_by)
    VALUES (:crawl, :kind, :spec, :time_zone, :catch_up, :overlap, :grace, :jitter, :time_limit,
        :starts_at, :next_at, :by)
    RETURNING id
""")

_LINE = """
    SELECT s.id, c.name AS crawl, c.project, c.state, s.kind, s.spec, s.time_zone, s.catch_up,
        s.overlap, s.grace, s.jitter, s.time_limit, s.is_enabled, s.starts_at, s.next_at, s.last_at,
        s.missed, s.created_at, s.created_by
    FROM schedules s JOIN crawls c ON c.id = s.crawl_id"""

LIST = text(f"{_LINE} WHERE s.id > :after ORDER BY s.id LIMIT :limit")

OF_CRAWL = text(f"""{_LINE}
    WHERE s.crawl_id = (SELECT id FROM crawls WHERE name = :crawl) AND s.id > :after
    ORDER BY s.id LIMIT :limit
""")  # noqa: S608 - our own text

ONE = text(f"{_LINE} WHERE s.id = :schedule")

LOCK = text("SELECT crawl_id FROM schedules WHERE id = :schedule FOR UPDATE")

SET = text("""
    UPDATE schedules SET kind = :kind, spec = :spec, time_zone = :time_zone,
        starts_at = :starts_at, next_at = :next_at, catch_up = :catch_up, overlap = :overlap,
        grace = :grace, jitter = :jitter, time_limit = :time_limit, is_enabled = :is_enabled
    WHERE id = :schedule
""")

REMOVE = text("DELETE FROM schedules WHERE id = :schedule")

# Starts that wait for their moment, or behind what runs; one that waits for a place has begun.
CANCEL_WAITING = text("""
    UPDATE jobs j SET state = 'cancelled', reason = :reason, ended_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM crawls c
    WHERE j.crawl_id = :crawl AND c.id = :crawl AND j.schedule_id = :schedule
        AND j.ended_at IS NULL AND j.state = 'pending'
        AND (c.state <> 'active' OR j.not_before > clock_timestamp() OR EXISTS (
            SELECT FROM jobs o
            WHERE o.crawl_id = :crawl AND o.ended_at IS NULL AND o.started_at IS NOT NULL))
    RETURNING j.id
""")

BY_THE_CLOCK = text("""
    SELECT id, kind, spec, time_zone, starts_at, next_at FROM schedules
    WHERE is_enabled AND kind <> 'every' AND next_at > :now
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
""")

RENEW = text("UPDATE schedules SET next_at = :next_at WHERE id = :schedule")

SETTABLE = frozenset({"catch_up", "overlap", "grace", "jitter", "time_limit", "is_enabled"})
"""What can be changed of a schedule beside its rule."""


def add(connection: Connection, crawl: str, new: NewSchedule, *, by: str) -> int:
    """Have a crawl of the queue started by a schedule; return the schedule's number.

    It is due first at its rule's first moment that is still to come.

    Raises:
        NotFoundError: there is no such crawl in the queue.

    """
    lock_queue(connection)
    crawl_id = crawl_queue.managed(connection, crawl).id
    terms = {name: getattr(new, name) for name in SETTABLE - {"is_enabled"}}
    due = _of_new_rule(new.rule, _now(connection))
    number: int = connection.execute(
        ADD, {"crawl": crawl_id, "by": by, **terms, **due}
    ).scalar_one()
    note(connection, crawl_id, by, Event.SCHEDULE_SET, schedule=number, rule=str(new.rule))
    notify.tell_runners(connection)
    return number


def schedules(
    connection: Connection, *, crawl: str | None = None, after: int = 0, limit: int = 1000
) -> list[Schedule]:
    """Return schedules by number from `after` on: all, or a crawl's."""
    statement = LIST if crawl is None else OF_CRAWL
    given = {"crawl": crawl, "after": after, "limit": limit}
    return [Schedule(**row) for row in connection.execute(statement, given).mappings()]


def schedule(connection: Connection, number: int) -> Schedule:
    """Return one schedule.

    Raises:
        NotFoundError: there is none of this number.

    """
    row = connection.execute(ONE, {"schedule": number}).mappings().first()
    if row is None:
        raise _unknown(number)
    return Schedule(**row)


def change(connection: Connection, number: int, changes: Mapping[str, Any], *, by: str) -> Schedule:
    """Change what is said of a schedule: `rule`, or some of `SETTABLE`; return it as it is then.

    With another rule, or when it is enabled, it is due next at the first moment still to come. What
    it has not begun yet is cancelled when it is disabled.

    Raises:
        NotFoundError: there is none of this number.
        OperationError: it is enabled with a rule that cannot be read.

    """
    assert set(changes) <= SETTABLE | {"rule"}, changes
    crawl_id = _locked(connection, number)
    found = schedule(connection, number)
    terms = {name: changes.get(name, getattr(found, name)) for name in SETTABLE}
    due = _due(found, changes, _now(connection))
    connection.execute(SET, {"schedule": number, **terms, **due})
    rule = changes.get("rule", found.rule)
    told = {"schedule": number, "rule": str(rule), "is_enabled": terms["is_enabled"]}
    note(connection, crawl_id, by, Event.SCHEDULE_SET, changed=sorted(changes), **told)
    if not terms["is_enabled"]:
        _cancel_waiting(connection, crawl_id, number, "its schedule was disabled", by=by)
    notify.tell_runners(connection)
    return schedule(connection, number)


def remove(connection: Connection, number: int, *, by: str) -> None:
    """Remove a schedule, and cancel what it has not begun; its crawl and its other jobs stay.

    Raises:
        NotFoundError: there is none of this number.

    """
    crawl_id = _locked(connection, number)
    _cancel_waiting(connection, crawl_id, number, "its schedule was removed", by=by)
    connection.execute(REMOVE, {"schedule": number})
    note(connection, crawl_id, by, Event.SCHEDULE_SET, schedule=number, rule=None)


def renew(connection: Connection) -> list[Schedule]:
    """Compute anew when schedules by the clock are due next; return those that had it otherwise.

    Time zones change their rules, and another version of their data may have come with a start.
    """
    lock_queue(connection)
    now = _now(connection)
    found = []
    for row in connection.execute(BY_THE_CLOCK, {"now": now}).all():
        try:
            rule = stored_rule(row.kind, row.spec, row.time_zone, row.starts_at)
        except ValueError:  # it is disabled when it is due
            continue
        next_at = rule.next_after(now)
        if next_at != row.next_at:
            connection.execute(RENEW, {"schedule": row.id, "next_at": next_at})
            found.append(schedule(connection, row.id))
    return found


def _cancel_waiting(
    connection: Connection, crawl_id: int, number: int, reason: str, *, by: str
) -> None:
    given = {"crawl": crawl_id, "schedule": number, "reason": reason}
    for job in connection.execute(CANCEL_WAITING, given).scalars():
        note(connection, crawl_id, by, Event.ENDED, job=job, state="cancelled", reason=reason)


def _locked(connection: Connection, number: int) -> int:
    """Lock the queue and a schedule; return the number of its crawl."""
    lock_queue(connection)
    crawl_id: int | None = connection.execute(LOCK, {"schedule": number}).scalar()
    if crawl_id is None:
        raise _unknown(number)
    return crawl_id


def _unknown(number: int) -> NotFoundError:
    return NotFoundError(
        f"there is no schedule {number}; scrapy itemgraph schedules list shows them"
    )


def _due(found: Schedule, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the columns of when a schedule is due that is changed."""
    if "rule" in changes:
        return _of_new_rule(changes["rule"], now)
    if changes.get("is_enabled") and not found.is_enabled:
        return _of_rule(found.read_rule(), now)
    return {**_columns(found.rule), "next_at": found.next_at}


def _of_new_rule(rule: Rule, now: datetime) -> dict[str, Any]:
    """Return the columns of a rule that begins now: a period counts from now, unless it is said."""
    if rule.kind is Kind.EVERY and rule.starts_at == EPOCH:
        rule = replace(rule, starts_at=now.replace(microsecond=0))
    return _of_rule(rule, now)


def _of_rule(rule: Rule, now: datetime) -> dict[str, Any]:
    """Return the columns of a rule, with when it is due next."""
    return {**_columns(rule), "next_at": rule.next_after(now)}


def _columns(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in ("kind", "spec", "time_zone", "starts_at")}


def _now(connection: Connection) -> datetime:
    now: datetime = connection.execute(engine.NOW).scalar_one()
    return now
