"""What people see of limits, and what they set of them.

A change reaches the workers that have the limit, and those that would use it. What a change refuses
with an error, `ItemGraph` says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import input_checks, moments, periods, slots
from scrapy_itemgraph.model.rates import LONGEST_GAP, RateLimit, kept_gap
from scrapy_itemgraph.postgres.engine import NOW
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.limits.allocation import STORED_TERMS, StoredTerms
from scrapy_itemgraph.store.notify import notify
from scrapy_itemgraph.store.slots import intern_slots
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, TextClause

_PREFIXED = re.compile(r"(task|group|tags|slot):(.+)", re.DOTALL)
_HOST = re.compile(r"[^\s/:@]+\.[^\s/:@]+(:\d+)?")

_OF_TERMS = len(fields(StoredTerms))
_OF_LIMIT = f"""
    {STORED_TERMS}, l.throttle, l.latency, l.last_at,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_until END AS blocked_until,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_by END AS blocked_by
"""

# Slots that matter now, those with the most work first. Work is what a claim could take, apart from
# limits; per queue it is counted up to a number that nobody reads to the end.
SLOTS = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT q.slot_id, sum(head.number) AS number
        FROM queues q CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND {IS_READY_BESIDE_OTHERS}
                LIMIT :many) AS counted) AS head
        WHERE (CAST(:crawl AS int) IS NULL OR q.crawl_id = :crawl)
            AND (CAST(:only AS int) IS NULL OR q.slot_id = :only)
        GROUP BY q.slot_id)
    SELECT {_OF_LIMIT}, CAST(least(coalesce(w.number, 0), :many) AS bigint) AS work
    FROM limits l LEFT JOIN waiting w ON w.slot_id = l.id
    WHERE l.kind = 'slot' AND l.name <> ''
        AND (CAST(:crawl AS int) IS NULL OR w.slot_id IS NOT NULL)
        AND CASE WHEN CAST(:only AS int) IS NOT NULL THEN l.id = :only
            ELSE w.number > 0 OR l.set_gap IS NOT NULL OR l.set_concurrency IS NOT NULL
                OR l.crawl_delay IS NOT NULL OR l.throttle IS NOT NULL
                OR l.blocked_until > clock_timestamp()
                OR EXISTS (SELECT FROM holdings h WHERE h.limit_id = l.id) END
    ORDER BY work DESC, l.name
    LIMIT :limit
""")  # noqa: S608 - our own columns

# Limits with a name that a task keeps to, somebody has, or a person set.
NAMED = text(f"""
    SELECT {_OF_LIMIT}, CAST(NULL AS bigint) AS work
    FROM limits l
    WHERE l.kind <> 'slot' AND CASE WHEN CAST(:only AS int) IS NOT NULL THEN l.id = :only
        ELSE EXISTS (
                SELECT FROM tasks t
                WHERE t.is_registered AND (CAST(:crawl AS int) IS NULL OR t.crawl_id = :crawl)
                    AND (l.id = ANY (t.limit_ids) OR EXISTS (
                        SELECT FROM tag_limits g
                        WHERE g.task_id = t.id AND g.limit_id = l.id)))
            OR CAST(:crawl AS int) IS NULL AND (
                l.set_gap IS NOT NULL OR l.set_concurrency IS NOT NULL
                OR EXISTS (SELECT FROM holdings h WHERE h.limit_id = l.id)) END
    ORDER BY l.kind, l.name
""")  # noqa: S608

# Who has limits, and who waits for them; one that has not asked for long is none of these.
HOLDERS = text("""
    SELECT h.limit_id, h.worker_id AS worker, c.name AS crawl, w.host, w.process_id, h.units,
        h.since, h.until AS free_at
    FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN holdings h ON h.limit_id = wanted.id
    LEFT JOIN workers w ON w.id = h.worker_id
    LEFT JOIN crawls c ON c.id = w.crawl_id
    WHERE h.units > 0 OR h.asked_at > clock_timestamp() - interval '10 seconds'
    ORDER BY h.since, h.worker_id
""")

FIND = text("SELECT id FROM limits WHERE kind = :kind AND name = :name")

ALL_NAMED = text("SELECT kind, name FROM limits WHERE kind <> 'slot' ORDER BY kind, name")

# Slots whose names could be meant by another of about the same length.
LIKE_SLOTS = text("""
    SELECT name FROM limits
    WHERE kind = 'slot' AND name <> '' AND name <> :name
        AND abs(length(name) - length(:name)) <= 3
    LIMIT 10000
""")

# A person's block replaces a person's; one that the site asked for is not made shorter.
BLOCK = text("""
    UPDATE limits SET blocked_by = 'person', blocked_until = CASE
        WHEN blocked_by <> 'person' THEN greatest(blocked_until, :until) ELSE :until END
    WHERE id = :limit
""")

UNBLOCK = text("""
    UPDATE limits SET blocked_by = NULL, blocked_until = NULL
    WHERE id = :limit AND blocked_until > clock_timestamp()
""")

# A gap that was kept because of what was set or learned is not what the settings say; a holder
# says anew what it keeps.
SET_GAP = text("""
    UPDATE limits
    SET set_gap = CAST(:gap AS float8),
        gap = CASE WHEN is_free THEN nullif(gap, floor) ELSE gap END,
        delay = CASE WHEN is_free THEN nullif(delay, floor) ELSE delay END
    FROM (
        SELECT id, coalesce(set_gap, crawl_delay) AS floor, kind = 'slot' AND NOT EXISTS (
            SELECT FROM holdings h WHERE h.limit_id = l.id AND h.units > 0) AS is_free
        FROM limits l WHERE l.id = :limit) AS kept
    WHERE limits.id = kept.id AND set_gap IS DISTINCT FROM CAST(:gap AS float8)
""")

SET_CONCURRENCY = text("""
    UPDATE limits SET set_concurrency = CAST(:concurrency AS int)
    WHERE id = :limit AND set_concurrency IS DISTINCT FROM CAST(:concurrency AS int)
""")

# Queues of a slot may be looked into now; who has one for itself keeps it.
LOOK_AGAIN = text("""
    UPDATE queues SET next_at = clock_timestamp()
    WHERE slot_id = :limit AND next_at > clock_timestamp()
""")

# Crawls that have work of a slot, or tasks that keep to a limit.
CONCERNED = text("""
    SELECT q.crawl_id FROM queues q WHERE q.slot_id = :limit AND q.is_live
    UNION
    SELECT t.crawl_id FROM tasks t
    WHERE :limit = ANY (t.limit_ids) OR EXISTS (
        SELECT FROM tag_limits g WHERE g.task_id = t.id AND g.limit_id = :limit)
""")

_LIKE_A_LIMIT = re.compile(r"(task|group|tags|slot):|.*://", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that has something of a limit, or waits for it: then it has no units.

    `free_at` is set of one that died: when its requests have ended.
    """

    worker: int
    crawl: str | None
    host: str | None
    process_id: int | None
    units: int
    since: datetime
    free_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """A limit as it is kept, what was set and learned of it, and who has it.

    `delay` are the seconds between two starts that are meant, `gap` the least, for jitter makes
    some shorter; `work` counts what waits in a slot, up to 100,000: then `is_counted` is false.
    """

    name: str
    kind: str
    delay: float
    gap: float
    concurrency: int | None
    set_gap: float | None
    set_concurrency: int | None
    crawl_delay: float | None
    throttle: float | None
    latency: float | None
    last_at: datetime | None
    blocked_until: datetime | None
    blocked_by: str | None
    work: int | None
    is_counted: bool
    holders: tuple[Holder, ...]
    waiting: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A limit after a change; `is_new` when nothing had named the slot, `hint` what it resembles.

    `is_changed` tells whether anything was otherwise before.
    """

    limit: LimitState
    is_changed: bool
    is_new: bool
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    id: int
    kind: str
    name: str
    is_new: bool = False
    hint: str = ""


# What there is


def listed(
    connection: Connection, *, crawl_id: int | None = None, limit: int = 100
) -> list[LimitState]:
    """Return limits with names, and slots that have work, a holder, or anything set or learned.

    With `crawl_id` those that this crawl's work keeps to, and of slots its work alone.
    """
    given = {"crawl": crawl_id, "only": None, "many": counting.MOST, "limit": limit}
    return [*_states(connection, NAMED, given), *_states(connection, SLOTS, given)]


def _state(connection: Connection, found: _Found) -> LimitState:
    given = {"crawl": None, "only": found.id, "many": counting.MOST, "limit": 1}
    (state,) = _states(connection, SLOTS if found.kind == "slot" else NAMED, given)
    return state


def _states(
    connection: Connection, statement: TextClause, given: dict[str, Any]
) -> list[LimitState]:
    bound = {name: given[name] for name in statement._bindparams}  # noqa: SLF001
    rows = connection.execute(statement, bound).all()
    holders: dict[int, list[Holder]] = defaultdict(list)
    for limit_id, *holder in connection.execute(HOLDERS, {"limits": [row.id for row in rows]}):
        holders[limit_id].append(Holder(*holder))
    states = []
    for row in rows:
        kept, own = StoredTerms(*row[:_OF_TERMS]).kept, holders[row.id]
        state = row._asdict()
        del state["id"]
        state |= {
            "name": limit_name(row.kind, row.name),
            "delay": kept.meant,
            "gap": kept.gap,
            "concurrency": kept.concurrency,
            "is_counted": row.work is None or row.work < counting.MOST,
            "holders": tuple(holder for holder in own if holder.units),
            "waiting": tuple(holder for holder in own if not holder.units),
        }
        states.append(LimitState(**state))
    return states


# What people set


def block(
    connection: Connection,
    slot: str,
    *,
    until: datetime | None = None,
    for_: timedelta | None = None,
) -> Changed:
    """Let nothing start in a slot until a moment, or for a period from now."""
    end = _end(connection, until, for_)
    found = _slot(connection, slot)
    connection.execute(BLOCK, {"limit": found.id, "until": end})
    return _changed(connection, found, is_changed=True)


def unblock(connection: Connection, slot: str) -> Changed:
    """End a block, whoever asked for it."""
    found = _slot(connection, slot, may_create=False)
    number = connection.execute(UNBLOCK, {"limit": found.id}).rowcount
    return _changed(connection, found, is_changed=number > 0)


def set_delay(connection: Connection, slot: str, seconds: float | None) -> Changed:
    """Set the least seconds between two starts in a slot; None: as settings and robots.txt say."""
    gap = None if seconds is None else kept_gap(_delay(seconds)) or None
    found = _slot(connection, slot, may_create=gap is not None)
    number = connection.execute(SET_GAP, {"limit": found.id, "gap": gap}).rowcount
    return _changed(connection, found, is_changed=number > 0)


def set_limit(connection: Connection, name: str, rate: RateLimit | str | None) -> Changed:
    """Set a limit's rate and concurrency; a part that `rate` leaves out is as the code says."""
    try:
        read = None if rate is None else RateLimit.read(rate, "rate")
    except ValueError as error:
        raise OperationError(str(error)) from None
    found = _find(connection, name, may_create=read is not None)
    gap = {"limit": found.id, "gap": None if read is None else read.gap}
    at_once = {"limit": found.id, "concurrency": None if read is None else read.concurrency}
    number = connection.execute(SET_GAP, gap).rowcount
    number += connection.execute(SET_CONCURRENCY, at_once).rowcount
    return _changed(connection, found, is_changed=number > 0)


def _changed(connection: Connection, found: _Found, *, is_changed: bool) -> Changed:
    if is_changed:
        _reach_workers(connection, found.id)
    return Changed(
        limit=_state(connection, found),
        is_changed=is_changed,
        is_new=found.is_new,
        hint=found.hint,
    )


def _reach_workers(connection: Connection, limit_id: int) -> None:
    """Let a change be known: to who has the limit, and to who had put its work off."""
    holdings.tell_holders(connection, [limit_id])
    connection.execute(LOOK_AGAIN, {"limit": limit_id})
    for crawl_id in list(connection.execute(CONCERNED, {"limit": limit_id}).scalars()):
        notify(connection, crawl_id)


def _end(connection: Connection, until: datetime | None, for_: timedelta | None) -> datetime:
    if (until is None) == (for_ is None):
        raise OperationError("say until when a slot is blocked, or for how long: one of the two")
    now: datetime = connection.execute(NOW).scalar_one()
    if for_ is not None:
        try:
            return now + periods.parse_period(for_, "the period")
        except ValueError as error:
            raise OperationError(str(error)) from None
    until = moments.check(until, "until")
    if until <= now:
        raise OperationError(
            f"{until:%Y-%m-%d %H:%M:%S %Z} is past: the database has {now:%Y-%m-%d %H:%M:%S %Z}; "
            "to end a block use unblock"
        )
    if until - now > periods.LONGEST:
        raise OperationError(f"{until:%Y-%m-%d} is more than a hundred years away")
    return until


def _delay(seconds: float) -> float:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 < seconds <= LONGEST_GAP):
        raise OperationError(
            f"a delay of {seconds!r} seconds is not above 0 and at most {LONGEST_GAP:,.0f} (a day);"
            " to leave a site alone for longer use block, and None (none) takes a delay back"
        )
    return float(seconds)


# What is meant


def _find(connection: Connection, written: str, *, may_create: bool) -> _Found:
    """Return the limit that is meant by what people write."""
    kind, name = _split(written)
    if kind == "slot":
        return _slot(connection, written, may_create=may_create)
    number = _number(connection, kind, name)
    if number is not None:
        return _Found(id=number, kind=kind, name=name)
    known = [limit_name(*row) for row in connection.execute(ALL_NAMED).all()]
    raise NotFoundError(
        f"no task declares a limit {written!r}{closest(written, known)}; there "
        + (f"are {', '.join(known)}" if known else "is none yet: the start of a spider makes them")
    )


def _slot(connection: Connection, written: str, *, may_create: bool = True) -> _Found:
    """Return a slot by its name, a page's URL, or `slot:` and its name."""
    kind, name = _split(written)
    if kind != "slot":
        raise OperationError(
            f"{written!r} is no slot; set-limit (in Python set_limit) changes such a limit, and a "
            f"slot of that name is written slot:{written}"
        )
    number = _number(connection, kind, name)
    if number is None:
        name = _normal(name)
        number = _number(connection, kind, name)
    if number is not None:
        return _Found(id=number, kind=kind, name=name)
    hint = closest(name, connection.execute(LIKE_SLOTS, {"name": name}).scalars())
    if not may_create:
        raise NotFoundError(
            f"no work has ever named the slot {name!r}{hint}; `scrapy itemgraph slots` lists them"
        )
    (number,) = intern_slots(connection, [name]).values()
    return _Found(id=number, kind=kind, name=name, is_new=True, hint=hint)


def _split(written: str) -> tuple[str, str]:
    """Return the kind and the name of a limit."""
    if not isinstance(written, str):
        raise OperationError(f"a limit's name is text, not {written!r:.80}")
    input_checks.check_text(written, "the name", error=OperationError)
    if written == "global":
        return "global", ""
    prefixed = _PREFIXED.fullmatch(written)
    kind, name = prefixed.groups() if prefixed else ("slot", written)
    if kind == "slot" and not prefixed and "://" in name:
        name = slots.slot_of({"url": name})
        if not name:
            raise OperationError(f"{written!r} has no host; give a slot's name, or a page's URL")
    if kind == "slot" and not (name and slots.is_usable(name)):
        raise OperationError(
            f"no slot is called {written!r:.80}: it has 1 to {slots.MAX_BYTES} bytes"
        )
    return kind, name


def _normal(name: str) -> str:
    """Return what looks like a host as requests have it: small, in ASCII, without a port."""
    host = slots.slot_of({"url": f"http://{name}/"}) if _HOST.fullmatch(name) else ""
    return host or name


def _number(connection: Connection, kind: str, name: str) -> int | None:
    number: int | None = connection.execute(FIND, {"kind": kind, "name": name}).scalar()
    return number


def limit_name(kind: str, name: str) -> str:
    """Return what people call a limit: `global`, `task:shop/parse`, or a slot's name alone.

    A slot whose name reads like another limit's has `slot:` before it.
    """
    if kind == "slot":
        is_unclear = name == "global" or _LIKE_A_LIMIT.match(name)
        return f"slot:{name}" if is_unclear else name
    return f"{kind}:{name}" if name else kind
