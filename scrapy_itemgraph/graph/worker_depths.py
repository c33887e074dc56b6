"""Depths of pages, as a worker of a crawl that tracks them sees to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.store.registry import crawl_depths, duties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.store.registry.duties import Duty

_LONGEST = 0.5  # seconds that shorter paths are passed on in one go, beside all else


class WorkerDepths:
    """Passes shorter paths on; `are_tracked` is so as of the last claim."""

    def __init__(self, transactions: Transactions) -> None:
        self.are_tracked = False
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id

    async def begin(self, limit: int | None) -> None:
        """Have the crawl track depths, with the limit that its code says."""
        await self._call(crawl_depths.begin, self._crawl_id, limit)
        self.are_tracked = True

    async def relax(self) -> bool:
        """Do what is due of depths, for half a second at most; tell whether there was anything."""
        until = time.monotonic() + _LONGEST
        did_any = False
        while await self._round():
            did_any = True
            if time.monotonic() > until:
                break
        return did_any

    async def _round(self) -> bool:
        """Do each duty once; tell whether one of them did something."""
        left: Sequence[Duty] = duties.OF_DEPTHS
        did_any = False
        while left:
            left, did = await self._call(self._do, left, hot=True, share=True)
            did_any = did_any or did
        return did_any

    def _do(self, connection: Connection, due: Sequence[Duty]) -> tuple[Sequence[Duty], bool]:
        done = duties.Round(crawl_id=self._crawl_id)
        left = duties.do(connection, due, done)
        return left, done.has_more
