"""An engine that is awaited: SQLAlchemy's own, in greenlets, so that nothing blocks the loop.

`sqlalchemy.ext.asyncio` does the same for much more than is needed here, and loads the ORM: 8 MB of
each worker's memory, and 50 ms of its start.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.util import greenlet_spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

P = ParamSpec("P")
T = TypeVar("T")

_DRIVER = "postgresql+psycopg_async"


class AsyncConnection:
    """A connection in a transaction; `sync_connection` is for functions that `run_sync` calls."""

    def __init__(self, sync_connection: sa.Connection) -> None:
        self.sync_connection = sync_connection

    async def run_sync(
        self,
        function: Callable[Concatenate[sa.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function of a connection; where it waits for the server, the loop turns."""
        return await greenlet_spawn(partial(function, self.sync_connection, *args, **kwargs))


class AsyncEngine:
    """Connections of a pool; events are those of its `sync_engine`."""

    longest_idle = 0.0  # seconds after which the server ends an idle transaction; 0: never

    def __init__(self, url: sa.URL, **options: Any) -> None:
        self.url = url
        self.sync_engine = sa.create_engine(url.set(drivername=_DRIVER), **options)

    @property
    def dialect(self) -> sa.Dialect:
        """What the driver is like."""
        return self.sync_engine.dialect

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Take a connection for a transaction, which is committed unless an error is raised."""
        connection, transaction = await greenlet_spawn(_begun, self.sync_engine)
        try:
            yield AsyncConnection(connection)
        except BaseException:
            await greenlet_spawn(_end, connection, transaction, *sys.exc_info())
            raise
        else:
            await greenlet_spawn(_end, connection, transaction, None, None, None)

    async def dispose(self) -> None:
        """Close the connections that nobody has."""
        await greenlet_spawn(self.sync_engine.dispose)


def _begun(engine: sa.Engine) -> tuple[sa.Connection, sa.Transaction]:
    connection = engine.connect()
    try:
        return connection, connection.begin()
    except BaseException:
        connection.close()
        raise


def _end(connection: sa.Connection, transaction: sa.Transaction, *error: Any) -> None:
    """Commit, or roll back where there is an error; then give the connection back.

    Who is cancelled meanwhile loses the connection: SQLAlchemy does not use it any more.
    """
    try:
        transaction.__exit__(*error)
    finally:
        connection.close()
