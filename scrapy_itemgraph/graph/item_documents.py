"""All of an item as one document, for `scrapy itemgraph show` and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import documents, item_names
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import status

if TYPE_CHECKING:
    from sqlalchemy import Connection


def of_item(
    connection: Connection, crawl_id: int, number: int, *, name: str, attempts: int
) -> dict[str, Any]:
    """Return an item's columns, its page, its maker, blobs, results and last attempts.

    Raises:
        NotFoundError: the item was deleted since its number was looked up.

    """
    item = stored_items.snapshots(connection, [number]).get(number)
    if item is None:
        raise NotFoundError(f"the item {name!r} has just been deleted")
    by = item.created_by
    creator = None if by is None else stored_items.named(connection, crawl_id, by)
    url, method = item_names.page_of(item.data)
    made_by = item_names.page_of(None if creator is None else creator.data)
    return {
        **documents.of(item),
        "url": url,
        "method": method,
        "created_by_item": None if creator is None else creator.id,
        "created_by_url": made_by[0],
        "created_by_method": made_by[1],
        "blobs": documents.of(stored_blobs.of_item(connection, number)),
        "results": documents.of(status.results(connection, crawl_id, number)),
        "attempts": documents.of(status.attempts(connection, number, limit=attempts)),
    }
