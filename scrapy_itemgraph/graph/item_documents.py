"""Calls that read items, one or page by page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph.crawl_transactions import Calls
from scrapy_itemgraph.model import documents, item_names
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import crawl_reports, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.snapshots import ItemSnapshot, ResultSnapshot


_MOST_OF_URL = 10


class ItemCalls(Calls):
    """Reads items by their names, and all of them a page at a time."""

    def get(self, name: str) -> ItemSnapshot | None:
        """Return an item by its id or an alias; None when there is none."""
        return self._of_crawl(stored_items.named, name)

    def of_url(self, url: str) -> list[status.ItemOfUrl]:
        """Return (item, url, method) of up to ten items whose data names a URL.

        All of the crawl's items are looked through.
        """
        return self._of_crawl(status.of_url, url=url, limit=_MOST_OF_URL)

    def items(self) -> Iterator[ItemSnapshot]:
        """Go through all items, a thousand at a time, in the order in which they were made."""
        after = 0
        while numbers := self._of_crawl(
            stored_items.item_ids, after=after, limit=crawl_reports.STEP
        ):
            found = self._call(partial(stored_items.snapshots, item_ids=numbers))
            yield from (found[number] for number in numbers if number in found)
            after = numbers[-1]

    def results(self, name: str) -> list[ResultSnapshot]:
        """Return what each task of an item produced, and those that have not run yet."""
        return self._of_item(name, status.results)

    def attempts(self, name: str, limit: int = 10) -> list[status.Attempt]:
        """Return the last attempts at an item's tasks, the latest first."""
        return self._of_item(
            name, lambda connection, _, item_id: status.attempts(connection, item_id, limit=limit)
        )

    def items_after(self, after: int = 0, limit: int = 100) -> list[tuple[int, ItemSnapshot]]:
        """Return the next items in the order in which they were made, each with its number."""

        def read(connection: Connection, crawl_id: int) -> list[tuple[int, ItemSnapshot]]:
            numbers = stored_items.item_ids(connection, crawl_id, after=after, limit=limit)
            found = stored_items.snapshots(connection, numbers)
            return [(number, found[number]) for number in numbers if number in found]

        return self._of_crawl(read)

    def show(self, name: str, *, attempts: int = 10) -> dict[str, Any]:
        """Return all of an item as one document, as `scrapy itemgraph show --json` has it.

        Raises:
            NotFoundError: there is no such item, or its name stays taken.

        """

        def read(connection: Connection, crawl_id: int) -> dict[str, Any]:
            number = self._item(connection, crawl_id, name)
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

        return self._of_crawl(read)
