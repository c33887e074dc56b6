"""Feeds of a crawl, as one worker sees them: who writes them, and what is left to write."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from scrapy_itemgraph.connections import feed_locks
from scrapy_itemgraph.store import feed_exports as feeds
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.feed_locks import FeedLocks
    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.feed_exports import FeedItem, FeedState


class WorkerFeeds:
    """The feeds of one crawl."""

    def __init__(self, transactions: Transactions, process: OwnProcess) -> None:
        self._transactions = transactions
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._process = process
        self._led: set[int] = set()
        self._names: list[str] = []
        self._numbers: dict[int, int] = {}  # that feeds have now, by those that were given first

    @cached_property
    def _locks(self) -> FeedLocks:
        """The locks, in the session if there is one."""
        return feed_locks.of(self._process.session, self._transactions.connect_arguments)

    async def register(self, names: Sequence[str]) -> list[FeedState]:
        """Let feeds take part in the run, each known by its name."""

        def register(connection: Connection) -> list[FeedState]:
            crawls.own_crawl(connection, self._crawl_id)
            return feeds.register(connection, self._crawl_id, names)

        states = await self._call(register)
        self._names = list(dict.fromkeys(names))
        self._numbers = {state.id: state.id for state in states}
        return states

    def register_anew(self, connection: Connection) -> None:
        """Let them take part again in a database that may lack them; see `worker_recovery`."""
        if self._names:
            crawls.own_crawl(connection, self._crawl_id)
            states = feeds.register(connection, self._crawl_id, self._names)
            numbers = [state.id for state in states]
            feeds.fence(connection, numbers)
            self._numbers = dict(zip(self._numbers, numbers, strict=True))

    async def lead(self, feed_id: int) -> FeedState | None:
        """Become the one that writes a feed, if nobody does; return how far it has come."""
        if not await self.is_free(feed_id):
            return None
        number = self._numbers[feed_id]
        if not await self._locks.take(number):
            return None
        self._led.add(feed_id)
        return await self._call(feeds.take, number)

    async def is_free(self, feed_id: int) -> bool:
        """Tell whether nobody writes a feed, as of this moment."""
        return await self._call(feeds.is_free, self._numbers[feed_id])

    async def led(self) -> set[int]:
        """Return the feeds that are still ours to write."""
        if not await self._locks.stand():
            self._led = set()
        return self._led

    async def release(self) -> None:
        """Let others write; when it returns, they can."""
        self._led = set()
        await self._locks.release()

    async def read(
        self, feed_id: int, *, after_id: int = 0, limit: int, with_written: bool = False
    ) -> list[FeedItem]:
        """Return what is not written yet, and with `with_written` what is, by number."""
        return await self._call(
            feeds.read,
            self._numbers[feed_id],
            after_id=after_id,
            limit=limit,
            with_written=with_written,
            hot=True,
        )

    async def count(self, feed_id: int, most: int) -> int:
        """Count what is not written yet, up to `most`."""
        return await self._call(feeds.count, self._numbers[feed_id], most, hot=True)

    async def advance(
        self, state: FeedState, written: Sequence[int] = (), *, whole: bool = False
    ) -> bool:
        """Note how far a feed has come, and what is written; False if another one writes it."""
        return await self._call(feeds.advance, state, written, whole=whole, hot=True)

    async def mark_run(self, feed_id: int) -> None:
        """Have all that the run has kept written again."""

        def mark(connection: Connection) -> None:
            crawls.own_crawl(connection, self._crawl_id)
            feeds.mark_run(connection, self._crawl_id, self._numbers[feed_id])

        await self._call(mark)

    async def has_fresh(self, *, callbacks: Collection[str] | None) -> bool:
        """Tell whether there are results that a new run does not make again.

        Of plain callbacks these are the ones whose results are kept; None: all.
        """
        return await self._call(feeds.has_fresh, self._crawl_id, callbacks=callbacks)
