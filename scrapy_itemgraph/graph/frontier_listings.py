"""What a frontier has: crawls, queues, URLs and servers, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.model.frontier import KnownURL, Stats
from scrapy_itemgraph.store.admin import frontier_stats
from scrapy_itemgraph.store.frontier import listings, lookup
from scrapy_itemgraph.store.frontier.listings import Filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.store.frontier.lookup import Cursor, Scope


class FrontierListings:
    """Reads a frontier; what is unknown has nothing.

    Each raises DatabaseUnavailableError when the server was away for longer than the patience.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._call = transactions.call

    async def crawls(self) -> list[str]:
        """Return the crawls that have a queue."""
        return await self._call(listings.crawls, hot=True)

    async def nodes(self) -> list[str]:
        """Return the addresses of the servers that live."""
        return await self._call(listings.nodes, hot=True)

    async def queues(
        self, crawl: str, *, start: int, size: int, include_inactive: bool
    ) -> list[str]:
        """Return keys of a crawl's queues, `size` at most, from number `start` of them on."""

        def read(connection: Connection) -> list[str]:
            scope = lookup.find(connection, crawl, None)
            if scope is None:
                return []
            return listings.queues(
                connection, scope, start=start, size=size, include_inactive=include_inactive
            )

        return await self._call(read, hot=True)

    async def urls(
        self,
        crawl: str,
        key: str | None,
        *,
        start: int,
        size: int,
        filter: str | None = None,  # noqa: A002 - the API's name
        ignore_case: bool = False,
    ) -> AsyncIterator[list[KnownURL]]:
        """Yield URLs of a crawl or a queue, at most a thousand at a time, `size` in all.

        Those count that contain `filter`, from number `start` of them on.
        """
        found = await self._call(lookup.find, crawl, key, hot=True)
        if found is None:
            return
        wanted = Filter(filter, ignore_case)
        place: Cursor | None = found.start
        if filter is None:
            place = await self._passed(found, start)
            start = 0
        left = size
        while place is not None and left > 0:
            part = await self._call(listings.urls, crawl, found, place, wanted, hot=True)
            matching = part.urls[start : start + left]
            start = max(0, start - len(part.urls))
            left -= len(matching)
            place = part.next
            if matching:
                yield matching

    async def _passed(self, scope: Scope, number: int) -> Cursor | None:
        """Return the place so many URLs after the start; None: there are not so many."""
        place: Cursor | None = scope.start
        while place is not None and number > 0:
            step = min(number, listings.PASSED_OVER)
            place = await self._call(listings.passed, scope, place, step, hot=True)
            number -= step
        return place

    async def count(
        self,
        crawl: str,
        key: str | None,
        *,
        filter: str | None = None,  # noqa: A002
        ignore_case: bool = False,
    ) -> int:
        """Count the URLs of a crawl or a queue that contain `filter`, however many there are."""
        found = await self._call(lookup.find, crawl, key, hot=True)
        if found is None:
            return 0
        wanted = Filter(filter, ignore_case)
        step = listings.PASSED_OVER if filter is None else listings.COUNTED
        place, number = found.start, 0
        while True:
            after = await self._call(listings.passed, found, place, step, hot=True)
            last = found.end if after is None else after
            if after is not None and filter is None:
                number += step
            else:
                number += await self._call(listings.count, found, place, last, wanted, hot=True)
            if after is None:
                return number
            place = after

    async def url(self, crawl: str, key: str, url: str) -> KnownURL | None:
        """Return a URL of a queue; None: it is not known there."""
        name = frontier.item_name(url, key, frontier.key_of(url))
        plain = frontier.PREFIX + url

        def read(connection: Connection) -> KnownURL | None:
            scope = lookup.find(connection, crawl, None)
            if scope is None:
                return None
            found = listings.url(connection, crawl, scope, name)
            if found is None and name != plain:
                found = listings.url(connection, crawl, scope, plain)
                return found if found is not None and found.key == key else None
            return found

        return await self._call(read, hot=True)

    async def stats(self, crawl: str, key: str | None) -> Stats:
        """Return how many URLs and queues a crawl has, or how many URLs one of its queues has."""

        def read(connection: Connection) -> Stats:
            scope = lookup.find(connection, crawl, key)
            return Stats() if scope is None else frontier_stats.stats(connection, scope)

        return await self._call(read, hot=True)
