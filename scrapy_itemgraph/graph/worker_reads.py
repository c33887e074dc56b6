"""What a worker reads of its crawl's graph, for callbacks and for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import fresh_lists, progress_reports, status

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.snapshots import ItemSnapshot


class WorkerReads:
    """Reads of one crawl, each in a transaction of its own."""

    def __init__(self, transactions: Transactions) -> None:
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id

    async def get_item(self, name: str) -> ItemSnapshot | None:
        """Return an item by any of its names, as it is committed."""
        return await self._call(stored_items.named, self._crawl_id, name, hot=True)

    async def get_metadata(
        self, name: str, task: str, *, only_fresh: bool = False
    ) -> dict[str, Any] | None:
        """Return a task's metadata of an item, as it is committed; None when there is none."""

        def get(connection: Connection) -> dict[str, Any] | None:
            item_id = stored_items.resolve(connection, self._crawl_id, name)
            if item_id is None:
                return None
            for result in status.results(connection, self._crawl_id, item_id):
                if result.task == task and result.version is not None:
                    is_wanted = result.state == "fresh" or not only_fresh
                    return result.metadata if is_wanted else None
            return None

        return await self._call(get, hot=True)

    async def sweeps(self) -> list[progress_reports.Sweep]:
        """Return the open sweeps, and how far they are."""
        return await self._call(progress_reports.sweeps, self._crawl_id)

    async def count_waiting(self) -> int:
        """Count the work that nobody has claimed, up to 100,000."""
        return await self._call(progress_reports.waiting, self._crawl_id)

    async def fresh_lists(self, run: int) -> list[str]:
        """Return the callbacks whose pages a run left alone, if it has found nothing new."""
        return await self._call(fresh_lists.fresh_lists, self._crawl_id, run)

    async def summary(self) -> status.Summary:
        """Count the crawl for a log line."""
        return await self._call(status.summary, self._crawl_id, hot=True)
