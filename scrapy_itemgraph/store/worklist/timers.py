"""Timers: work that waited for its moment, such as a retry, becomes claimable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.queues import wake

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


def stage_timers(connection: Connection, crawl_id: int, limit: int = STEP) -> int:
    """Make work claimable whose `not_before` has passed; return how many."""
    rows = connection.execute(STAGE_TIMERS, {"crawl": crawl_id, "limit": limit}).all()
    if rows:
        connection.execute(CLEAR_TIMERS, columns(rows, items="item_id", tasks="task_id"))
        wake(connection, [row.queue_id for row in rows])
    return len(rows)
