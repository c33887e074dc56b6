"""URLs of a frontier that are deleted: of a queue, of a crawl, or those that are old."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.counts import many
from scrapy_itemgraph.store.frontier import deletions, lookup
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.store.frontier.lookup import Cursor, Scope

logger = logs.logger(__name__)

_DAY = 86_400  # seconds
_MOST_DAYS = 1_000_000  # no URL is older


class FrontierDeletions:
    """Deletes URLs; other items of a crawl stay. What is unknown has none.

    Each raises DatabaseUnavailableError when the server was away for longer than the patience; what
    was begun goes on by `resume`.
    """

    def __init__(self, transactions: Transactions, own: Identity) -> None:
        self._call = transactions.call
        self._own = own
        self._busy: Counter[int] = Counter()  # how many deletions are under way, by crawls

    async def delete_crawl(self, crawl: str) -> int:
        """Delete all queues of a crawl with their URLs; return how many URLs they had."""
        number = await self._delete(await self._call(lookup.find, crawl, None, hot=True))
        logger.info("Deleted the crawl %s: %s", crawl, many(number, "URL"))
        return number

    async def delete_queue(self, crawl: str, key: str) -> int:
        """Delete a queue with its URLs; return how many it had."""
        number = await self._delete(await self._call(lookup.find, crawl, key, hot=True))
        logger.info("Deleted the queue %r of the crawl %s: %s", key, crawl, many(number, "URL"))
        return number

    async def _delete(self, scope: Scope | None) -> int:
        if scope is None:
            return 0
        number = 0
        self._busy[scope.crawl_id] += 1
        try:
            while True:
                begun = await self._call(deletions.delete_few, scope, self._own.id, hot=True)
                number += begun.deleted
                if begun.is_done:
                    return number
                number += await self._steps(scope, None)
        finally:
            self._busy[scope.crawl_id] -= 1

    async def purge(self, crawl: str, key: str | None, days: int) -> int:
        """Delete the URLs of a crawl or a queue that are older; return how many. Queues stay."""
        scope = await self._call(lookup.find, crawl, key, hot=True)
        if scope is None:
            return 0
        seconds = min(days, _MOST_DAYS) * _DAY
        before = await self._call(deletions.second_before, seconds, hot=True)
        number = await self._steps(scope, before)
        what = f"the crawl {crawl}" if key is None else f"the queue {key!r} of the crawl {crawl}"
        urls = many(number, "URL")
        logger.info("Purged %s: %s, all that are older than %s", what, urls, many(days, "day"))
        return number

    async def _steps(self, scope: Scope, before: int | None) -> int:
        """Delete what there is now, a thousand at a time."""
        place: Cursor | None = scope.start
        number = 0
        while place is not None:
            step = await self._call(deletions.delete_step, scope, place, before, hot=True)
            number += step.deleted
            place = step.next
        return number

    async def resume(self) -> None:
        """Go on with deletions that a server began which is gone, or that this one gave up."""
        while found := await self._left_over():
            for scope in found:
                await self._delete(scope)

    async def _left_over(self) -> list[Scope]:
        busy = [crawl for crawl, number in self._busy.items() if number]
        return await self._call(deletions.take_over, self._own.id, busy, hot=True)
