"""URLs that crawlers get of a frontier: held and committed before they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.store.frontier import handouts
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.frontier import HandedURL, Request
    from scrapy_itemgraph.store.frontier.handouts import Chunk, Crawl

_ALL = 2**31  # queues: no limit


class FrontierHandouts:
    """Hands out URLs."""

    def __init__(self, transactions: Transactions, own: Identity) -> None:
        self._transactions = transactions
        self._own = own

    async def hand_out(self, request: Request) -> AsyncIterator[list[HandedURL]]:
        """Hand out URLs, a thousand at a time; nobody else gets them for as long as is asked.

        Each queue whose turn it is is looked into once, those first that waited longest.

        Raises:
            DatabaseUnavailableError: when the server was away for longer than the patience.

        """
        call = self._transactions.call
        found = await call(handouts.crawls_of, request, self._own.id, hot=True)
        room = request.queues or _ALL
        for crawl in found:
            if room <= 0:
                return
            began = await call(self._staged(crawl), hot=True)
            cut: Mapping[int, int] = {}
            is_last, looked_at = False, 1
            while not is_last and (room > 0 or cut):
                take = self._taken(
                    crawl, request, began=began, room=room, looked_at=looked_at, cut=cut
                )
                chunk = await call(take, hot=True)
                room -= chunk.queues
                looked_at = 10 * max(looked_at, room)  # of the first too little was handed out
                cut, is_last = chunk.cut, chunk.is_last
                if chunk.urls:
                    yield chunk.urls

    @staticmethod
    def _staged(crawl: Crawl) -> Callable[[Connection], datetime]:
        def stage(connection: Connection) -> datetime:
            crawls.share_crawl(connection, crawl.id)
            return handouts.stage(connection, crawl.id)

        return stage

    @staticmethod
    def _taken(crawl: Crawl, request: Request, **given: Any) -> Callable[[Connection], Chunk]:
        def take(connection: Connection) -> Chunk:
            crawls.share_crawl(connection, crawl.id)
            return handouts.take(connection, crawl, request, **given)

        return take

    async def give_back(self, urls: Sequence[HandedURL]) -> None:
        """Let URLs that were not sent be handed out again."""
        if urls:
            await self._transactions.call(handouts.give_back, urls, hot=True)
