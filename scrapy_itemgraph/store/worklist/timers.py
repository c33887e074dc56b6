"""Timers: work that waited for its moment, such as a retry, becomes claimable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.queues import wake
from scrapy_itemgraph.store.sql_conditions import seconds_until

if TYPE_CHECKING:
    from sqlalchemy import Connection

STEP = 100  # rows in a transaction

STAGE_TIMERS = text("""
    SELECT w.item_id, w.task_id, w.queue_id FROM work w
    WHERE w.crawl_id = :crawl AND w.not_before <= (SELECT clock_timestamp())
    ORDER BY w.not_before
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
""")

CLEAR_TIMERS = text("""
    UPDATE work w SET not_before = NULL
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS due(item_id, task_id)
    WHERE w.item_id = due.item_id AND w.task_id = due.task_id
""")

# In how many seconds the next timer, or the next result of any task, falls due.
NEXT_DUE = text(f"""
    SELECT least(
        (SELECT {seconds_until("w.not_before")} FROM work w
            WHERE w.crawl_id = :crawl AND w.not_before IS NOT NULL
            ORDER BY w.not_before LIMIT 1),
        (SELECT min(due.seconds) FROM tasks t CROSS JOIN LATERAL (
            SELECT {seconds_until("r.due_at")} AS seconds FROM results r
            WHERE r.task_id = t.id AND r.due_at IS NOT NULL
            ORDER BY r.due_at LIMIT 1) AS due
            WHERE t.crawl_id = :crawl))
""")  # noqa: S608 - our own conditions


def stage_timers(connection: Connection, crawl_id: int, limit: int = STEP) -> int:
    """Make work claimable whose `not_before` has passed; return how many."""
    rows = connection.execute(STAGE_TIMERS, {"crawl": crawl_id, "limit": limit}).all()
    if rows:
        connection.execute(CLEAR_TIMERS, columns(rows, items="item_id", tasks="task_id"))
        wake(connection, [row.queue_id for row in rows])
    return len(rows)


def next_due(connection: Connection, crawl_id: int) -> float | None:
    """Return in how many seconds the next timer or result falls due; None where none will."""
    seconds: float | None = connection.scalar(NEXT_DUE, {"crawl": crawl_id})
    return seconds
