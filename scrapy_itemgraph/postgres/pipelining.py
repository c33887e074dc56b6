"""Statements sent ahead: while PostgreSQL does one of many, the next is made ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sqlalchemy.util import await_only, greenlet_spawn

from scrapy_itemgraph.postgres.engine import SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from sqlalchemy import Connection, CursorResult, TextClause

    Then = Callable[[CursorResult[Any]], None]

_TURNS = 4  # of the event loop, in which a statement of a thousand rows is sent


class Pipeline:
    """Executes statements in order, each while its caller goes on; one is under way at a time.

    As a context manager it ends when all are done. Nothing else may use the connection meanwhile.
    Where all `rows` go with one statement, or the connection has no event loop, there is nothing to
    gain: then each is done when `execute` returns.
    """

    def __init__(self, connection: Connection, rows: int) -> None:
        self._connection = connection
        driver = connection.connection.dbapi_connection
        self._is_ahead = rows > SLICE and hasattr(driver, "run_async")
        self._sent: tuple[asyncio.Task[CursorResult[Any]], Then | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wait()

    def execute(
        self, statement: TextClause, given: Mapping[str, Any], then: Then | None = None
    ) -> None:
        """Execute a statement after those before it, and have `then` called with its result."""
        self._wait()
        if self._is_ahead:
            self._sent = await_only(self._send(statement, given)), then
            return
        result = self._connection.execute(statement, given)
        if then is not None:
            then(result)

    def _wait(self) -> None:
        """Wait for the statement under way, and raise what it raised."""
        if self._sent is not None:
            (task, then), self._sent = self._sent, None
            result = await_only(task)
            if then is not None:
                then(result)

    async def _send(
        self, statement: TextClause, given: Mapping[str, Any]
    ) -> asyncio.Task[CursorResult[Any]]:
        execution = greenlet_spawn(self._connection.execute, statement, given)
        task = asyncio.ensure_future(execution)
        try:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return task
