"""How others know that a worker lives: a lock that dies with its process, and a lease.

The lock is an advisory one, held by an idle transaction on a connection of its own: that survives
a transaction pooler, holds no snapshot, and is free within milliseconds of the process's end. A
second connection listens, for notifications do not arrive inside a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import weakref
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

logger = logging.getLogger(__name__)

# Shared, so that the worker may lock beside a connection of its own that was cut and which the
# server has not given up yet; whoever takes over must have it alone.
LOCK = """
    SELECT set_config('idle_in_transaction_session_timeout', '0', true),
        CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
            THEN set_config('transaction_timeout', '0', true) END,
        pg_advisory_xact_lock_shared(CAST('workers'::regclass::oid AS int), %s)
"""
KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
NAMED = {"application_name": "scrapy-itemgraph", "connect_timeout": 10}
_BEATS_PER_LEASE = 3
_LONGEST_PAUSE = 5.0

_open: weakref.WeakSet[Liveness] = weakref.WeakSet()


class Liveness:
    """A worker's lock, lease and ear; all of it runs in the background until `close`."""

    def __init__(
        self,
        connect: Mapping[str, Any],
        *,
        crawl_id: int,
        worker_id: int,
        lease: timedelta,
        beat: Callable[[bool], Awaitable[int]],
    ) -> None:
        """Take what it needs; `beat(locked)` renews the lease and returns the worker's number.

        A number that changed means that the worker had been given up for dead and is a new one.
        """
        # SQLAlchemy leaves spaces as they are, which libpq takes for an error.
        self._connect = {**NAMED, **KEEPALIVES, **connect}
        self._crawl = str(crawl_id)
        self._worker_id = worker_id
        self._interval = lease.total_seconds() / _BEATS_PER_LEASE
        self._beat = beat
        self._lock: psycopg.AsyncConnection[Any] | None = None
        self._ear: psycopg.AsyncConnection[Any] | None = None
        self._news = asyncio.Event()
        self._own_news = asyncio.Event()
        self._broke = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take the lock, and go on renewing and listening in the background."""
        await self._take_lock()
        _open.add(self)
        self._tasks = [
            asyncio.create_task(self._keep_beating()),
            asyncio.create_task(self._keep_listening()),
        ]

    @property
    def is_sure(self) -> bool:
        """Whether the lock's connection stands, as far as this process was told."""
        return not self._broke.is_set()

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the poll that backs it up
        """Wait until there is news of the crawl, `timeout` seconds at most."""
        await _happens(self._news, timeout)

    async def wait_for_own(self, timeout: float) -> bool:  # noqa: ASYNC109 - likewise
        """Wait for news for this very worker, `timeout` seconds at most; whether there were."""
        return await _happens(self._own_news, timeout)

    async def stop(self) -> None:
        """End what runs in the background; the lock stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def close(self) -> None:
        """Give the lock up."""
        await self.stop()
        _open.discard(self)
        if self._lock is not None and not self._lock.closed:
            asyncio.get_running_loop().remove_reader(self._lock.fileno())
        for connection in (self._lock, self._ear):
            if connection is not None:
                with contextlib.suppress(psycopg.Error):
                    await connection.close()

    def abandon(self) -> None:
        """Point our sockets elsewhere, in a forked child: it must not keep the lock alive."""
        for connection in (self._lock, self._ear):
            if connection is not None and not connection.closed:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, connection.fileno())
                os.close(nowhere)

    async def _take_lock(self) -> None:
        if self._lock is not None:
            if not self._lock.closed:
                asyncio.get_running_loop().remove_reader(self._lock.fileno())
            await self._lock.close()
        self._lock = await psycopg.AsyncConnection.connect(
            # A statement with parameters of its own would leave a portal open, and with it a
            # snapshot, until the next one.
            cursor_factory=psycopg.AsyncClientCursor,
            **self._connect,
        )
        await self._lock.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await self._lock.execute(LOCK, [self._worker_id])
        self._watch()
        await self._follow(await self._beat(True))

    async def _follow(self, worker_id: int) -> None:
        """Lock the number that the worker has now."""
        if worker_id != self._worker_id:
            self._worker_id = worker_id
            await self._take_lock()

    async def _keep_beating(self) -> None:
        pause = self._interval
        while True:
            await _elapses(self._broke, pause)
            try:
                await self._check_lock()
                await self._follow(await self._beat(False))
                self._broke.clear()
                pause = self._interval
            except Exception as error:  # noqa: BLE001 - the lease tells others, we go on trying
                logger.warning("No heartbeat: %s", error, extra={"action": "heartbeat_failed"})
                pause = min(self._interval, _LONGEST_PAUSE)

    async def _check_lock(self) -> None:
        try:
            assert self._lock is not None
            await self._lock.execute("SELECT")
            self._watch()
        except psycopg.Error:
            await self._take_lock()

    def _watch(self) -> None:
        """Notice at once when the server ends the connection: the lock is free from then on."""
        assert self._lock is not None
        loop, number = asyncio.get_running_loop(), self._lock.fileno()

        def broke() -> None:
            loop.remove_reader(number)
            self._broke.set()

        loop.add_reader(number, broke)

    async def _keep_listening(self) -> None:
        while True:
            try:
                self._ear = await psycopg.AsyncConnection.connect(autocommit=True, **self._connect)
                await self._ear.execute("LISTEN itemgraph")
                self._news.set()  # what was said meanwhile was not heard
                self._own_news.set()
                async for notification in self._ear.notifies():
                    if notification.payload == self._crawl:
                        self._news.set()
                    elif notification.payload == f"worker {self._worker_id}":
                        self._own_news.set()
            except psycopg.Error:
                await asyncio.sleep(_LONGEST_PAUSE)


async def _elapses(event: asyncio.Event, seconds: float) -> None:
    """Wait for so long, or until something happens that is not yet dealt with."""
    if event.is_set():  # dealing with it failed a moment ago
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _happens(event: asyncio.Event, timeout: float) -> bool:  # noqa: ASYNC109 - likewise
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout)
    has_happened = event.is_set()
    event.clear()
    return has_happened


def _abandon_all() -> None:
    for liveness in list(_open):
        liveness.abandon()


os.register_at_fork(after_in_child=_abandon_all)
