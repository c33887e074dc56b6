"""`graph.depths`: how deep the crawl's pages are by the shortest of their paths."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.store.admin import depth_reports
from scrapy_itemgraph.store.registry import crawl_depths

if TYPE_CHECKING:
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions

MOST = 1_000_000  # a limit


class Depths:
    """The least depths of the crawl's pages, where it tracks them, and how deep they may be."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def standing(self) -> depth_reports.DepthStanding | None:
        """Return the limit, and how many pages have which depth; None: depths are not tracked."""
        return self._transactions.of_crawl(depth_reports.standing)

    def path(self, name: str) -> list[depth_reports.PathStep]:
        """Return the least path to a page, by its id, an alias or its URL, from its beginning.

        Raises:
            NotFoundError: there is no such page.

        """
        return self._transactions.of_item(
            name, lambda connection, _, item: depth_reports.path(connection, item)
        )

    def set_limit(self, limit: int | None, *, by: str) -> None:
        """Say how deep pages may be; None: as deep as they are. Depths are tracked from now on.

        What is deeper is kept, and freed when a shorter path or a higher limit comes; what is
        claimed already ends as it is. It counts from now on in the place of DEPTH_LIMIT.

        Raises:
            OperationError: it is below 0, or above a million.

        """
        if limit is not None and not 0 <= limit <= MOST:
            raise OperationError(
                f"pages may be 0 to {MOST:,} links deep, and not {limit:,}; inf says no limit"
            )
        self._transactions.of_crawl(partial(crawl_depths.set_limit, limit=limit, by=by))

    def find_anew(self) -> None:
        """Have all depths found anew, from the links that are known; workers do it step by step.

        Depths only fall by themselves: where a page was deleted, or its links went, those behind it
        keep the depth that they had by it.

        Raises:
            OperationError: depths are not tracked.

        """
        self._transactions.of_crawl(crawl_depths.find_anew)
