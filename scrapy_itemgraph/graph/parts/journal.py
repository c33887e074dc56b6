"""`graph.journal`: the scraped items that were kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import DatabaseError, NotFoundError
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import scraped_items
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.feed_exports import Kept

LOCK_TIMEOUT = "55P03"
_PAGE = 500
_SETTLE_MS = 10_000  # who waits for longer would hold up the workers that wait behind


class Journal:
    """The scraped items that were kept, in the order of their commits."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def read(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        item_classes: Sequence[str] = (),
    ) -> Iterator[Kept]:
        """Go through the scraped items that were kept, a page at a time, in one snapshot.

        `since` is the first moment that counts, `until` the first that does not any more.

        Raises:
            NotFoundError: when nothing of one of the classes is kept.

        """

        def check(connection: Connection, crawl_id: int) -> int:
            known = scraped_items.classes(connection, crawl_id) if item_classes else {}
            for name in item_classes:
                if name not in known:
                    raise NotFoundError(
                        f"no item of the class {name!r} is kept{closest(name, known)}; "
                        f"there are items of {', '.join(known) or 'none yet'}"
                    )
            return crawl_id

        return self._pages(self._transactions.of_crawl(check), since, until, item_classes)

    def _pages(
        self,
        crawl_id: int,
        since: datetime | None,
        until: datetime | None,
        item_classes: Sequence[str],
    ) -> Iterator[Kept]:
        read = partial(
            scraped_items.read,
            crawl_id=crawl_id,
            limit=_PAGE,
            since=since,
            until=until,
            item_classes=item_classes,
        )
        after = 0
        with self._transactions.snapshot() as connection:
            while rows := read(connection, after_id=after):
                self._transactions.show(connection)
                yield from rows
                after = rows[-1].number

    def page(
        self,
        after: int = 0,
        limit: int = 100,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        item_classes: Sequence[str] = (),
    ) -> list[Kept]:
        """Return the next scraped items that were kept, by number, as `read` has them."""
        read = partial(
            scraped_items.read,
            after_id=after,
            limit=limit,
            since=since,
            until=until,
            item_classes=item_classes,
        )
        return self._transactions.of_crawl(read)

    def count(self) -> int:
        """Count the scraped items that were kept."""
        return self._transactions.of_crawl(scraped_items.count)

    def settled(self) -> datetime:
        """Wait for the commits under way to end, and return the moment at which they had.

        What was kept before it is in the journal, and all that follows will be kept after it.
        """

        def settled(connection: Connection, crawl_id: int) -> datetime:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SETTLE_MS}")
            try:
                crawls.own_crawl(connection, crawl_id)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != LOCK_TIMEOUT:
                    raise
                raise DatabaseError(
                    f"a transaction of the crawl {self._transactions.crawl!r} has been open for "
                    f"{_SETTLE_MS} ms; try again, and look for a suspended worker with "
                    "`scrapy itemgraph status`"
                ) from None
            moment: datetime = connection.execute(engines.NOW).scalar_one()
            return moment

        return self._transactions.of_crawl(settled)
