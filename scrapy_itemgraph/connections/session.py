"""A session of the server, on a thread of its own: it holds locks, listens, and keeps a lease.

The thread goes on while a callback blocks the event loop. It has one connection, which is in no
transaction between what it does. Behind a pooler in transaction mode there is no session: then
nothing is locked or heard, and the connection is made only while it is needed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import selectors
import socket
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
import sqlalchemy as sa

from scrapy_itemgraph.connections.awaited_answers import Attempt
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.postgres import backend_activity, engine, errors, sessions, urls
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from scrapy_itemgraph.connections.awaited_answers import WorkerWatchdog

logger = logs.logger(__name__)

T = TypeVar("T")

_LISTEN = "LISTEN itemgraph"
_LONGEST_PAUSE = 5.0  # seconds between two tries
# Seconds for which the end waits for the thread, before and after its connection is cut.
_AT_THE_END = 2.0


class News:
    """Whether there was news of a topic since somebody last waited for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake whoever waits, or the next one who does; called on the loop."""
        self._event.set()

    @property
    def is_there(self) -> bool:
        """Whether a wait would end at once."""
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news, `timeout` seconds at most; return whether there was any."""
        has_happened = await happens(self._event, timeout)
        self._event.clear()
        return has_happened


class Keeper(Protocol):
    """What the thread keeps by its session: a lease. All but `interval` is called on the thread."""

    interval: float
    """Seconds between two beats."""

    @property
    def is_due(self) -> bool:
        """Whether it must beat at once."""

    def begin(self, session: Session) -> None:
        """Take what is to be kept, before `Session.start` returns; repeated while that fails."""

    def beat(self, session: Session) -> None:
        """Renew it; on a new connection, take it again."""

    def is_lost(self) -> None:
        """Note that the session is gone, and with it all its locks."""

    def overslept(self, seconds: float) -> None:
        """Note that the process stood still for so long, or the machine slept."""


class Session:
    """A connection of its own in a thread, from `start` to `close`; it serves the event loop.

    What is said to be the thread's is called on the thread alone, by the keeper for instance.
    """

    def __init__(
        self,
        url: str | sa.URL,
        keeper: Keeper,
        *,
        patience: timedelta,
        watchdog: WorkerWatchdog,
        is_known: bool = False,
    ) -> None:
        """Take what the thread keeps, and how long a server that is away is waited for.

        `watchdog` cuts the connection when an answer was lost on the way, which TCP's keepalives
        need not notice. `is_known`: the server has answered at this address before.
        """
        plain = urls.normalised(url)
        self.url = plain.update_query_dict(
            {k: v for k, v in sessions.LASTING.items() if k not in plain.query}
        )
        self._keeper = keeper
        self._patience = patience.total_seconds()
        self._watchdog = watchdog
        self.is_known = is_known
        self._topics: dict[str, News] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="itemgraph-session", daemon=True)
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._bell, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._is_closing = False
        self._is_hurried = False  # since the last beat began
        self._has_said = False  # that it has no heartbeat, since the last one
        self.has_session = True
        self.number = 0  # of the connections that were made
        self._asked_for: collections.deque[tuple[Future[Any], Callable[[sa.Connection], Any]]]
        self._asked_for = collections.deque()
        # The thread's.
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None
        self._driver: psycopg.Connection[Any] | None = None
        self._due = 0.0

    # The loop's

    async def start(self) -> None:
        """Connect, have the keeper take what it keeps, and go on in the background."""
        self._thread.start()
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    def subscribe(self, topic: str) -> News:
        """Return where news of a topic is told; see `store.notify` for topics.

        The first wait ends at once, and so does one after a lost connection: what was told before
        the session listened is not known.
        """
        news = self._topics.get(topic)
        if news is None:
            news = self._topics[topic] = News()
            news.tell()
        return news

    def unsubscribe(self, topic: str) -> None:
        """Tell nobody of a topic any more."""
        self._topics.pop(topic, None)

    def rename(self, topic: str, to: str) -> None:
        """Tell news of another topic to those who subscribed to this one."""
        if topic in self._topics:
            self._topics[to] = self._topics.pop(topic)

    async def run(self, function: Callable[[sa.Connection], T]) -> T:
        """Run a function in a transaction of the session, which keeps what locks it takes.

        Raises:
            DatabaseUnavailableError: there is no session, or no more.
            DBAPIError: as the database says.

        """
        if self._is_closing:
            raise _no_session()
        asked: Future[T] = Future()
        self._asked_for.append((asked, function))
        self.wake()
        return await asyncio.wrap_future(asked)

    def wake(self) -> None:
        """Have the thread look at once whether there is something to do; from any thread."""
        with contextlib.suppress(OSError):  # full: it is awake
            self._waker.send(b"\0")

    async def close(self) -> None:
        """End the session, and with it its locks, also when the server does not answer."""
        self._is_closing = True
        self.wake()
        await asyncio.to_thread(self._thread.join, _AT_THE_END)
        if self._thread.is_alive():
            self._cut()
            await asyncio.to_thread(self._thread.join, _AT_THE_END)

    def _cut(self) -> None:
        """Close the connection while the thread waits for a server that is silent."""
        if (driver := self._driver) is not None:
            backend_activity.cut(driver)

    # The thread's, for the keeper

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction, on a new connection if there is none; the loop watches over it."""
        connection = self._connected()
        with self._watched(), connection.begin():
            yield connection

    def listen(self, connection: sa.Connection) -> None:
        """Hear from now on what is told in the database."""
        connection.exec_driver_sql(_LISTEN)

    def hurry(self) -> None:
        """Have the keeper beat at once; from any thread."""
        self._is_hurried = True
        self.wake()

    def tell_all(self) -> None:
        """Tell all who subscribed that there may have been news."""
        for news in list(self._topics.values()):
            self.tell(news.tell)

    def hang_up(self) -> None:
        """Give the connection up, and with it its locks: at once, if the server ended it."""
        connection, self._connection, self._driver = self._connection, None, None
        if connection is None:
            return
        if self.has_session:
            self._keeper.is_lost()
            self._due = 0.0
        with contextlib.suppress(psycopg.Error, sa.exc.SQLAlchemyError):
            connection.invalidate()
        with contextlib.suppress(psycopg.Error, sa.exc.SQLAlchemyError):
            connection.close()

    def tell(self, function: Callable[..., object], *given: object) -> None:
        """Have the loop call a function, unless it is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *given)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it serves."""
        return self._loop

    # The thread's

    def _run(self) -> None:
        try:
            self._engine = engine.sync_engine(self.url)
            self._begin_when_up()
        except BaseException as error:  # noqa: BLE001 - it is raised by `start`
            self.tell(self._fail, error)
        else:
            self.tell(self._started.set_result, None)
            self._live()
        finally:
            self._disconnect()

    def _fail(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _begin_when_up(self) -> None:
        starting = engine.Starting(self._patience, is_known=self.is_known)
        while True:
            try:
                with errors.translated(self.url):
                    return self._begin()
            except DatabaseUnavailableError as error:
                if self._is_closing or not starting.goes_on(error):
                    raise
                self.hang_up()
                self._rest(engine.START_PAUSE)

    def _begin(self) -> None:
        assert self._engine is not None
        self.has_session = sessions.is_session(self._engine, self._connected())
        self._keeper.begin(self)
        if not self.has_session:
            self.hang_up()

    def _live(self) -> None:
        self._due = time.monotonic() + self._keeper.interval
        while not self._is_closing:
            try:
                self._turn()
            except sa.exc.DBAPIError as error:
                # The loop, which may be blocked, has a transaction open that has our row. We stand
                # first in the queue for it, before anybody who would bury us.
                if not errors.is_passing(error):
                    self._say_and_rest(error)
                self._due = 0.0
            except Exception as error:  # noqa: BLE001 - the lease tells others, we go on trying
                self._say_and_rest(error)

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        self._wait(self._due - time.monotonic())
        if self._is_closing:
            return
        self._hear()
        has_asked = bool(self._asked_for)
        self._serve()
        if self._is_hurried or self._keeper.is_due or time.monotonic() >= self._due:
            has_asked, self._is_hurried = True, False
            with errors.translated(self.url):
                self._keeper.beat(self)
            self._has_said = False
            self._due = time.monotonic() + self._keeper.interval
        if has_asked:  # psycopg keeps what came with the answers, and the socket is empty
            self._hear()

    def _say_and_rest(self, error: Exception) -> None:
        if not self._is_closing:
            level = logging.DEBUG if self._has_said else logging.WARNING
            self._has_said = True
            logger.log(level, "No heartbeat: %s", error, extra={"action": "heartbeat_failed"})
            self._rest(min(self._keeper.interval, _LONGEST_PAUSE))

    def _wait(self, seconds: float) -> None:
        """Wait so long at most, or until the server or the loop has something for the thread."""
        until = time.monotonic() + max(0.0, seconds)
        if self._driver is not None and self._driver.closed:
            self.hang_up()
            seconds = 0.0
        with selectors.PollSelector() as selector:  # it takes no file descriptor
            selector.register(self._bell, selectors.EVENT_READ)
            if self._driver is not None:
                selector.register(self._driver.fileno(), selectors.EVENT_READ)
            ready = selector.select(max(0.0, seconds))
        for key, _ in ready:
            if key.fileobj is self._bell:
                self._bell.recv(4096)
        overslept = time.monotonic() - until
        if overslept > 1.0:
            self._keeper.overslept(overslept)

    def _rest(self, seconds: float) -> None:
        """Try again after so many seconds, or at the end at once."""
        with selectors.PollSelector() as selector:  # it takes no file descriptor
            selector.register(self._bell, selectors.EVENT_READ)
            selector.select(seconds)
        self._due = 0.0

    def _connected(self) -> sa.Connection:
        """Return the thread's connection, made if it is not there."""
        if self._connection is None:
            assert self._engine is not None
            self._connection = self._engine.connect()
            driver = self._connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            self._driver = driver
            self.number += 1
            sessions.not_inherited.add(driver)
        return self._connection

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Have the loop look after what the server is asked meanwhile."""
        attempt = Attempt()
        attempt.connection = self._driver
        if self._driver is not None:
            attempt.process = self._driver.info.backend_pid
        self.tell(self._watchdog.watch, attempt)
        try:
            yield
        finally:
            self.tell(self._watchdog.forget, attempt)

    def _hear(self) -> None:
        """Pass on what was notified."""
        if self._driver is None:
            return
        try:
            for notification in self._driver.notifies(timeout=0):
                news = self._topics.get(notification.payload)
                if news is not None:
                    self.tell(news.tell)
        except psycopg.Error:
            self.hang_up()

    def _serve(self) -> None:
        """Do what the loop asked for, each in a transaction."""
        while self._asked_for:
            asked, function = self._asked_for.popleft()
            if not asked.set_running_or_notify_cancel():
                continue
            if self._connection is None or not self.has_session:
                asked.set_exception(_no_session())
                continue
            try:
                with self.transaction() as connection:
                    answer = function(connection)
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                if isinstance(error, sa.exc.DBAPIError) and not errors.is_passing(error):
                    self.hang_up()
                asked.set_exception(error)
            else:
                asked.set_result(answer)

    def _disconnect(self) -> None:
        self._is_closing = True
        self.hang_up()
        self._serve()
        if self._engine is not None:
            self._engine.dispose()
        self._bell.close()
        self._waker.close()


def _no_session() -> DatabaseUnavailableError:
    return DatabaseUnavailableError("There is no session of the database at this moment")
