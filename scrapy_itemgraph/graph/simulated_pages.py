"""The item of a page that is to be simulated, by what people know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.graph import alike_pages
from scrapy_itemgraph.model.simulations import StoredPage
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import page_search

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.model.simulations import WantedPage
    from scrapy_itemgraph.model.snapshots import ItemSnapshot


def find(connection: Connection, crawl_id: int | None, wanted: WantedPage) -> StoredPage | None:
    """Return the item of a page; None where the crawl has none, or is none yet.

    Raises:
        NotFoundError: several have the URL.

    """
    if crawl_id is None:
        return None
    found = (stored_items.named(connection, crawl_id, name) for name in wanted.names)
    item = next(filter(None, found), None) or _of_url(connection, crawl_id, wanted.shown)
    return None if item is None else _page(item)


def _page(item: ItemSnapshot) -> StoredPage:
    data = item.data if isinstance(item.data, dict) else {}
    return StoredPage(item=item.id, tags=item.tags, data=data)


def _of_url(connection: Connection, crawl_id: int, shown: str) -> ItemSnapshot | None:
    """Return the one item that tables show so."""
    found = page_search.find(connection, crawl_id, shown)
    if len(found) > 1:
        raise alike_pages.error(connection, crawl_id, found, shown)
    return stored_items.named(connection, crawl_id, found[0].item) if found else None
