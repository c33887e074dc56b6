"""How others know that a worker lives: a lock that dies with its process, and a lease.

A thread of its own sees to both, so that a callback that blocks the event loop is no death. It
keeps one connection, a session of the server, which holds the lock, an advisory one that is free
within milliseconds of the process's end, which listens, and which renews the lease.

Behind a pooler in transaction mode there is no session, so there is neither lock nor news: the
lease alone decides, and others' work is found by the poll. The lease is renewed on the loop, by the
connection that all else uses, and on one of the thread's own only while the loop is busy.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import selectors
import socket
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy as sa

from scrapy_itemgraph.connections.loop_watch import LoopWatch
from scrapy_itemgraph.connections.worker_watchdog import Attempt
from scrapy_itemgraph.exceptions import ConfigurationError, DatabaseUnavailableError
from scrapy_itemgraph.postgres import backend_activity, engine, errors, sessions, urls
from scrapy_itemgraph.store.registry import processes
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from datetime import timedelta

    from scrapy_itemgraph.connections.worker_watchdog import WorkerWatchdog

logger = logs.logger(__name__)

T = TypeVar("T")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Shared, so that the worker may lock beside a connection of its own that was cut and which the
# server has not given up yet; whoever takes over must have it alone. The connection is ours alone:
# what is set for its session concerns nobody else.
LOCK = """
    SELECT set_config('idle_session_timeout', '0', false),
        pg_advisory_lock_shared(CAST('processes'::regclass::oid AS int), %d)
"""
WAIT_BRIEFLY = "SELECT set_config('lock_timeout', '2s', true)"
_BEATS_PER_LEASE = 3
_LONGEST_PAUSE = 5.0
_LOOP_ANSWERS_WITHIN = 1.5  # seconds, else the thread renews by a connection of its own
# How long the end waits for the thread, before and after its connections are cut.
_AT_THE_END = 2.0


class GivenUpError(Exception):
    """The worker was given up for dead before its first beat."""


def _elapsed() -> float:
    """Return seconds from some moment on, also those while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Heartbeat:
    """A worker's lock, lease and ear, in a thread from `start` to `close`.

    Only what is said to be the thread's touches its connection.
    """

    def __init__(
        self,
        url: str | sa.URL,
        *,
        crawl_id: int,
        worker_id: int,
        lease: timedelta,
        patience: timedelta,
        replace: Callable[[int], Coroutine[Any, Any, int]],
        renew: Callable[[], Coroutine[Any, Any, bool]],
        watchdog: WorkerWatchdog,
        is_known: bool = False,
    ) -> None:
        """Take the worker's number, and how long the loop may stand still before it counts.

        `replace` is awaited on the loop when the worker of a number had been given up for dead: it
        registers a new one and returns its number. `renew` is awaited there where there is no
        session: it renews the lease, and tells whether the worker had not been given up. `watchdog`
        cuts the connection when an answer was lost on the way, which TCP's keepalives need not
        notice. `is_known`: the server has answered at this address, and is waited for where it went
        since.
        """
        plain = urls.normalised(url)
        self._url = plain.update_query_dict(
            {k: v for k, v in sessions.LASTING.items() if k not in plain.query}
        )
        self._crawl = str(crawl_id)
        self._worker_id = worker_id
        self._lease = lease
        self._interval = lease.total_seconds() / _BEATS_PER_LEASE
        self._patience = patience.total_seconds()
        self._loop_watch = LoopWatch(patience)
        self._replace = replace
        self._renew_on_loop = renew
        self._watchdog = watchdog
        self._is_known = is_known
        self._news = asyncio.Event()
        self._own_news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="itemgraph-heartbeat", daemon=True)
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._bell, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._is_stopped = False
        self._is_closing = False
        self._lives_until = -math.inf
        self._is_broken = False
        self.has_session = True
        self.session_number = 0  # of the connections that were made
        self._asked_for: collections.deque[tuple[Future[Any], Callable[[sa.Connection], Any]]]
        self._asked_for = collections.deque()
        # The thread's.
        self._engine: sa.Engine | None = None
        self._session: sa.Connection | None = None
        self._driver: psycopg.Connection[Any] | None = None
        self._due = 0.0
        self._replacing: Future[int] | None = None
        self._handover = threading.Lock()  # held while the next number is given or taken

    # The loop's

    async def start(self) -> None:
        """Take the lock, and go on renewing and listening in the background."""
        self._thread.start()
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    @property
    def lives(self) -> bool:
        """Whether lock and lease stand, as far as this process was told."""
        return not self._is_broken and _elapsed() < self._lives_until

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news of the crawl, `timeout` seconds at most; whether there were."""
        return await _happens(self._news, timeout)

    async def wait_for_own(self, timeout: float) -> bool:  # noqa: ASYNC109 - likewise
        """Wait for news for this very worker, `timeout` seconds at most; whether there were."""
        return await _happens(self._own_news, timeout)

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
        self._wake()
        return await asyncio.wrap_future(asked)

    @property
    def worker_id(self) -> int:
        """The number of the worker whose lock and lease these are."""
        return self._worker_id

    def take_number(self, worker_id: int) -> None:
        """Go on for the worker as which this one has been registered anew."""
        replaced: Future[int] = Future()
        replaced.set_result(worker_id)
        with self._handover:
            self._replacing = replaced
        self._wake()

    def stop(self) -> None:
        """Renew no more; the lock stays."""
        self._is_stopped = True

    async def close(self) -> None:
        """Give the lock up, also when the server does not answer."""
        self.stop()
        self._is_closing = True
        self._wake()
        await asyncio.to_thread(self._thread.join, _AT_THE_END)
        if self._thread.is_alive():
            self._cut()
            await asyncio.to_thread(self._thread.join, _AT_THE_END)

    def _cut(self) -> None:
        """End the connection under the thread's feet: it waits for a server that is silent."""
        if (driver := self._driver) is not None:
            backend_activity.cut(driver)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake
            self._waker.send(b"\0")

    def _turned(self) -> None:
        if self._loop_watch.turned():
            self._due = 0.0
            self._wake()

    # The thread's

    def _run(self) -> None:
        try:
            self._engine = engine.sync_engine(self._url)
            self._begin_when_up()
        except BaseException as error:  # noqa: BLE001 - it is raised by `start`
            self._tell(self._fail, error)
        else:
            self._tell(self._started.set_result, None)
            self._live()
        finally:
            self._disconnect()

    def _fail(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _live(self) -> None:
        self._due = time.monotonic() + self._interval
        while not self._is_closing:
            try:
                self._wait(self._due - time.monotonic())
                if self._is_closing:
                    return
                self._hear()
                self._serve()
                if time.monotonic() >= self._due:
                    with errors.translated(self._url):
                        self._beat()
                    self._due = time.monotonic() + self._interval
            except sa.exc.DBAPIError as error:
                # The loop, which may be blocked, has a transaction open that has our row. We stand
                # first in the queue for it, before anybody who would bury us.
                if not errors.is_passing(error):
                    self._say_and_rest(error)
                self._due = 0.0
            except Exception as error:  # noqa: BLE001 - the lease tells others, we go on trying
                self._say_and_rest(error)

    def _say_and_rest(self, error: Exception) -> None:
        if not self._is_closing:
            logger.warning("No heartbeat: %s", error, extra={"action": "heartbeat_failed"})
            self._rest(min(self._interval, _LONGEST_PAUSE))

    def _wait(self, seconds: float) -> None:
        """Wait so long at most, or until the server or the loop has something for us."""
        until = time.monotonic() + max(0.0, seconds)
        if self._driver is not None and self._driver.closed:
            self._hang_up()
        if self._is_broken:
            seconds = min(seconds, self._due - time.monotonic())
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
            self._loop_watch.overslept(overslept)

    def _rest(self, seconds: float) -> None:
        """Try again after so many seconds, or at the end at once."""
        with selectors.PollSelector() as selector:  # it takes no file descriptor
            selector.register(self._bell, selectors.EVENT_READ)
            selector.select(seconds)
        self._due = 0.0

    def _beat(self) -> None:
        """Renew the lease while the loop turns; with a new session, take the lock."""
        if self._is_stopped or self._is_being_replaced() or not self._loop_turns():
            return
        if not self.has_session:
            self._renew_without_session()
        elif self._session is None:
            self._take_lock()
        else:
            self._renew(locked=False)

    def _loop_turns(self) -> bool:
        """Ask the loop for a sign; whether the last one is not longer ago than the patience."""
        return self._loop_watch.turns(lambda: self._tell(self._turned))

    def _begin_when_up(self) -> None:
        starting = engine.Starting(self._patience, is_known=self._is_known)
        while True:
            try:
                with errors.translated(self._url):
                    return self._begin()
            except DatabaseUnavailableError as error:
                if self._is_closing or not starting.goes_on(error):
                    raise
                self._hang_up()
                self._rest(engine.START_PAUSE)

    def _begin(self) -> None:
        """Take the lock, where there is a session; and see that it is the worker's database."""
        assert self._engine is not None
        self.has_session = sessions.is_session(self._engine, self._connected())
        if self.has_session:
            self._take_lock()
        else:
            self._renew(locked=False)
            self._hang_up()
        if self._lives_until < 0:
            if self._is_known:
                raise GivenUpError
            raise ConfigurationError(
                "ITEMGRAPH_SESSION_URL leads to another database than ITEMGRAPH_DATABASE_URL"
            )

    def _take_lock(self) -> None:
        """Lock the worker's number, say so, and listen; what was said before was not heard."""
        session = self._connected()
        try:
            with self._watched(), session.begin():
                session.exec_driver_sql(WAIT_BRIEFLY)
                session.exec_driver_sql(LOCK % self._worker_id)
                session.exec_driver_sql("LISTEN itemgraph")
        except BaseException:
            self._hang_up()
            raise
        self._renew(locked=True)
        self._tell(self._news.set)
        self._tell(self._own_news.set)

    def _renew(self, *, locked: bool) -> None:
        """Renew the lease; who finds that it was given up for dead is registered anew."""
        asked = _elapsed()
        try:
            session = self._connected()
            with self._watched(), session.begin():
                session.exec_driver_sql(WAIT_BRIEFLY)
                lives = processes.renew(session, self._worker_id, self._lease)
                if lives and locked:
                    processes.mark_locked(session, self._worker_id)
        except sa.exc.DBAPIError as error:
            if locked or not errors.is_passing(error):
                self._hang_up()
            raise
        self._renewed(asked, lives=lives)

    def _renew_without_session(self) -> None:
        """Have the loop renew the lease; while it is busy, renew it here."""
        asked = _elapsed()
        renewing = asyncio.run_coroutine_threadsafe(self._renew_on_loop(), self._loop)
        try:
            self._renewed(asked, lives=renewing.result(_LOOP_ANSWERS_WITHIN))
        except TimeoutError:
            renewing.cancel()
            try:
                self._renew(locked=False)
            finally:
                self._hang_up()

    def _renewed(self, asked: float, *, lives: bool) -> None:
        """Take note of how a renewal that was asked for then went."""
        if lives:
            self._lives_until = asked + self._lease.total_seconds()
            self._is_broken = False
        elif not self._is_stopped and self._started.done():
            self._lives_until = -math.inf
            with self._handover:
                # Of numbers that were given before, it returns the last.
                replacing = asyncio.run_coroutine_threadsafe(
                    self._replace(self._worker_id), self._loop
                )
                self._replacing = replacing
            replacing.add_done_callback(lambda _: self._wake())

    def _is_being_replaced(self) -> bool:
        """Whether the new worker's number is not known yet; then it is locked."""
        with self._handover:
            replaced = self._replacing
            if replaced is None:
                return False
            if not replaced.done():
                return True
            self._replacing = None
        self._worker_id = replaced.result()
        self._hang_up()
        return False

    def _connected(self) -> sa.Connection:
        """Return the thread's connection, made if it is not there."""
        if self._session is None:
            assert self._engine is not None
            self._session = self._engine.connect()
            driver = self._session.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            self._driver = driver
            self.session_number += 1
            sessions.not_inherited.add(driver)
        return self._session

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Have the loop look after what the server is asked meanwhile."""
        attempt = Attempt()
        attempt.connection = self._driver
        if self._driver is not None:
            attempt.process = self._driver.info.backend_pid
        self._tell(self._watchdog.watch, attempt)
        try:
            yield
        finally:
            self._tell(self._watchdog.forget, attempt)

    def _hear(self) -> None:
        """Pass on what was notified."""
        if self._replacing is not None and self._replacing.done():
            self._due = 0.0
        if self._driver is None:
            return
        try:
            for notification in self._driver.notifies(timeout=0):
                if notification.payload == self._crawl:
                    self._tell(self._news.set)
                elif notification.payload == f"worker {self._worker_id}":
                    self._tell(self._own_news.set)
        except psycopg.Error:
            self._hang_up()

    def _serve(self) -> None:
        """Do what the loop asked for, each in a transaction."""
        while self._asked_for:
            asked, function = self._asked_for.popleft()
            if not asked.set_running_or_notify_cancel():
                continue
            if self._session is None or not self.has_session:
                asked.set_exception(_no_session())
                continue
            try:
                with self._watched(), self._session.begin():
                    answer = function(self._session)
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                if isinstance(error, sa.exc.DBAPIError) and not errors.is_passing(error):
                    self._hang_up()
                asked.set_exception(error)
            else:
                asked.set_result(answer)

    def _hang_up(self) -> None:
        """Give the connection up, and with it the lock: at once, if the server ended it."""
        session, self._session, self._driver = self._session, None, None
        if session is not None:
            if self.has_session:
                self._is_broken = True
                self._due = 0.0
            with contextlib.suppress(psycopg.Error, sa.exc.SQLAlchemyError):
                session.invalidate()
            with contextlib.suppress(psycopg.Error, sa.exc.SQLAlchemyError):
                session.close()

    def _tell(self, function: Callable[..., object], *given: object) -> None:
        """Have the loop call a function, unless it is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *given)

    def _disconnect(self) -> None:
        self._is_closing = True
        self._hang_up()
        self._serve()
        if self._engine is not None:
            self._engine.dispose()
        self._bell.close()
        self._waker.close()


def _no_session() -> DatabaseUnavailableError:
    return DatabaseUnavailableError("There is no session of the database at this moment")


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    has_happened = await happens(event, seconds)
    event.clear()
    return has_happened
