"""Locks of feeds: who writes one holds its lock, which dies with the process.

They stand in the process's session of the server. Behind a pooler in transaction mode there is
none: there an idle transaction holds them, on a connection of its own, which only who writes feeds
has.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import sqlalchemy as sa

from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.postgres import backend_activity, engine, sessions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.connections.session import Session

_KEY = "CAST('feeds'::regclass::oid AS int)"
_LOCK_IN_SESSION = sa.text(f"SELECT pg_try_advisory_lock({_KEY}, :feed)")
_UNLOCK = sa.text(f"SELECT pg_advisory_unlock({_KEY}, :feed)")
_LOCK_IN_TRANSACTION = f"SELECT pg_try_advisory_xact_lock({_KEY}, %s)"

# For a transaction that goes on, and holds locks behind a transaction pooler, too.
_NO_TIMEOUTS = f"""
    SELECT set_config('idle_in_transaction_session_timeout', '0', true),
        {engine.NO_TRANSACTION_TIMEOUT}"""

_SILENCE = 10.0  # seconds until a connection that does not answer is lost, as in `LASTING`

_LOST = (psycopg.Error, sa.exc.DBAPIError, DatabaseUnavailableError)


class FeedLocks(Protocol):
    """The locks of feeds that this worker has."""

    async def take(self, feed_id: int) -> bool:
        """Take a lock, if nobody has it; whether it is ours."""

    async def stand(self) -> bool:
        """Tell whether none that was taken has been lost."""

    async def release(self) -> None:
        """Give all up; when it returns, others can have them."""


def of(session: Session, connect: Mapping[str, Any]) -> FeedLocks:
    """Return the locks of a process; `connect` is what a connection beside the pool needs."""
    return SessionLocks(session) if session.has_session else TransactionLocks(connect)


class SessionLocks:
    """Locks in the session of the process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._taken: set[int] = set()
        self._number = 0  # of the connection in which they were taken

    async def take(self, feed_id: int) -> bool:
        """Take a lock, if nobody has it; whether it is ours."""
        if feed_id in self._taken:
            return await self.stand()

        def lock(connection: sa.Connection) -> tuple[bool, int]:
            is_ours = bool(connection.scalar(_LOCK_IN_SESSION, {"feed": feed_id}))
            return is_ours, self._session.number

        try:
            is_ours, number = await self._session.run(lock)
        except _LOST:
            await self.release()
            return False
        if self._taken and number != self._number:  # the others went with the last one
            await self.release()
            return False
        if is_ours:
            self._number = number
            self._taken.add(feed_id)
        return is_ours

    async def stand(self) -> bool:
        """Tell whether none that was taken has been lost."""

        def number(connection: sa.Connection) -> int:
            connection.exec_driver_sql("SELECT")
            return self._session.number

        if not self._taken:
            return True
        with contextlib.suppress(*_LOST):
            if await self._session.run(number) == self._number:
                return True
        await self.release()
        return False

    async def release(self) -> None:
        """Give all up; when it returns, others can have them."""
        taken, self._taken = self._taken, set()

        def unlock(connection: sa.Connection) -> None:
            if self._session.number == self._number:
                for feed_id in taken:
                    connection.execute(_UNLOCK, {"feed": feed_id})

        if taken:
            with contextlib.suppress(*_LOST):
                await self._session.run(unlock)


class TransactionLocks:
    """Locks in a transaction that stays open, on a connection of its own."""

    def __init__(self, connect: Mapping[str, Any]) -> None:
        self._connect = {**sessions.LASTING, **connect}
        self._lock: psycopg.AsyncConnection[Any] | None = None

    async def take(self, feed_id: int) -> bool:
        """Take a lock, if nobody has it; whether it is ours."""
        try:
            if self._lock is None:
                self._lock = await self._connected()
            with backend_activity.cut_after(_SILENCE, self._lock):
                cursor = await self._lock.execute(_LOCK_IN_TRANSACTION, [feed_id])
                (is_ours,) = await cursor.fetchone() or (False,)
        except psycopg.Error:
            await self.release()
            return False
        return bool(is_ours)

    async def stand(self) -> bool:
        """Tell whether none that was taken has been lost."""
        if self._lock is None:
            return True
        try:
            with backend_activity.cut_after(_SILENCE, self._lock):
                await self._lock.execute("SELECT")
        except psycopg.Error:
            await self.release()
            return False
        return True

    async def release(self) -> None:
        """Give all up; when it returns, others can have them."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with (
                contextlib.suppress(psycopg.Error),
                backend_activity.cut_after(_SILENCE, lock),
            ):
                await lock.rollback()
            with contextlib.suppress(psycopg.Error):
                await lock.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        lock: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
            # A statement with parameters of its own would leave a portal open, and a snapshot.
            cursor_factory=psycopg.AsyncClientCursor,
            **self._connect,
        )
        sessions.not_inherited.add(lock)
        await lock.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        with backend_activity.cut_after(_SILENCE, lock):
            await lock.execute(_NO_TIMEOUTS)
        return lock
