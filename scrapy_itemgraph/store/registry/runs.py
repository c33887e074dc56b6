"""Runs of a crawl: from a start with nothing left to do, to the end of all its work.

All functions take a connection and never commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.liveness_conditions import IS_DEAD
from scrapy_itemgraph.store.registry.tasks import HAS_WORK

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

LOCK_CRAWL = text("""
    SELECT run_started_at, run_finished_at FROM crawls WHERE id = :crawl FOR NO KEY UPDATE
""")

OTHERS_LIVE = text(f"""
    SELECT EXISTS (SELECT FROM workers w
        WHERE w.crawl_id = :crawl AND w.stopped_at IS NULL AND NOT {IS_DEAD})
""")  # noqa: S608 - our own condition

# By the same clock as the worker's start, which is in this transaction.
BEGIN = text("""
    UPDATE crawls SET run_started_at = now(), run_finished_at = NULL
    WHERE id = :crawl
    RETURNING run_started_at
""")

HAS_STARTED = text("""
    SELECT EXISTS (SELECT FROM workers w
        WHERE w.crawl_id = :crawl AND w.has_started AND w.started_at >= :run)
""")

FINISH = text(f"""
    UPDATE crawls SET run_finished_at = clock_timestamp()
    WHERE id = :crawl AND run_started_at = :run AND NOT EXISTS (
        SELECT FROM workers w
        WHERE w.crawl_id = :crawl AND w.stopped_at IS NULL
            AND (NOT w.has_started OR EXISTS (
                SELECT FROM work c WHERE c.worker_id = w.id AND c.token IS NOT NULL))
            AND NOT {IS_DEAD})
""")  # noqa: S608


def join(connection: Connection, crawl_id: int) -> datetime:
    """Return when the crawl's run began: the one under way, or a new one if none is.

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
            started: datetime = row.run_started_at
            return started
    begun: datetime = connection.execute(BEGIN, {"crawl": crawl_id}).scalar_one()
    return begun


def finish(connection: Connection, crawl_id: int, run_started_at: datetime) -> None:
    """Note that a run is over: the next start begins another.

    While a worker is in `start()`, or has claims that others know nothing of, it is not over.
    """
    connection.execute(FINISH, {"crawl": crawl_id, "run": run_started_at})
