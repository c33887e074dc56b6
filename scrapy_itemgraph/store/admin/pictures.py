"""Pictures of items: all that they have at one moment, to be compared with another one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.simulations import BlobPicture, ItemPicture, ResultPicture, WorkPicture
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin.status import STATE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

RESULTS = text(f"""
    SELECT r.item_id, t.name AS task, {STATE} AS state, r.task_version AS version, r.metadata,
        r.completed_at, r.expires_at
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN results r ON r.item_id = wanted.id
    JOIN tasks t ON t.id = r.task_id
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

WORK = text("""
    SELECT w.item_id, t.name AS task, w.is_stale, w.nice, w.not_before, s.name AS slot
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN work w ON w.item_id = wanted.id
    JOIN tasks t ON t.id = w.task_id
    JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id
    ORDER BY t.name
""")

# Names of a crawl's items, in the order of their keys, which is none.
SOME_NAMES = text("SELECT name FROM aliases WHERE crawl_id = :crawl ORDER BY key LIMIT :limit")


def of_items(connection: Connection, item_ids: Iterable[int]) -> dict[int, ItemPicture]:
    """Return what items have just now, by their numbers; those that are gone are left out."""
    numbers = sorted(set(item_ids))
    results: defaultdict[int, dict[str, ResultPicture]] = defaultdict(dict)
    for row in connection.execute(RESULTS, {"items": numbers}):
        results[row.item_id][row.task] = ResultPicture(
            state=row.state,
            version=row.version,
            metadata=row.metadata,
            completed_at=row.completed_at,
            expires_at=row.expires_at,
        )
    work: defaultdict[int, dict[str, WorkPicture]] = defaultdict(dict)
    for row in connection.execute(WORK, {"items": numbers}):
        work[row.item_id][row.task] = WorkPicture(
            is_stale=row.is_stale, nice=row.nice, not_before=row.not_before, slot=row.slot
        )
    blobs: defaultdict[int, dict[str, BlobPicture]] = defaultdict(dict)
    for row in connection.execute(stored_blobs.PICTURED, {"items": numbers}):
        blobs[row.item_id][row.name] = BlobPicture(size=row.size, mime=row.mime, sha256=row.sha256)
    return {
        number: ItemPicture(
            id=item.id,
            aliases=item.aliases,
            tags=item.tags,
            data=item.data,
            created_by=item.created_by,
            blobs=blobs.get(number, {}),
            results=results.get(number, {}),
            work=work.get(number, {}),
        )
        for number, item in stored_items.snapshots(connection, numbers).items()
    }


def some_names(connection: Connection, crawl_id: int, limit: int) -> list[str]:
    """Return some of the names that a crawl's items have, to tell a near miss by."""
    given = {"crawl": crawl_id, "limit": limit}
    return list(connection.execute(SOME_NAMES, given).scalars())
