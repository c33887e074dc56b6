"""URLs that crawlers get of a frontier: held and committed before they are sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.store.frontier import handouts
from scrapy_itemgraph.store.frontier.handouts import Search

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.frontier import HandedURL, Request

_DAY = 86_400  # seconds
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
        search = Search(request.queues or _ALL)
        while not search.is_over:
            urls, search = await self._transactions.call(
                handouts.step, request, self._own.id, search, hot=True
            )
            if urls:
                yield urls

    async def give_back(self, urls: Sequence[HandedURL]) -> None:
        """Let URLs that were not sent be handed out again."""
        if urls:
            await self._transactions.call(handouts.give_back, urls, hot=True)

    async def put_off(self, url: HandedURL) -> None:
        """Have a URL that cannot be sent neither held nor handed out for a day."""
        later = int(time.time()) + _DAY
        await self._transactions.call(handouts.give_back, [url], later, hot=True)
