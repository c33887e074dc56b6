"""Runs of a crawl: from a start with nothing left to do to the end of all its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.work import Remaining
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry.crawls import HAS_WORK
from scrapy_itemgraph.store.sql_conditions import (
    IS_DEAD,
    IS_READY_ALONE,
    IS_READY_BESIDE_OTHERS,
    seconds_until,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from sqlalchemy import Connection

LOCK_CRAWL = text("""
    SELECT run, run_started_at, run_finished_at FROM crawls WHERE id = :crawl FOR NO KEY UPDATE
""")

OTHERS_LIVE = text(f"""
    SELECT EXISTS (SELECT FROM processes p
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND NOT {IS_DEAD})
""")  # noqa: S608 - our own condition

# By the same clock as the worker's start, which is in this transaction. What the journal has by
# then is an earlier run's, whatever its clock said.
BEGIN = text("""
    UPDATE crawls SET run = least(run, 1000000000) + 1, run_started_at = now(),
        run_finished_at = NULL,
        run_journal_id = coalesce((
            SELECT j.id FROM journal j WHERE j.crawl_id = :crawl
            ORDER BY j.crawl_id DESC, j.id DESC LIMIT 1), 0)
    WHERE id = :crawl
    RETURNING run, run_started_at
""")

HAS_STARTED = text("""
    SELECT EXISTS (SELECT FROM processes p JOIN workers w ON w.id = p.id
        WHERE p.crawl_id = :crawl AND w.has_started AND p.started_at >= :run)
""")

FINISH = text(f"""
    UPDATE crawls SET run_finished_at = clock_timestamp()
    WHERE id = :crawl AND run_started_at = :run AND NOT EXISTS (
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
        EXISTS (SELECT FROM sweeps s WHERE s.crawl_id = :crawl) AS sweeping,
        (SELECT greatest(0, {seconds_until("w.not_before")})
            FROM work w JOIN kind ON kind.id = w.kind_id JOIN queues q ON q.id = w.queue_id
            WHERE w.crawl_id = :crawl AND w.tries > 0
                AND w.not_before < (SELECT clock_timestamp()) + interval '1 year'
                AND {_OPEN_SLOT}
            ORDER BY w.not_before LIMIT 1) AS next_retry
""")  # noqa: S608 - our own condition


class Run(NamedTuple):
    """A run of a crawl: its number, from 1, and when it began."""

    number: int
    started_at: datetime


def join(connection: Connection, crawl_id: int) -> Run:
    """Return the crawl's run: the one under way, or a new one if none is.

    One is under way while its work is not done, a worker lives, or no `start()` came to its end.
    Called in the transaction that registers the worker, before that; so of two workers that start
    together one begins the run and the other joins it.
    """
    row = connection.execute(LOCK_CRAWL, {"crawl": crawl_id}).one()
    if row.run_started_at is not None and row.run_finished_at is None:
        here = {"crawl": crawl_id, "run": row.run_started_at}
        engine.hot_path(connection)
        if (
            connection.scalar(OTHERS_LIVE, here)
            or not connection.scalar(HAS_STARTED, here)
            or connection.scalar(HAS_WORK, here)
        ):
            return Run(row.run, row.run_started_at)
    return Run(*connection.execute(BEGIN, {"crawl": crawl_id}).one())


def finish(connection: Connection, crawl_id: int, run_started_at: datetime) -> None:
    """Note that a run is over: the next start begins another.

    While a worker is in `start()`, or has claims that others know nothing of, it is not over; nor
    where one left work to others of newer code.
    """
    connection.execute(FINISH, {"crawl": crawl_id, "run": run_started_at})


def remaining(
    connection: Connection, crawl_id: int, *, kinds: Collection[int], until: datetime
) -> Remaining:
    """Return what is left for workers of these kinds, with results due by `until`."""
    given = {"crawl": crawl_id, "kinds": list(kinds), "until": until}
    return Remaining(**connection.execute(REMAINING, given).one()._asdict())
