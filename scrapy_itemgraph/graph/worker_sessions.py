"""Sessions of a crawl, as one worker sees them: cookies, the spider's state, and logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.store import cookies as stored_cookies
from scrapy_itemgraph.store import logins, queues, spider_state

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.cookies import Cookie


class WorkerSessions:
    """The sessions of one crawl."""

    def __init__(self, transactions: Transactions, own: Identity) -> None:
        self._own = own
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._state_at: datetime | None = None

    async def load_cookies(
        self, wanted: Mapping[tuple[str, str], datetime | None]
    ) -> tuple[list[Cookie], datetime | None]:
        """Return the cookies that could be sent from a jar to a host, and when they were read.

        Of a host that was read before, given when, only what may have changed since.
        """
        return await self._call(stored_cookies.load, self._crawl_id, dict(wanted), hot=True)

    async def load_state(self) -> dict[str, str | None]:
        """Return what of the spider's saved state may have changed since it was asked for last."""
        state, self._state_at = await self._call(
            spider_state.load, self._crawl_id, since=self._state_at
        )
        return state

    def forget_state(self) -> None:
        """Have all of the saved state read again the next time."""
        self._state_at = None

    async def begin_login(self, generation: int) -> logins.Turn:
        """Become the one that logs in for all; whether that is so, and the current generation."""
        return await self._call(logins.begin, self._crawl_id, self._own.id, generation)

    async def end_login(self, *, renewed: bool) -> int:
        """Let the others go on; return the current generation."""

        def end(connection: Connection) -> int:
            generation = logins.end(connection, self._crawl_id, self._own.id, renewed=renewed)
            queues.wake_crawl(connection, self._crawl_id)
            return generation

        return await self._call(end)
