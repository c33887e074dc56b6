"""Calls of who looks around: crawls from above, work page by page, items by what they have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.graph.crawl_transactions import Calls
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.admin import neighbours, overview, search, status, work_pages
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LookCalls(Calls):
    """Looks around in a crawl, and in the database's others."""

    def overview(
        self, name: str | None = None, *, after: str = "", limit: int = 100
    ) -> list[overview.CrawlOverview]:
        """Return how each of the database's crawls stands, by name from `after` on; or one."""
        return self._call(partial(overview.overview, name=name, after=after, limit=limit))

    def going_on(self) -> dict[str, Any]:
        """Return what goes on beside the crawl: as `sweeps`, `under_way` and `old_snapshot`."""
        return self._of_crawl(status.going_on)

    def work(
        self,
        task: str | None = None,
        *,
        tag: str | None = None,
        slot: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> work_pages.WorkPage:
        """Return a page of work that is "ready", "delayed", "claimed" or "held".

        Without a state it is outstanding work that nobody has claimed, in the order of its turn.
        With `tag` that of items which have it, for tasks that it calls for, claimed and held work
        left out. `after` is that of the page before.
        """

        def page(connection: Connection, crawl_id: int, task_id: int | None) -> work_pages.WorkPage:
            return work_pages.page(
                connection,
                crawl_id,
                task=task,
                task_id=task_id,
                tag=tag,
                slot=slot,
                state=state,
                after=after,
                limit=limit,
            )

        if task is None:
            return self._of_crawl(page, None)
        return self._of_task(task, page)

    def search(self, wanted: str, kind: str = "part", limit: int = 50) -> search.Found:
        """Return items among the newest 100,000: by "prefix" or "part" of a name, or JSON "path".

        An id or alias as a whole is found by `get`.
        """
        return self._of_crawl(search.search, wanted, kind=kind, limit=limit)

    def neighbours(self, name: str, limit: int = 50) -> neighbours.Neighbours:
        """Return which item made an item, and which items its last executions made."""
        return self._of_item(
            name, lambda c, crawl, item: neighbours.neighbours(c, crawl, item, limit=limit)
        )

    def set_nice(self, name: str, nice: int | None) -> None:
        """Let an item's work have its turn earlier (a lower number) or later; None: the task's."""
        input_checks.check_nice(nice)

        def set_nice(connection: Connection, crawl_id: int, item_id: int) -> None:
            crawls.share_crawl(connection, crawl_id)
            locked = stored_items.lock_items(connection, [item_id])
            stored_items.set_nice(connection, locked, nice)
            refresh.refresh(connection, locked)
            queues.wake_crawl(connection, crawl_id)

        self._of_item(name, set_nice)
