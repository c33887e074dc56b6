"""Runs of a crawl: from a start with nothing left to do to the end of all its work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.model.tallies import added_up
from scrapy_itemgraph.model.work import Remaining
from scrapy_itemgraph.postgres import engine, server_clock
from scrapy_itemgraph.store import group_tallies, queues
from scrapy_itemgraph.store.awakening import CONTINUE
from scrapy_itemgraph.store.registry.crawls import HAS_WORK
from scrapy_itemgraph.store.set_aside import DRIPS
from scrapy_itemgraph.store.sql_conditions import (
    HAS_DEPTH_WORK,
    IS_DEAD,
    IS_READY_ALONE,
    IS_READY_BESIDE_OTHERS,
    IS_SURELY_DEAD,
    LOCK_IS_FREE,
    seconds_until,
)
from scrapy_itemgraph.store.tallies import LARGEST, more_statuses
from scrapy_itemgraph.tools.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.tallies import Tallies

MOST_OF_ERROR = 1000  # characters of an error sentence that are kept

LOCK_CRAWL = text("SELECT run, state FROM crawls WHERE id = :crawl FOR NO KEY UPDATE")

# Whoever joins a run has its row, and so has whoever leaves it: one of the two sees the other.
CURRENT = text("""
    SELECT number, started_at, is_finished, is_closed,
        continued_at IS NOT NULL AND NOT is_finished AS is_continued
    FROM runs WHERE crawl_id = :crawl AND number = :run
    FOR NO KEY UPDATE
""")

OTHERS_LIVE = text(f"""
    SELECT EXISTS (SELECT FROM processes p
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND NOT {IS_DEAD})
""")  # noqa: S608 - our own condition

# By the same clock as the worker's start, which is in this transaction. What the journal has by
# then is an earlier run's, whatever its clock said. The largest number is used again and again.
BEGIN = text("""
    WITH crawl AS (
        UPDATE crawls SET run = least(run, 1000000000) + 1,
            run_journal_id = coalesce((
                SELECT j.id FROM journal j WHERE j.crawl_id = :crawl
                ORDER BY j.crawl_id DESC, j.id DESC LIMIT 1), 0)
        WHERE id = :crawl
        RETURNING run)
    INSERT INTO runs AS r (crawl_id, number, started_at) SELECT :crawl, run, now() FROM crawl
    ON CONFLICT (crawl_id, number) DO UPDATE SET
        started_at = excluded.started_at, ended_at = NULL, is_finished = false, reason = NULL,
        is_closed = false, continued_at = NULL,
        error = NULL, pages = 0, items = 0, failures = 0, retried = 0, refused = 0, gone = 0,
        bytes = 0, statuses = '{}', long_links = 0, url_limit = NULL
    RETURNING number, started_at
""")

BEGAN_BY = text("""
    UPDATE runs SET worker_id = :worker, spider = :spider, job = :job
    WHERE crawl_id = :crawl AND number = :run
""")

GO_ON = text("""
    UPDATE runs SET ended_at = NULL, reason = NULL
    WHERE crawl_id = :crawl AND number = :run AND ended_at IS NOT NULL
""")

MARK_CONTINUED = text("""
    UPDATE runs SET continued_at = clock_timestamp() WHERE crawl_id = :crawl AND number = :run
""")

# The end of a run that work has opened again: who begins another one takes what it has not done.
# Processes of it stop, as of a run that its spider has closed.
END_CONTINUED = text("""
    UPDATE runs r SET is_finished = true, is_closed = r.ended_at IS NULL,
        ended_at = coalesce(r.ended_at, clock_timestamp()),
        reason = coalesce(r.reason, 'superseded')
    FROM crawls c
    WHERE c.id = :crawl AND r.crawl_id = c.id AND r.number = c.run
        AND NOT r.is_finished AND r.continued_at IS NOT NULL
""")

# A run that its spider closes is over, also while processes of it come to their end.
CLOSE = text("""
    UPDATE runs SET ended_at = clock_timestamp(), is_finished = true, is_closed = true,
        reason = :reason
    WHERE crawl_id = :crawl AND number = :run AND NOT is_finished
""")

CLOSED_FOR = text("""
    SELECT reason FROM runs WHERE crawl_id = :crawl AND number = :run AND is_closed
""")

_HAS_STARTED = """EXISTS (SELECT FROM processes p JOIN workers w ON w.id = p.id
        WHERE p.crawl_id = :crawl AND w.has_started AND p.started_at >= {started_at})"""
HAS_STARTED = text(f"SELECT {_HAS_STARTED.format(started_at=':started_at')}")

# Whether a run `r` without living workers has nothing to go on with, so that the next start begins
# another one. That of a crawl in the queue is not over before a worker has found its end: whoever
# is started for the crawl goes on with it until then.
_IS_OVER = f"""({_HAS_STARTED.format(started_at="r.started_at")} AND NOT ({HAS_WORK.text})
        AND NOT EXISTS (
            SELECT FROM crawls q WHERE q.id = r.crawl_id AND q.state <> 'finished'))"""

# Whether there is something to note of a run that no worker lives of.
_IS_UNSETTLED = f"NOT r.is_finished AND (r.ended_at IS NULL OR {_IS_OVER})"

UNSETTLED = text(f"""
    SELECT r.number FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    WHERE c.id = :crawl AND {_IS_UNSETTLED}
""")  # noqa: S608 - our own conditions

SETTLE = text(f"""
    UPDATE runs r SET is_finished = {_IS_OVER},
        ended_at = coalesce(r.ended_at, (
            SELECT max(p.seen_at) FROM processes p
            WHERE p.crawl_id = :crawl AND p.started_at >= r.started_at), clock_timestamp()),
        reason = coalesce(r.reason, CASE WHEN EXISTS (
            SELECT FROM processes p
            WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND NOT {LOCK_IS_FREE})
            THEN 'stalled' ELSE 'died' END)
    WHERE r.crawl_id = :crawl AND r.number = :run AND {_IS_UNSETTLED} AND NOT EXISTS (
        SELECT FROM processes p
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND NOT {IS_SURELY_DEAD})
""")  # noqa: S608 - our own conditions

_IS_PRESENT = "EXISTS (SELECT FROM crawls c WHERE c.id = :crawl AND c.run = :run)"

FINISH = text(f"""
    UPDATE runs SET ended_at = clock_timestamp(), is_finished = true, reason = 'finished'
    WHERE crawl_id = :crawl AND number = :run AND NOT is_finished AND {_IS_PRESENT}
        AND NOT EXISTS (
        SELECT FROM processes p JOIN workers w ON w.id = p.id
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL
            AND (NOT w.has_started OR EXISTS (
                SELECT FROM work c WHERE c.worker_id = w.id AND c.token IS NOT NULL))
            AND NOT {IS_DEAD})
        AND NOT EXISTS (
            SELECT FROM tasks t JOIN kinds k ON k.task_id = t.id
            JOIN work x ON x.crawl_id = :crawl AND x.kind_id = k.id
            WHERE t.crawl_id = :crawl AND t.left_by && ARRAY(
                SELECT o.id FROM processes o WHERE o.crawl_id = :crawl AND o.stopped_at IS NULL))
""")  # noqa: S608

# The last worker to leave ends the run for now; a run that has finished stays as it is.
LEAVE = text(f"""
    UPDATE runs SET ended_at = clock_timestamp(), reason = :reason
    WHERE crawl_id = :crawl AND number = :run AND NOT is_finished AND {_IS_PRESENT}
        AND NOT EXISTS (
        SELECT FROM processes p
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND NOT {IS_DEAD})
""")  # noqa: S608 - our own condition

NOTE_ERROR = text("UPDATE runs SET error = :error WHERE crawl_id = :crawl AND number = :run")

# What a run counts, each with its name in a tally.
_COUNTED = {
    "pages": "done",
    "items": "scraped",
    "failures": "failed",
    **{name: name for name in ("retried", "refused", "gone", "bytes")},
}
_COUNT_MORE = ", ".join(f"{name} = least({name}, {LARGEST}) + :{name}" for name in _COUNTED)
COUNT = text(f"""
    UPDATE runs SET {_COUNT_MORE},
        long_links = least(long_links, {LARGEST}) + :long_links,
        url_limit = coalesce(CAST(:url_limit AS int), url_limit),
        statuses = {more_statuses("statuses", "CAST(:statuses AS json)")}
    WHERE crawl_id = :crawl AND number = :run
""")  # noqa: S608 - our own number

# Of a queue: its slot is not blocked by a person. What a site asked for is waited for, unless that
# is longer than a year: nobody keeps a run open for that.
_OPEN_SLOT = """NOT EXISTS (
                SELECT FROM limits l WHERE l.id = q.slot_id
                    AND l.blocked_until > (SELECT clock_timestamp())
                        + CASE WHEN l.blocked_by = 'person' THEN interval '0'
                            ELSE interval '1 year' END)"""

REMAINING = text(f"""
    WITH kind AS (SELECT unnest(CAST(:kinds AS int[])) AS id)
    SELECT
        EXISTS (
            SELECT FROM queues q CROSS JOIN kind CROSS JOIN LATERAL (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND w.kind_id = kind.id AND {IS_READY_BESIDE_OTHERS}
                LIMIT 1) AS head
            WHERE q.crawl_id = :crawl AND q.is_live AND {_OPEN_SLOT})
        OR EXISTS (
            SELECT FROM work w JOIN kind ON kind.id = w.kind_id JOIN queues q ON q.id = w.queue_id
            WHERE w.crawl_id = :crawl AND {IS_READY_ALONE} AND {_OPEN_SLOT})
        OR EXISTS (
            SELECT FROM work w JOIN kind ON kind.id = w.kind_id JOIN queues q ON q.id = w.queue_id
            WHERE w.crawl_id = :crawl AND w.not_before <= (SELECT clock_timestamp())
                AND {_OPEN_SLOT})
        OR EXISTS (
            SELECT FROM tasks t CROSS JOIN LATERAL (
                SELECT FROM results r WHERE r.task_id = t.id AND r.due_at <= :until LIMIT 1) AS due
            WHERE t.crawl_id = :crawl) AS claimable,
        EXISTS (
            SELECT FROM processes o JOIN work w ON w.worker_id = o.id AND w.token IS NOT NULL
            WHERE o.crawl_id = :crawl AND o.stopped_at IS NULL) AS claimed,
        EXISTS (SELECT FROM sweeps s WHERE s.crawl_id = :crawl)
            OR {DRIPS}
            OR {HAS_DEPTH_WORK} AS sweeping,
        (SELECT greatest(0, {seconds_until("w.not_before")})
            FROM work w JOIN kind ON kind.id = w.kind_id JOIN queues q ON q.id = w.queue_id
            WHERE w.crawl_id = :crawl AND w.tries <> 0
                AND w.not_before < (SELECT clock_timestamp()) + interval '1 year'
                AND {_OPEN_SLOT}
            ORDER BY w.not_before LIMIT 1) AS next_retry
""")  # noqa: S608 - our own condition


class Run(NamedTuple):
    """A run of a crawl: its number, from 1, when it began, and whether all of it was over then.

    `is_continued`: it had come to its end, and work opened it again.
    """

    number: int
    started_at: datetime
    is_over: bool = False
    is_continued: bool = False


def join(
    connection: Connection, crawl_id: int, *, for_queue: bool = False, continues: bool = False
) -> Run:
    """Return the crawl's run: the one under way, or a new one if none is.

    One is under way while its work is not done, a worker lives, or no `start()` came to its end.
    Called in the transaction that registers the worker, before that; so of two workers that start
    together one begins the run and the other joins it.

    A process `for_queue` is started by a runner, to go on with an active crawl: also with a run of
    which nothing is left, where those who did the last of it ended before they noted the end. Where
    others have brought the crawl to its end by now, the run that is over is returned.

    One that `continues` opens the last run again, if that is over and something is outstanding;
    with nothing outstanding that run is returned as over. A start by hand that does not ends a run
    that was opened again, and begins another one.
    """
    crawl = connection.execute(LOCK_CRAWL, {"crawl": crawl_id}).one()
    here = {"crawl": crawl_id, "run": crawl.run}
    row = connection.execute(CURRENT, here).first()
    if for_queue and row is not None and row.is_finished and crawl.state == State.FINISHED:
        return Run(row.number, row.started_at, is_over=True)
    run = _continue(connection, crawl_id, row) if continues else None
    if run is not None and run.is_over:
        return run
    if row is not None and (row.is_closed or row.is_continued):
        queues.wake_crawl(connection, crawl_id)  # parked with what its spider left
    if run is not None:
        return run
    if row is not None and row.is_continued and not for_queue:
        end_continued(connection, crawl_id)
    elif row is not None and not row.is_finished:
        here["started_at"] = row.started_at
        engine.hot_path(connection)
        if (
            for_queue
            or connection.scalar(OTHERS_LIVE, here)
            or not connection.scalar(HAS_STARTED, here)
            or connection.scalar(HAS_WORK, here)
        ):
            connection.execute(GO_ON, here)
            return Run(row.number, row.started_at, is_continued=row.is_continued)
        _settle(connection, crawl_id, row.number)
    return Run(*connection.execute(BEGIN, {"crawl": crawl_id}).one())


def _continue(connection: Connection, crawl_id: int, row: Any) -> Run:
    """Return the last run of a crawl, opened again, as it is if it goes on anyway, or as over."""
    here = {"crawl": crawl_id}
    engine.hot_path(connection)
    has_work = connection.scalar(HAS_WORK, here)
    if row is None:
        if not has_work:
            return Run(0, connection.execute(engine.NOW).scalar_one(), is_over=True)
        row = connection.execute(BEGIN, here).one()
        connection.execute(MARK_CONTINUED, {**here, "run": row.number})
        return Run(row.number, row.started_at, is_continued=True)
    if row.is_finished and not has_work:
        return Run(row.number, row.started_at, is_over=True)
    is_continued = row.is_continued or row.is_finished
    connection.execute(CONTINUE, here)
    connection.execute(GO_ON, {**here, "run": row.number})
    return Run(row.number, row.started_at, is_continued=is_continued)


def end_continued(connection: Connection, crawl_id: int) -> None:
    """End a run that was opened again, so that the next start begins another one."""
    connection.execute(END_CONTINUED, {"crawl": crawl_id})


def settle(connection: Connection, crawl_id: int) -> bool:
    """Note how the run of a crawl ended that nobody runs; tell whether there was something to note.

    With nothing left it is over, as it would be to the next start. That is noted before results
    that fell due become work, or the next start would take them for what the run has left.
    """
    number = connection.execute(UNSETTLED, {"crawl": crawl_id}).scalar()
    if number is None:
        return False
    connection.execute(LOCK_CRAWL, {"crawl": crawl_id})
    return _settle(connection, crawl_id, number)


def _settle(connection: Connection, crawl_id: int, number: int) -> bool:
    here = {"crawl": crawl_id, "run": number, "untrusted": server_clock.untrusted(connection)}
    return connection.execute(SETTLE, here).rowcount > 0


def close(connection: Connection, crawl_id: int, number: int, reason: str) -> bool:
    """Note that the spider has closed a run, so that it is over with work left.

    False where it was over already.
    """
    connection.execute(LOCK_CRAWL, {"crawl": crawl_id})
    here = {"crawl": crawl_id, "run": number, "reason": reason}
    return connection.execute(CLOSE, here).rowcount > 0


def closed_for(connection: Connection, crawl_id: int, number: int) -> str | None:
    """Return why the spider has closed a run; None where it did not."""
    here = {"crawl": crawl_id, "run": number}
    reason: str | None = connection.execute(CLOSED_FOR, here).scalar()
    return reason


def began_by(
    connection: Connection, crawl_id: int, number: int, *, worker: int, spider: str, job: str | None
) -> None:
    """Note which worker began a run."""
    given = {"crawl": crawl_id, "run": number, "worker": worker, "spider": spider, "job": job}
    connection.execute(BEGAN_BY, given)


def finish(connection: Connection, crawl_id: int, number: int) -> None:
    """Note that a run is over: the next start begins another.

    While a worker is in `start()`, or has claims that others know nothing of, it is not over; nor
    where one left work to others of newer code.
    """
    connection.execute(LOCK_CRAWL, {"crawl": crawl_id})
    connection.execute(FINISH, {"crawl": crawl_id, "run": number})


def leave(
    connection: Connection, crawl_id: int, number: int, *, reason: str, error: str | None
) -> None:
    """Note that a worker, which has stopped, left a run: why, and the error that it ended by.

    The run ends for now with its last worker. A later start goes on with it.
    """
    here = {"crawl": crawl_id, "run": number}
    connection.execute(CURRENT, here)
    connection.execute(LEAVE, {**here, "reason": reason})
    if error is not None:
        connection.execute(NOTE_ERROR, {**here, "error": one_line(error)[:MOST_OF_ERROR]})


def count(connection: Connection, crawl_id: int, number: int, told: Sequence[Tallies]) -> None:
    """Add what a worker did to a run's counts: last in a transaction, for workers share the row."""
    whole = added_up(one for some in told for one in some.of_tasks.values())
    given: dict[str, Any] = {name: getattr(whole, counted) for name, counted in _COUNTED.items()}
    given["long_links"] = sum(some.long_links for some in told)
    if any(given.values()) or whole.statuses:
        limits = (some.url_limit for some in told if some.long_links)
        given |= {"url_limit": next(limits, None), "statuses": json.dumps(whole.statuses)}
        connection.execute(COUNT, given | {"crawl": crawl_id, "run": number})
    group_tallies.add(connection, crawl_id, number, [some.failures for some in told])


def remaining(
    connection: Connection, crawl_id: int, *, kinds: Collection[int], until: datetime
) -> Remaining:
    """Return what is left for workers of these kinds, with results due by `until`."""
    given = {"crawl": crawl_id, "kinds": list(kinds), "until": until}
    return Remaining(**connection.execute(REMAINING, given).one()._asdict())
