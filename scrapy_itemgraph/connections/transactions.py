"""Transactions: awaited by a worker, or blocking for a command; done again after what passes.

What passes is said in `postgres.errors`: a deadlock for both; that somebody ended a transaction for
a worker alone, for who sits before a command may have wanted that.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.connections.awaited_answers import CRAWL_WAITS, WorkerWatchdog
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors, pipelining
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from sqlalchemy import Connection, Engine

    from scrapy_itemgraph.postgres.async_engine import AsyncConnection, AsyncEngine

logger = logs.logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_AT_THE_END = 5.0  # seconds
_LONGEST_JITTER = 0.05  # seconds before a transaction is done again
_TRIES = 10  # of a blocking transaction that others' deadlocks end
# A database is far away if the quickest of the first transactions took so many seconds. With two
# connections claims, commits, upkeep and limits would wait for each other.
_FAR = 0.01
_FIRST = 10
# In an outage, in seconds: at first, at last, and what nobody is woken from.
_FIRST_PAUSE, _LONGEST_PAUSE, _LEAST_PAUSE = 0.1, 5.0, 0.1


class _NewServerError(Exception):
    """A transaction began on another server than the ones before it, or on one started again."""


class Transactions:
    """Runs functions of a connection, each in a transaction of its own.

    On a server that is another one than before, or was started again, nothing runs before
    `recover` has: it is awaited, and uses `unchecked`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        patience: timedelta,
        waits: str = CRAWL_WAITS,
        *,
        at_once: int = engines.POOL_SIZE,
        more_when_far: int = 0,
    ) -> None:
        """Use an engine with so many connections `at_once`, and more of a database far away.

        `waits` is what people are told while the server is away.
        """
        self.crawl_id = 0
        self.engine = engine
        self._patience = patience.total_seconds()
        self._waits = waits
        self._is_cut_off = False
        self._answers = asyncio.Event()
        # Whoever waits for a connection waits here and not in the pool, which has a time-out.
        self._connections = at_once
        self._room = asyncio.Semaphore(at_once)
        self._more_when_far = more_when_far
        self._to_time = _FIRST if more_when_far else 0  # transactions
        self._quickest = math.inf  # of those timed, in seconds
        self.watchdog = WorkerWatchdog(engine, self._patience, waits)
        self._is_ending = False
        self._given_up: DatabaseUnavailableError | None = None
        self.recover: Callable[[], Awaitable[None]] | None = None
        self._recovering = asyncio.Lock()
        self._server: Any = None  # which one the transactions are on
        self._next_server: Any = None  # while `recover` has not looked at it to the end

    @property
    def connect_arguments(self) -> dict[str, Any]:
        """What a connection beside the pool needs."""
        return dict(self.engine.dialect.create_connect_args(self.engine.url)[1])

    async def use_one(self) -> None:
        """Use one connection at a time from now on."""
        self._to_time = 0
        for _ in range(self._connections - 1):
            await self._room.acquire()

    def hurry(self) -> None:
        """Wait a short time only for a server that is gone, and once, for the crawl ends."""
        self._is_ending = True
        self._patience = min(self._patience, _PATIENCE_AT_THE_END)
        self.watchdog.hurry(self._patience)

    async def close(self) -> None:
        """Give up the connections."""
        await self.watchdog.close()
        await self.engine.dispose()

    async def call(
        self,
        function: Callable[Concatenate[Connection, P], T],
        *args: Any,
        hot: bool = False,
        share: bool = False,
        **kwargs: Any,
    ) -> T:
        """Run a function; `hot` with flat plans and pipelined.

        With `share` the crawl's tasks stay as they are meanwhile.

        Raises:
            DatabaseUnavailableError: when the server was away for longer than the patience.

        """

        def within(connection: Connection) -> T:
            if share:
                crawls.share_crawl(connection, self.crawl_id)
            return function(connection, *args, **kwargs)

        return await self.patiently(within, hot=hot)

    async def patiently(self, function: Callable[[Connection], T], *, hot: bool = False) -> T:
        """Run a function; again after what passes, and for a while without a server."""
        if self._given_up is not None:
            raise self._given_up
        began, pause = time.monotonic(), _FIRST_PAUSE

        def within(connection: Connection) -> T:
            self._check_server(connection)
            return function(connection)

        while True:
            try:
                await self._recover()
                return await self._answer(within, hot=hot)
            except (apply.MovedNamesError, _NewServerError, pipelining.OtherServerError):
                continue
            except DBAPIError as error:
                if not errors.is_passing(error):
                    raise
                await asyncio.sleep(random.uniform(0, _LONGEST_JITTER))
            except DatabaseUnavailableError as error:
                if time.monotonic() - began >= self._patience:
                    self._given_up = error if self._is_ending else None
                    raise
                self._say_once_that_we_wait(error)
                await self._pause(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _check_server(self, connection: Connection) -> None:
        server = connection.info[engines.SERVER]
        if self._server is None:
            self._server = server
        elif server != self._server:
            self._next_server = server
            raise _NewServerError

    async def _recover(self) -> None:
        """Have it looked at what became of the database, if it is on another server now."""
        if self._next_server is None:
            return
        async with self._recovering:
            if self._next_server is None:
                return
            if self.recover is not None:
                await self.recover()
            self._server, self._next_server = self._next_server, None

    async def unchecked(self, function: Callable[[Connection], T], *, hot: bool = False) -> T:
        """Run a function of `recover`, once, on the server that it looks at."""

        def within(connection: Connection) -> T:
            if connection.info[engines.SERVER] != self._next_server:
                self._next_server = connection.info[engines.SERVER]
                raise _NewServerError
            return function(connection)

        return await self._answer(within, hot=hot)

    async def numbered(self, function: Callable[[Connection, int], T]) -> T:
        """Run a function that is told how often it has begun before, with flat plans, pipelined.

        Unless that is 0, the answer to a commit may have been lost, and its work be done.
        """
        begun = itertools.count()
        return await self.patiently(lambda connection: function(connection, next(begun)), hot=True)

    async def when_up(self, function: Callable[[Connection], T], *, is_known: bool) -> T:
        """Run the first function of a start: a server that is known is waited for.

        That is one of our own, one that lets us in and then goes, or one that says that it is
        starting or stopping. Any other that is not there is an error at once, for its address may
        be wrong.
        """
        starting = engines.Starting(self._patience, is_known=is_known)
        while True:
            try:
                return await self._answer(function)
            except DatabaseUnavailableError as error:
                starting.is_known |= self.watchdog.has_connected
                if not starting.goes_on(error):
                    raise
                self._say_once_that_we_wait(error)
                await asyncio.sleep(engines.START_PAUSE)

    async def _answer(self, function: Callable[[Connection], T], *, hot: bool = False) -> T:
        """Run a function once, and say it where the database answers again.

        The answer to a question from before the outage does not tell that it is over.
        """
        was_cut_off = self._is_cut_off
        with errors.translated(self.engine.url):
            answer = await self.once(function, hot=hot)
        if was_cut_off and self._is_cut_off:
            self._is_cut_off = False
            self._answers.set()
            logger.info("The database answers again", extra={"action": "database_back"})
        return answer

    async def _pause(self, longest: float) -> None:
        """Sleep in an outage, until the database has answered another."""
        least = min(longest, _LEAST_PAUSE)
        await asyncio.sleep(least)
        await happens(self._answers, longest - least)

    async def once(
        self, function: Callable[..., T], *args: Any, hot: bool = False, **kwargs: Any
    ) -> T:
        """Run a function once; `hot` as `call` says.

        Raises:
            DatabaseUnavailableError: when there was no answer for longer than the patience.

        """
        with self.watchdog.attempt() as attempt:
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(None) as attempt.connecting:
                        await stack.enter_async_context(self._room)
                        connection = await stack.enter_async_context(
                            self._pipelined() if hot else self.engine.begin()
                        )
                    attempt.connected(connection)
                    began = time.monotonic()
                    answer = await connection.run_sync(function, *args, **kwargs)
                self._time(time.monotonic() - began)
            except (DBAPIError, TimeoutError):
                if attempt.is_over:
                    raise DatabaseUnavailableError(self.watchdog.sentence(attempt)) from None
                raise
            else:
                return answer

    def _time(self, seconds: float) -> None:
        """Note how long a transaction took; allow more connections if the first were all slow."""
        if not self._to_time:
            return
        self._to_time -= 1
        self._quickest = min(self._quickest, seconds)
        if not self._to_time and self._quickest >= _FAR:
            self._connections += self._more_when_far
            logger.info(
                "The database answers late, after %.0f ms at the quickest; one connection more",
                self._quickest * 1000,
                extra={"action": "database_far"},
            )
            for _ in range(self._more_when_far):
                self._room.release()

    def _pipelined(self) -> AbstractAsyncContextManager[AsyncConnection]:
        # Nothing runs on another server before `recover` has: the server itself skips it.
        server = None if self._next_server is not None else self._server
        return pipelining.transaction(self.engine, server, self.watchdog.answered)

    def _say_once_that_we_wait(self, error: DatabaseUnavailableError) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            self._answers.clear()
            logger.warning(
                "%s %s",
                error,
                self._waits.format(patience=wording.format_period(self._patience)),
                extra={"action": "database_gone"},
            )


class BlockingTransactions:
    """Runs functions of a connection for a command, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._doing: tuple[str, int, int | None] | None = None

    def announce(self, what: str, done: int, total: int | None = None) -> None:
        """Let `status` show how far long work is, while the next transactions last."""
        self._doing = what, done, total

    def show(self, connection: Connection) -> None:
        """Let `status` show that in a transaction that is open."""
        if self._doing is not None:
            engines.announce(connection, *self._doing)

    def call(self, function: Callable[[Connection], T]) -> T:
        """Run a function; again after a deadlock, and where names went to other items meanwhile.

        Raises:
            DatabaseError: in one clear line.

        """
        tries = _TRIES
        with errors.all_translated(self._engine.url):
            while True:
                try:
                    with self._engine.begin() as connection:
                        self.show(connection)
                        return function(connection)
                except apply.MovedNamesError:
                    continue
                except DBAPIError as error:
                    if not tries or not errors.is_deadlock(error):
                        raise
                tries -= 1
                time.sleep(random.uniform(0, _LONGEST_JITTER))

    @contextmanager
    def long(self) -> Iterator[Connection]:
        """Do something in one transaction, however long it takes; it is not done again."""
        with errors.all_translated(self._engine.url), self._engine.begin() as connection:
            self.show(connection)
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Read in one snapshot of the database, however long it takes."""
        with errors.all_translated(self._engine.url), self._engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection
