"""Timers: what time makes outstanding, a hundred rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.queues import wake
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

STEP = 100

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

# Results that fell due, of each task of the crawl.
DUE_RESULTS = text("""
    SELECT due.item_id FROM tasks t
    CROSS JOIN LATERAL (
        SELECT r.item_id FROM results r
        WHERE r.task_id = t.id AND r.due_at <= :until
        ORDER BY r.due_at
        LIMIT :limit) AS due
    WHERE t.crawl_id = :crawl
    LIMIT :limit
""")

STAGE_RESULTS = text("""
    UPDATE results r SET due_at = NULL
    FROM unnest(CAST(:items AS bigint[])) AS due(id)
    WHERE r.item_id = due.id AND r.due_at <= :until
""")


def stage_timers(connection: Connection, crawl_id: int, limit: int = STEP) -> int:
    """Make work claimable whose `not_before` has passed; return how many."""
    rows = connection.execute(STAGE_TIMERS, {"crawl": crawl_id, "limit": limit}).all()
    if rows:
        connection.execute(CLEAR_TIMERS, columns(rows, items="item_id", tasks="task_id"))
        wake(connection, [row.queue_id for row in rows])
    return len(rows)


def stage_results(connection: Connection, crawl_id: int, until: datetime, limit: int = STEP) -> int:
    """Make results stale that fell due by `until`; return how many items were looked at."""
    due = {"crawl": crawl_id, "until": until, "limit": limit}
    items = list(connection.execute(DUE_RESULTS, due).scalars())
    if items:
        locked = lock_items(connection, items)
        connection.execute(STAGE_RESULTS, {"items": locked, "until": until})
        refresh.refresh(connection, locked)
    return len(items)
