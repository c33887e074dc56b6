"""`graph.lookup`: items by what they have, work and items page by page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.graph.crawl_transactions import item_of
from scrapy_itemgraph.model import page_names, tasks
from scrapy_itemgraph.store import page_search
from scrapy_itemgraph.store.admin import (
    done_lists,
    item_pages,
    item_search,
    neighbours,
    status,
    work_pages,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Lookup:
    """Finds items and work of a crawl, as much at a time as a person looks at."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

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
        """Return a page of work that is "ready", "delayed", "claimed", "held" or "gone".

        Without a state it is outstanding work that nobody has claimed, in the order of its turn.
        With `tag` that of items which have it, for tasks that it calls for, claimed and held work
        left out. `after` is that of the page before.

        Raises:
            NotFoundError: there is no such task, or the tag is misspelt.

        """
        if after is None:
            self._transactions.check_tag(tag)

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
            return self._transactions.of_crawl(page, None)
        return self._transactions.of_task(task, page)

    def search(self, wanted: str, kind: str = "part", limit: int = 50) -> item_search.Found:
        """Return items among the newest 100,000: by "prefix" or "part" of a name, or JSON "path".

        An id or alias as a whole is found by `get`.
        """
        return self._transactions.of_crawl(item_search.search, wanted, kind=kind, limit=limit)

    def neighbours(self, name: str, limit: int = 50) -> neighbours.Neighbours:
        """Return which item made an item, and which items its last executions made."""
        return self._transactions.of_item(
            name, lambda c, crawl, item: neighbours.neighbours(c, crawl, item, limit=limit)
        )

    def page(self, name: str) -> page_search.FoundPage:
        """Return an item by an id, an alias, or the URL of a page as a person has it.

        The method may stand before a URL and the callback behind it: `POST http://a.example/ list`.
        Without a method a page of GET is meant, if there is one.

        Raises:
            NotFoundError: there is none, and `did_you_mean` has what is written alike; or several
                pages have the URL, and it lists them.

        """
        return self._transactions.of_crawl(item_of, name)

    def written(self, works: Sequence[page_names.Work]) -> list[str]:
        """Return what a person writes for the item of each work, so that `page` finds it alone.

        Of a page that is its URL, with its method and callback where these tell it apart; else the
        item's id.
        """

        def read(connection: Connection, crawl_id: int) -> list[str]:
            return [_written(connection, crawl_id, one) for one in works]

        return self._transactions.of_crawl(read)

    def in_crawls(self, name: str) -> list[page_search.FoundPage]:
        """Return the same items of all crawls of the database."""
        return self._transactions.call(lambda connection: page_search.find(connection, None, name))

    def attempts(self, name: str, limit: int = 10) -> list[status.Attempt]:
        """Return the last attempts at an item's tasks, the latest first."""
        return self._transactions.of_item(
            name, lambda connection, _, item_id: status.attempts(connection, item_id, limit=limit)
        )

    def items(
        self,
        *,
        task: str | None = None,
        tag: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> item_pages.ItemPage:
        """Return a page of items in the order in which they were made, or the newest first.

        With `task` their tags call for it. With `state` it, or a task of theirs, is "never run",
        "fresh", "stale", "held" or "gone"; with `since` they were made or changed, or a task of
        theirs completed, from then on. With either a page ends after 20,000 items that were looked
        at. `after` is that of the page before.

        Raises:
            OperationError: there is no such state.
            NotFoundError: there is no such task, or the tag is misspelt.

        """
        if not after:
            self._transactions.check_tag(tag)

        def read(connection: Connection, crawl_id: int, number: int | None) -> item_pages.ItemPage:
            return item_pages.page(
                connection,
                crawl_id,
                item_pages.Wanted(tag, state, since, number),
                after=after,
                limit=limit,
                newest_first=newest_first,
            )

        if task is None:
            return self._transactions.of_crawl(read, None)
        return self._transactions.of_task(task, read)

    def done(
        self,
        task: str | None = None,
        *,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[done_lists.Done]:
        """Return executions that ended well, the latest first, each with how many items it scraped.

        `before` is the number of the last one that was shown. They are looked for among the last
        50,000 attempts of the database.

        Raises:
            NotFoundError: there is no such task.

        """
        read = partial(done_lists.done, since=since, before=before, limit=limit)
        if task is None:
            return self._transactions.of_crawl(read, None)
        return self._transactions.of_task(task, read)


def _written(connection: Connection, crawl_id: int, work: page_names.Work) -> str:
    """Return the first of what may be written for a work's item that leads to it alone."""
    item, callback = work.item, tasks.callback_of_tag(tasks.callback_tag(work.task))
    for one in page_names.written(item, work.url, work.method, callback):
        if one == item or _finds(connection, crawl_id, one) == [item]:
            return one
    return item


def _finds(connection: Connection, crawl_id: int, given: str) -> list[str]:
    return [one.item for one in page_search.find(connection, crawl_id, given)]
