"""This process as the others of its database see it: its number, its lock and lease, its ears.

All kinds of processes use it alike: what a kind adds is how it registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.connections.identity import Identity
from scrapy_itemgraph.connections.lease import GivenUpError, Lease
from scrapy_itemgraph.connections.session import Session
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.registry import processes
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.session import News
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.store.registry.processes import NewProcess

logger = logs.logger(__name__)


class OwnProcess:
    """Registers this process, and has it live from `begin` to `close`."""

    def __init__(
        self,
        transactions: Transactions,
        kind: str,
        register: Callable[[Connection], NewProcess],
        *,
        identity: Identity | None = None,
        lease: timedelta,
        patience: timedelta,
        session_url: str | None = None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        """Take how the process registers in a transaction that is open.

        `identity` is where others read who the process is. `session_url` leads to a session beside
        a pooler in transaction mode. `on_replaced` is called when the process was given up for
        dead, before it registers anew.
        """
        self.identity = identity or Identity()
        self._transactions = transactions
        self._kind = kind
        self._register = register
        self._duration = lease
        self._patience = patience
        self._session_url = session_url
        self._on_replaced = on_replaced
        self._session: Session | None = None
        self._lease = Lease(
            self.identity,
            lease=lease,
            patience=patience,
            replace=self._replace,
            renew=self._renew,
        )

    @property
    def lives(self) -> bool:
        """Whether lock and lease stand, so that nobody takes over what this process has."""
        return self._lease.lives

    @property
    def session(self) -> Session:
        """The session, from `begin` on."""
        assert self._session is not None
        return self._session

    async def register(self, register: Callable[[Connection], NewProcess]) -> None:
        """Register for the first time, by a function that may do more in its transaction."""
        before = self.identity.id
        self.take(await self._transactions.call(register), instead_of=before)

    async def begin(self) -> None:
        """Take the lock, and listen and renew the lease from now on.

        A process that was given up for dead by then registers again: the server was away for longer
        than the lease, and others looked for the dead first.

        Raises:
            ConfigurationError: the session leads to another database.
            ItemGraphError: the database cannot be reached.

        """
        while True:
            url = self._session_url
            self._session = Session(
                self._transactions.engine.url if url is None else url,
                self._lease,
                patience=self._patience,
                watchdog=self._transactions.watchdog,
                is_known=url is None,
            )
            try:
                await self._session.start()
                break
            except GivenUpError:
                await self.register(self._register)
        if self._session_url is not None or not self._session.has_session:
            await self._transactions.use_one()

    def own_news(self) -> News:
        """Return where news for this very process is told, whatever its number is."""
        return self.session.subscribe(notify.of_process(self.identity.id))

    def take(self, new: NewProcess, *, instead_of: int | None = None) -> None:
        """Go on under a number whose registration is committed; see `Identity.take`."""
        before = self.identity.id
        if self.identity.take(new, instead_of=instead_of) and self._session is not None:
            self._session.rename(notify.of_process(before), notify.of_process(new.id))
            self._session.wake()

    def stop(self) -> None:
        """Renew the lease no more; the lock stays."""
        self._lease.stop()

    async def close(self) -> None:
        """Give the lock up, if it was taken."""
        self.stop()
        if self._session is not None:
            await self._session.close()

    async def _renew(self) -> bool:
        return await self._transactions.once(processes.renew, self.identity.id, self._duration)

    async def _replace(self, given_up: int) -> None:
        """Register anew who was given up for dead under a number, unless that is done by then."""
        await self._transactions.call(lambda _: None)  # on another server recovery does it
        if self.identity.id != given_up:
            return
        self._on_replaced()
        logger.warning(
            "This %s was given up for dead; it goes on as a new one, and what it was doing is done "
            "by others",
            self._kind,
        )

        def register(connection: Connection) -> NewProcess | None:
            return self._register(connection) if self.identity.id == given_up else None

        new = await self._transactions.call(register)
        if new is not None:
            self.take(new, instead_of=given_up)
