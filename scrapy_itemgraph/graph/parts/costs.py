"""`graph.costs`: how many pages an act will have fetched, told before it is done."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

from scrapy_itemgraph.model.failure_filters import FailureFilter, FailureFilters
from scrapy_itemgraph.store import gone_pages
from scrapy_itemgraph.store.admin import costs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Costs:
    """Counts the pages that an act frees, up to a thousand, and changes nothing."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def of_handle(self, **filters: Unpack[FailureFilters]) -> costs.Cost:
        """Return what `failures.handle` of these failures has fetched.

        Where a type, a text or a moment is asked, 5,000 open failures are looked at.
        """
        which = FailureFilter(**filters)
        return self._transactions.of_known(which.task, partial(costs.of_failures, which=which))

    def of_handle_led(self, name: str) -> costs.Cost:
        """Return what `failures.handle(led_to=NAME)` has fetched, but for the page of that name.

        Raises:
            NotFoundError: there is no such page.

        """

        def count(connection: Connection, crawl_id: int, item: int) -> costs.Cost:
            return costs.of_led(connection, crawl_id, [item])

        return self._transactions.of_item(name, count)

    def of_handle_gone(self, task: str | None = None, *, item: str | None = None) -> costs.Cost:
        """Return what `failures.handle_gone` has fetched.

        Raises:
            NotFoundError: there is no such task, or no such item.

        """
        if item is None:
            return self._transactions.of_known(task, partial(costs.of_gone, task=task))

        def count(connection: Connection, _: int, number: int) -> costs.Cost:
            return costs.Cost(int(bool(gone_pages.of_item(connection, number, task=task))))

        return self._transactions.of_item(item, count)

    def of_expire(self, task: str | None = None, *, tag: str | None = None) -> costs.Cost:
        """Return what `tasks.expire` has fetched; it looks at pages until a thousand have results.

        Raises:
            NotFoundError: there is no such task, or the tag is misspelt.

        """
        self._transactions.check_tag(tag)
        pages = 0
        following: int | None = 0
        while following is not None and pages < costs.MANY:
            step = partial(costs.of_results, task=task, tag=tag, after=following)
            found = self._transactions.of_known(task, step)
            pages, following = pages + len(found.names), found.next
        return costs.Cost(min(pages, costs.MANY), pages >= costs.MANY)

    def of_depth(self, limit: int | None) -> costs.Cost:
        """Return how many pages come within the depth by `depths.set_limit`."""
        return self._transactions.of_crawl(partial(costs.of_limit, limit=limit))
