"""Transactions of a crawl: awaited, done again after what passes, patient without a server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph import apply, database, registry, values
from scrapy_itemgraph.exceptions import DatabaseUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_AT_THE_END = 5.0
_LONGEST_PAUSE = 5.0


class Transactions:
    """Runs functions of a connection, each in a transaction of its own."""

    def __init__(self, engine: AsyncEngine, patience: timedelta) -> None:
        self.crawl_id = 0
        self.engine = engine
        self._patience = patience.total_seconds()
        self._is_cut_off = False

    def hurry(self) -> None:
        """Wait for a server that is gone a short time only, for the crawl ends."""
        self._patience = min(self._patience, _PATIENCE_AT_THE_END)

    async def call(
        self,
        function: Callable[Concatenate[Connection, P], T],
        *args: Any,
        hot: bool = False,
        share: bool = False,
        **kwargs: Any,
    ) -> T:
        """Run a function; `hot` with flat plans, `share` while the crawl's tasks stay as they are.

        Raises:
            DatabaseUnavailableError: when the server was away for longer than the patience.

        """

        def within(connection: Connection) -> T:
            if hot:
                database.hot_path(connection)
            if share:
                registry.share_crawl(connection, self.crawl_id)
            return function(connection, *args, **kwargs)

        return await self.patiently(within)

    async def patiently(self, function: Callable[[Connection], T]) -> T:
        """Run a function; again after what passes, and for a while without a server."""
        began, pause = time.monotonic(), 0.1
        while True:
            try:
                with database.errors(self.engine.url):
                    answer = await self.once(function)
            except apply.MovedNamesError:
                continue
            except DBAPIError as error:
                if not database.is_passing(error):
                    raise
                await asyncio.sleep(random.uniform(0, 0.05))
            except DatabaseUnavailableError as error:
                if time.monotonic() - began >= self._patience:
                    raise
                self._say_once_that_we_wait(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._say_that_it_answers()
                return answer

    async def once(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function once."""
        async with self.engine.begin() as connection:
            return await connection.run_sync(function, *args, **kwargs)

    def _say_once_that_we_wait(self, error: DatabaseUnavailableError) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            logger.warning(
                "%s The crawl waits for it up to %s (ITEMGRAPH_PATIENCE), and then goes on where "
                "it was",
                error,
                values.format_period(self._patience),
                extra={"action": "database_gone"},
            )

    def _say_that_it_answers(self) -> None:
        if self._is_cut_off:
            self._is_cut_off = False
            logger.info("The database answers again", extra={"action": "database_back"})
