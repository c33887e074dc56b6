"""Starts of crawls by their schedules: each due time at most once, whatever dies.

A due time becomes a job in the transaction that moves its schedule on. A job that waits has its
crawl begin another run when its moment has come and the crawl is at its end.
"""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import schedules as rules
from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.jobs import JobState
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.model.schedule_terms import stored_rule
from scrapy_itemgraph.model.schedules import CatchUp, Overlap
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note, note_all
from scrapy_itemgraph.store.registry import notices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

STEP = 50  # schedules, or crawls, of one transaction
_LONGEST = 0.1  # seconds that one computes due times, for it has the queue's lock

# Whether the crawl of a schedule `s` runs, or waits to. A process of a crawl at its end, which has
# not exited yet, does not count. What is found of other tables is looked up,
# and not joined: so whatever the statistics say, schedules are read in the order of their moments.
_IS_BUSY = """(SELECT c.state = 'active' OR (
                SELECT true FROM jobs j WHERE j.crawl_id = c.id AND j.ended_at IS NULL
                    AND (j.state = 'pending' OR c.state <> 'finished') LIMIT 1
            ) IS NOT NULL
            FROM crawls c WHERE c.id = s.crawl_id)"""

# Whether the crawl of a schedule `s` goes on with a run that work has opened again.
_IS_CONTINUED = """(SELECT true FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
            WHERE c.id = s.crawl_id AND NOT r.is_finished AND r.continued_at IS NOT NULL
            ) IS NOT NULL"""

# A schedule whose runs wait for each other stays due while its crawl is busy; and any one, while
# that goes on with its last run.
_IS_DUE = f"""s.is_enabled AND s.next_at <= :now
        AND NOT ((s.overlap = 'queue' OR s.catch_up = 'all' OR {_IS_CONTINUED}) AND {_IS_BUSY})"""

DUE = text(f"""
    SELECT s.id, s.crawl_id, (SELECT c.name FROM crawls c WHERE c.id = s.crawl_id) AS crawl,
        (SELECT c.state FROM crawls c WHERE c.id = s.crawl_id) AS state, {_IS_BUSY} AS is_busy,
        {_IS_CONTINUED} AS is_continued,
        s.kind, s.spec, s.time_zone, s.starts_at, s.catch_up, s.overlap, s.grace, s.jitter,
        s.next_at
    FROM schedules s
    WHERE {_IS_DUE}
    ORDER BY s.next_at LIMIT :step
    FOR NO KEY UPDATE SKIP LOCKED
""")  # noqa: S608 - our own conditions

# Jobs that wait while their crawl is at its end, and whose moment has come.
_WAITING = """jobs j
    WHERE j.ended_at IS NULL AND j.state = 'pending'
        AND (j.not_before IS NULL OR j.not_before <= :now)
        AND (SELECT c.state FROM crawls c WHERE c.id = j.crawl_id) = 'finished'"""

ANYTHING = text(f"""
    SELECT EXISTS (SELECT FROM schedules s WHERE {_IS_DUE})
        OR EXISTS (SELECT FROM {_WAITING})
""")  # noqa: S608 - likewise

MAKE = text("""
    INSERT INTO jobs (crawl_id, origin, schedule_id, due_at, not_before, state, reason, ended_at)
    SELECT made.crawl, 'runner', made.schedule, made.due_at, made.not_before, made.state,
        made.reason, CASE WHEN made.reason IS NOT NULL THEN clock_timestamp() END
    FROM unnest(CAST(:crawls AS int[]), CAST(:schedules AS int[]),
        CAST(:due AS timestamptz[]), CAST(:not_before AS timestamptz[]), CAST(:states AS text[]),
        CAST(:reasons AS text[]))
        AS made(crawl, schedule, due_at, not_before, state, reason)
    ON CONFLICT (schedule_id, due_at) DO NOTHING
""")

MOVE_ON = text("""
    UPDATE schedules s SET next_at = moved.next_at, last_at = moved.last_at,
        missed = least(CAST(s.missed AS bigint) + moved.missed, 2147483647),
        is_enabled = moved.is_enabled
    FROM unnest(CAST(:schedules AS int[]), CAST(:next_at AS timestamptz[]),
        CAST(:last_at AS timestamptz[]), CAST(:missed AS int[]), CAST(:enabled AS bool[]))
        AS moved(id, next_at, last_at, missed, is_enabled)
    WHERE s.id = moved.id AND s.id = ANY (CAST(:schedules AS int[]))
""")

READY = text(f"""
    SELECT j.crawl_id, j.id AS job, j.schedule_id, j.due_at FROM {_WAITING} LIMIT :step
""")  # noqa: S608 - our own condition


# Behind all who wait, one after the other.
BEGIN = text("""
    WITH begun AS (
        UPDATE crawls c SET state = 'active', state_reason = NULL, next_at = NULL, crashes = 0,
            crashed_at_pages = NULL,
            queued_at = (SELECT clock_timestamp()) + ready.place * interval '1 microsecond'
        FROM unnest(CAST(:crawls AS int[])) WITH ORDINALITY AS ready(id, place)
        WHERE c.id = ready.id AND c.id = ANY (CAST(:crawls AS int[]))
        RETURNING ready.place, c.*)
    SELECT b.id, b.nice, b.concurrency, b.tag, CAST(b.queued_at AS text) AS queued_at,
        CAST(b.next_at AS text) AS next_at,
        (SELECT l.name FROM limits l WHERE l.id = b.resource_id) AS resource
    FROM begun b ORDER BY b.place
""")


class _Step(NamedTuple):
    """What becomes of a schedule that is due: a job, if one is made, and when it is due next.

    `error` says why its rule cannot be read, so that it is disabled.
    """

    schedule: int
    crawl_id: int
    crawl: str
    last_at: datetime
    missed: int
    next_at: datetime | None = None
    due_at: datetime | None = None
    not_before: datetime | None = None
    refusal: str | None = None
    error: str | None = None


def is_anything_due(connection: Connection) -> bool:
    """Tell whether `start_due` has something to do."""
    now = connection.execute(engine.NOW).scalar_one()
    return bool(connection.execute(ANYTHING, {"now": now}).scalar_one())


def start_due(connection: Connection, now: datetime | None = None) -> int:
    """Make jobs of due times, and have crawls at their end begin the runs that wait.

    Returns how many schedules moved on, and crawls began; 0: nothing is due any more. `now` is the
    database's moment, where it is left out.
    """
    engine.hot_path(connection)
    lock_queue(connection)
    moment: datetime = now or connection.execute(engine.NOW).scalar_one()
    given = {"now": moment, "step": STEP}
    steps = _steps(connection.execute(DUE, given).all(), moment)
    if steps:
        _make(connection, [one for one in steps if one.due_at is not None])
        _move_on(connection, steps)
    ready: dict[int, Any] = {}  # the first job of each crawl
    for row in sorted(connection.execute(READY, given).all(), key=attrgetter("job")):
        ready.setdefault(row.crawl_id, row)
    if ready:
        _begin(connection, ready)
    return len(steps) + len(ready)


def _steps(rows: Sequence[Any], now: datetime) -> list[_Step]:
    """Return what becomes of schedules that are due; of a crawl one after the other.

    Those for which there is no time stay due: years of a line of cron take a while.
    """
    busy: set[int] = set()  # crawls that get a job here
    steps: list[_Step] = []
    until = time.monotonic() + _LONGEST
    for row in rows:
        if steps and time.monotonic() > until:
            break
        is_busy = row.is_busy or row.crawl_id in busy
        waits = row.overlap == Overlap.QUEUE or row.catch_up == CatchUp.ALL or row.is_continued
        if is_busy and waits:
            continue  # it stays due
        step = _step(row, now, is_busy=is_busy)
        steps.append(step)
        if step.due_at is not None and step.refusal is None:
            busy.add(row.crawl_id)
    return steps


def _step(row: Any, now: datetime, *, is_busy: bool) -> _Step:
    own = {"schedule": row.id, "crawl_id": row.crawl_id, "crawl": row.crawl}
    try:
        rule = stored_rule(row.kind, row.spec, row.time_zone, row.starts_at)
    except ValueError as error:
        return _Step(**own, last_at=row.next_at, missed=1, error=str(error))
    catch_up = CatchUp(row.catch_up)
    fired = rules.fire(rule, row.next_at, now, catch_up=catch_up, grace=row.grace)
    refusal = _refusal(row.state, is_busy=is_busy)
    runs, next_at, last_at, missed = fired.runs, fired.next_at, fired.last_at, fired.missed
    if len(runs) > 1 and refusal is None:  # one at a time: the rest stays due
        next_at, last_at = runs[1], runs[0]
    elif len(runs) > 1:
        missed += len(runs) - 1
    due_at = None if not runs else runs[0] if refusal is None else runs[-1]
    later = None
    if due_at is not None and row.jitter is not None:
        later = due_at + rules.jitter(row.id, due_at, row.jitter)
    return _Step(
        **own,
        last_at=last_at,
        missed=missed,
        next_at=next_at,
        due_at=due_at,
        not_before=later,
        refusal=refusal,
    )


def _refusal(state: str, *, is_busy: bool) -> str | None:
    """Return why a crawl is not started at a due time; None: it is."""
    if state in {State.PAUSED, State.ABORTED}:
        return f"the crawl was {state} when it was due"
    return "the crawl was still active when it was due" if is_busy else None


def _make(connection: Connection, steps: Sequence[_Step]) -> None:
    columns = {
        "crawls": [one.crawl_id for one in steps],
        "schedules": [one.schedule for one in steps],
        "due": [one.due_at for one in steps],
        "not_before": [one.not_before for one in steps],
        "states": [JobState.CANCELLED if one.refusal else JobState.PENDING for one in steps],
        "reasons": [one.refusal for one in steps],
    }
    if steps:
        connection.execute(MAKE, columns)


def _move_on(connection: Connection, steps: Sequence[_Step]) -> None:
    columns = {
        "schedules": [one.schedule for one in steps],
        "next_at": [one.next_at for one in steps],
        "last_at": [one.last_at for one in steps],
        "missed": [one.missed for one in steps],
        "enabled": [one.error is None for one in steps],
    }
    connection.execute(MOVE_ON, columns)
    for one in steps:
        if one.missed:
            _tell(connection, one)


def _tell(connection: Connection, one: _Step) -> None:
    """Have people told of what a schedule missed, and that it is disabled if it cannot be read."""
    told: dict[str, Any] = {"schedule": one.schedule, "missed": one.missed}
    if one.error is not None:
        told["reason"] = f"the schedule {one.schedule} is disabled: {one.error}"
        by = f"schedule {one.schedule}"
        note(connection, one.crawl_id, by, Event.SCHEDULE_SET, is_enabled=False, **told)
    told |= {"crawl": one.crawl, "last_at": str(one.last_at)}
    notices.write(connection, one.crawl_id, Kind.SCHEDULE_MISSED, **told)


def _begin(connection: Connection, ready: Mapping[int, Any]) -> None:
    """Have crawls at their end begin another run, for the job of each."""
    noted = []
    for begun in connection.execute(BEGIN, {"crawls": list(ready)}).mappings():
        terms = dict(begun)
        row = ready[terms.pop("id")]
        told: dict[str, Any] = {"job": row.job}
        by = "a job that waits"
        if row.schedule_id is not None:
            by = f"schedule {row.schedule_id}"
            told |= {"schedule": row.schedule_id, "due_at": str(row.due_at)}
        told |= {"state": State.ACTIVE, "reason": None, **terms}
        noted.append((row.crawl_id, by, told))
    note_all(connection, Event.SCHEDULED, noted)
    notify.tell_runners(connection)
