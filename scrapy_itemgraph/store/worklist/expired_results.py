"""Expired results: those whose time is over become stale, so that their tasks run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

STEP = 100  # items in a transaction

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

# What was gone is looked for again; what failed stays held.
STAGE_RESULTS = text("""
    UPDATE results r SET due_at = NULL, is_held = r.is_held AND NOT r.is_successful
    FROM unnest(CAST(:items AS bigint[])) AS due(id)
    WHERE r.item_id = due.id AND r.due_at <= :until
""")


def stage_results(connection: Connection, crawl_id: int, until: datetime, limit: int = STEP) -> int:
    """Make results stale that fell due by `until`; return how many items were looked at."""
    due = {"crawl": crawl_id, "until": until, "limit": limit}
    items = list(connection.execute(DUE_RESULTS, due).scalars())
    if items:
        locked = lock_items(connection, items)
        connection.execute(STAGE_RESULTS, {"items": locked, "until": until})
        refresh.refresh(connection, locked)
    return len(items)
