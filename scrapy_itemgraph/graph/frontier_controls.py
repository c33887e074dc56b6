"""What is set for queues of a frontier, and kept: delays, blocks, limits, pauses of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.frontier import MAX_SECONDS
from scrapy_itemgraph.store.frontier import controls, lookup
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions

logger = logs.logger(__name__)


class FrontierControls:
    """Sets when queues are served. What is unknown is left as it is; numbers are clipped."""

    def __init__(self, transactions: Transactions, own: Identity) -> None:
        self._call = transactions.call
        self._own = own

    async def set_delay(self, crawl: str, key: str | None, seconds: int) -> None:
        """Set how long a queue waits after it was served; without a key all that have no own.

        Raises:
            DatabaseUnavailableError: when the server was away for longer than the patience.

        """
        seconds = min(seconds, MAX_SECONDS)
        if key is None:
            found = await self._call(controls.set_default_delay, seconds, hot=True)
            for crawl_id in found:
                await self._call(controls.look_again, crawl_id, hot=True)
            return

        def set_it(connection: Connection) -> None:
            queue = lookup.find_queue(connection, crawl, key)
            if queue is not None:
                controls.set_delay(connection, queue.queue_id, seconds)

        await self._call(set_it, hot=True)

    async def block_until(self, crawl: str, key: str, moment: int) -> None:
        """Hand nothing out of a queue through a second; 0 or one that is past ends the block."""
        moment = min(moment, MAX_SECONDS)

        def block(connection: Connection) -> None:
            queue = lookup.find_queue(connection, crawl, key)
            if queue is not None:
                controls.block_until(connection, queue.queue_id, moment)

        await self._call(block, hot=True)

    async def set_limit(self, crawl: str, key: str, limit: int) -> None:
        """Hand nothing out of a queue once so many of its URLs are completed; 0: without limit.

        Raises:
            NotFoundError: there is no such queue.

        """
        limit = min(limit, MAX_SECONDS)

        def set_it(connection: Connection) -> None:
            queue = lookup.find_queue(connection, crawl, key)
            if queue is None:
                raise NotFoundError(f"the crawl {crawl!r} has no queue {key!r}")
            controls.set_limit(connection, queue, limit)

        await self._call(set_it, hot=True)

    async def set_active(self, is_active: bool, *, local: bool) -> None:
        """Have URLs handed out or not: by this server, or by all of the database."""
        process = self._own.id if local else None
        await self._call(controls.set_active, process, is_active=is_active, hot=True)
        which = "This server hands" if local else "All servers of the database hand"
        logger.warning("%s %s (SetActive)", which, "URLs out again" if is_active else "out nothing")

    async def is_active(self, *, local: bool) -> bool:
        """Tell whether this server hands URLs out, or all servers of the database do."""
        return await self._call(controls.is_active, self._own.id if local else None, hot=True)
