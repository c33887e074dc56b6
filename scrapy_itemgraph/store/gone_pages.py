"""Pages that are gone, as their website said: pairs that are held without a failure.

The items are locked by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.sql_conditions import IS_GONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import Pair

# The first pairs of a crawl or task that are gone.
GONE_PAIRS = text(f"""
    SELECT r.item_id, r.task_id FROM tasks t
    CROSS JOIN LATERAL (
        SELECT r.item_id, r.task_id FROM results r
        WHERE r.task_id = t.id AND {IS_GONE} AND (r.task_id, r.item_id) > (:task_id, :item_id)
        ORDER BY r.task_id, r.item_id LIMIT :limit) AS r
    WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task)
    ORDER BY r.task_id, r.item_id LIMIT :limit
""")  # noqa: S608 - our own condition

# Those of one item.
GONE_OF_ITEM = text(f"""
    SELECT r.item_id, r.task_id FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE r.item_id = :item AND {IS_GONE}
        AND (CAST(:task AS text) IS NULL OR t.name = :task) ORDER BY r.task_id
""")  # noqa: S608

FREE = text(f"""
    UPDATE results r SET is_held = false
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS freed(item_id, task_id)
    WHERE r.item_id = freed.item_id AND r.task_id = freed.task_id AND {IS_GONE}
""")  # noqa: S608


def found(
    connection: Connection, crawl_id: int, *, task: str | None, after: Pair, limit: int
) -> list[Pair]:
    """Return pairs that are gone, of a task or all, in the order of tasks and items.

    They come `after` a pair: the numbers of its item and its task.
    """
    engine.hot_path(connection)
    item_id, task_id = after
    given = {"crawl": crawl_id, "task": task, "limit": limit}
    rows = connection.execute(GONE_PAIRS, {**given, "item_id": item_id, "task_id": task_id})
    return [(row.item_id, row.task_id) for row in rows]


def of_item(connection: Connection, item_id: int, *, task: str | None) -> list[Pair]:
    """Return the pairs of one item that are gone, of a task or all."""
    rows = connection.execute(GONE_OF_ITEM, {"item": item_id, "task": task})
    return [(row.item_id, row.task_id) for row in rows]


def free(connection: Connection, pairs: Collection[Pair]) -> int:
    """Let these pairs run again, as far as they are still gone; return how many."""
    if not pairs:
        return 0
    return connection.execute(FREE, columns(pairs, items=0, tasks=1)).rowcount
