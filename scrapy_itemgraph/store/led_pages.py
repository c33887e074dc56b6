"""Pages that are done without their callback, for their redirect led to another, known page.

The items are locked by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import Pair

# The pairs that led to one of some items, by any of its names. A merge moves an item's names, so
# what led to the item that went leads to the one that stayed.
FOUND = text("""
    SELECT r.item_id, r.task_id
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    CROSS JOIN LATERAL (SELECT a.key FROM aliases a WHERE a.item_id = wanted.id OFFSET 0) AS a
    JOIN tasks t ON t.crawl_id = :crawl
    CROSS JOIN LATERAL (
        SELECT r.item_id, r.task_id FROM results r
        WHERE r.task_id = t.id AND r.led_to = a.key LIMIT :limit) AS r
    LIMIT :limit
""")

# The results of a page's own callbacks.
OWN = text("""
    SELECT r.item_id, r.task_id FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE r.item_id = :item AND t.is_callback
""")

FREE = text("""
    UPDATE results r SET invalidated_at = clock_timestamp(), led_to = NULL
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS freed(item_id, task_id)
    WHERE r.item_id = freed.item_id AND r.task_id = freed.task_id
""")


def found(
    connection: Connection, crawl_id: int, items: Collection[int], *, limit: int
) -> list[Pair]:
    """Return pairs whose redirect led to one of these items; at most so many."""
    if not items:
        return []
    engine.hot_path(connection)
    given = {"crawl": crawl_id, "items": sorted(items), "limit": limit}
    return [(row.item_id, row.task_id) for row in connection.execute(FOUND, given)]


def own(connection: Connection, item_id: int) -> list[Pair]:
    """Return the pairs of a page and its callbacks that have a result."""
    return [(row.item_id, row.task_id) for row in connection.execute(OWN, {"item": item_id})]


def free(connection: Connection, pairs: Collection[Pair]) -> None:
    """Make the results of these pairs stale, and forget where they led."""
    if pairs:
        connection.execute(FREE, columns(pairs, items=0, tasks=1))
