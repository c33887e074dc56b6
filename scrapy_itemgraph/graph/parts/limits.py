"""`graph.limits`: rates, delays and blocks that work keeps to, those of slots among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import limit_changes, limit_reports

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.rates import RateLimit


class Limits:
    """Lists the limits that work of all crawls keeps to, and changes them."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def block(
        self, slot: str, *, until: datetime | None = None, for_: timedelta | None = None
    ) -> limit_changes.Changed:
        """Let nothing start in a slot until a moment, or for a period from now.

        Raises:
            OperationError: when that is past, or more than a hundred years away.

        """
        return self._transactions.call(
            lambda c: limit_changes.block(c, slot, until=until, for_=for_)
        )

    def unblock(self, slot: str) -> limit_changes.Changed:
        """End a slot's block, be it a person's or one that the site asked for.

        Raises:
            NotFoundError: when no work has ever named the slot.

        """
        return self._transactions.call(lambda c: limit_changes.unblock(c, slot))

    def set_delay(self, slot: str, seconds: float | None) -> limit_changes.Changed:
        """Set the least seconds between two starts in a slot; None takes that back.

        Raises:
            OperationError: when it is not above 0, or more than a day.

        """
        return self._transactions.call(lambda c: limit_changes.set_delay(c, slot, seconds))

    def set_rate(self, name: str, rate: RateLimit | str | None) -> limit_changes.Changed:
        """Set the rate and concurrency of a limit in place of the code's; None: as in the code.

        Raises:
            NotFoundError: for a limit that no task declares; slots are made.
            OperationError: when it is no rate.

        """
        return self._transactions.call(lambda c: limit_changes.set_limit(c, name, rate))

    def list(self, *, of_crawl: bool = False, limit: int = 100) -> list[limit_reports.LimitState]:
        """Return the limits with names, then slots, those with the most work first.

        With `of_crawl` only those that this crawl's work keeps to, or kept to within 30 days;
        `limit` is of the slots.
        """

        def listed(connection: Connection, crawl_id: int | None) -> list[limit_reports.LimitState]:
            engines.hot_path(connection)
            return limit_reports.listed(connection, crawl_id=crawl_id, limit=limit)

        if of_crawl:
            return self._transactions.of_crawl(listed)
        return self._transactions.call(lambda connection: listed(connection, None))
