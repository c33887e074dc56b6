"""Watchdog of a worker: what a crawl asked of the database without an answer yet."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import event

from scrapy_itemgraph.postgres import backend_activity, engine
from scrapy_itemgraph.tools import logs, wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    import psycopg
    from sqlalchemy import Connection

    from scrapy_itemgraph.postgres.async_engine import AsyncConnection, AsyncEngine

logger = logs.logger(__name__)

CRAWL_WAITS = (
    "The crawl waits for it up to {patience} (ITEMGRAPH_PATIENCE), and then goes on where it was"
)
"""What people are told while the server is away."""

# After so many seconds without an answer the server is asked what it does, and then that often.
LOOK_AFTER = 10.0
LOOK_EVERY = 3.0
_ANSWER_WITHIN = 3.0
# So often in a row the server says that it does nothing for us before we take its answer for lost.
_DOUBTS = 2
_ATTEMPT = "itemgraph_attempt"  # in the info of a connection: whose it is now


class Attempt:
    """One transaction, from the wish for a connection to the answer to its commit."""

    def __init__(self) -> None:
        self.waits_since = time.monotonic()
        self.connecting: asyncio.Timeout | None = None
        self.process = 0  # the server's
        self.doubts = 0
        self.is_over = False
        self.lock: str | None = None
        self.connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None = None

    def connected(self, connection: AsyncConnection) -> None:
        """Take note of the connection that it has now."""
        self.connecting = None
        sync = connection.sync_connection
        self.process = sync.info[engine.PROCESS]
        self.connection = sync.connection.driver_connection
        sync.info[_ATTEMPT] = self

    def answered(self) -> None:
        """Take note of an answer: a long transaction of many statements is no silence."""
        self.waits_since, self.doubts = time.monotonic(), 0

    @property
    def waited(self) -> float:
        """How many seconds it has been waiting for something."""
        return time.monotonic() - self.waits_since

    @property
    def is_waiting(self) -> bool:
        """Whether it is the server that it waits for."""
        return self.connection is None or backend_activity.is_waiting(self.connection)

    def cut(self) -> None:
        """Have whoever waits find the connection lost."""
        if self.connection is not None:
            backend_activity.cut(self.connection)
        elif self.connecting is not None:
            # A connection that was cut under it is found lost before, without asking the server.
            self.connecting.reschedule(asyncio.get_running_loop().time() + 0.2)


class WorkerWatchdog:
    """The attempts of one engine; looks after those that have no answer for long.

    What the server works on is let be, however long it takes. An attempt whose statement or answer
    was lost on the way is cut, so that it is made again. One that has waited for longer than the
    patience, for a lock or for a server that does not answer, is given up.
    """

    def __init__(self, engine: AsyncEngine, patience: float, waits: str = CRAWL_WAITS) -> None:
        self._engine = engine
        self._waits = waits
        self._patience = patience
        self._after = min(LOOK_AFTER, patience / 2)
        self._attempts: set[Attempt] = set()
        self._opened: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        self.has_connected = False  # ever
        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost: dict[int, datetime] = {}  # transactions of those, which may hold locks
        self._has_said_silent = False
        self._said_locks: set[str] = set()
        event.listen(engine.sync_engine, "connect", self._connected, insert=True)
        event.listen(engine.sync_engine, "after_cursor_execute", self.answered)

    def _connected(self, _: Any, record: Any) -> None:
        self.has_connected = True
        self._opened.add(record.driver_connection)

    def answered(self, connection: Connection, *_: Any) -> None:
        """Take note that the server answered on a connection."""
        attempt: Attempt | None = connection.info.get(_ATTEMPT)
        if attempt is not None:
            attempt.answered()

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Look after what is done within."""
        one = Attempt()
        self.watch(one)
        try:
            yield one
        finally:
            self.forget(one)

    def watch(self, one: Attempt) -> None:
        """Look after an attempt, until `forget`; also of another thread, by a connection of its."""
        self._attempts.add(one)
        if self._timer is None:
            self._plan_to_look(self._after)

    def forget(self, one: Attempt) -> None:
        """Look after an attempt no more: it is over."""
        self._attempts.discard(one)

    def sentence(self, attempt: Attempt) -> str:
        """Say what an attempt has been waiting for."""
        return backend_activity.sentence(self._engine.url, attempt.waited, attempt.lock)

    def hurry(self, patience: float) -> None:
        """Wait no longer than that from now on."""
        self._patience = min(self._patience, patience)
        self._after = min(self._after, patience / 5)
        if self._attempts:
            self._begin_to_look()

    async def close(self) -> None:
        """Look no longer."""
        self._unplan()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _plan_to_look(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay, self._begin_to_look)

    def _unplan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_to_look(self) -> None:
        self._unplan()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Look until nobody has waited for long, and plan when somebody may have next."""
        while late := [one for one in self._attempts if one.waited >= self._after]:
            connect = engine.connect_arguments(self._engine)
            processes = [one.process for one in late if one.connection is not None]
            within = min(_ANSWER_WITHIN, self._after)
            found = await backend_activity.look(connect, processes, within)
            self._judge([one for one in late if one in self._attempts and one.is_waiting], found)
            self._give_up()
            if self._lost:
                lost, self._lost = self._lost, {}
                await backend_activity.end(connect, lost, within)
            await asyncio.sleep(min(LOOK_EVERY, self._after))
        self._unplan()
        if self._attempts:
            self._plan_to_look(self._after - max(one.waited for one in self._attempts))
        else:
            self._has_said_silent = False

    def _judge(
        self, late: Sequence[Attempt], found: dict[int, backend_activity.Backend] | None
    ) -> None:
        """Take note of what the server says that it does for each attempt."""
        if found is None:
            for one in late:
                one.lock = None
            self._say_silent(late)
            return
        at_work = any(one.connection is not None for one in self._attempts.difference(late))
        for one in late:
            if one.connection is None:
                continue
            backend = found.get(one.process, backend_activity.Backend(is_idle=True))
            one.lock = backend.lock
            if backend.lock is not None:
                self._say_locked(one, backend.lock)
            elif backend.is_idle:
                one.doubts += 1
                if one.doubts >= _DOUBTS:
                    self._say_lost(one)
                    one.cut()
                    if backend.begun_at is not None:
                        self._lost[one.process] = backend.begun_at
            else:
                one.answered()
                at_work = True
        self._judge_unconnected([one for one in late if one.connection is None], at_work=at_work)

    def _judge_unconnected(self, late: Sequence[Attempt], *, at_work: bool) -> None:
        """Judge those that wait for a connection: for others, or for one that is being made."""
        locks = [
            one.lock
            for one in self._attempts
            if one.connection is not None and one.lock is not None
        ]
        for one in late:
            one.lock = locks[0] if locks else None
            if at_work:
                one.waits_since = time.monotonic()
        if late and not at_work and not locks and self._cut_unowned():
            self._say_lost(max(late, key=lambda one: one.waited))

    def _cut_unowned(self) -> int:
        """Cut the connections that nobody has yet and that do not answer; return how many."""
        owned = {one.connection for one in self._attempts}
        mute = [
            connection
            for connection in self._opened
            if connection not in owned and backend_activity.is_waiting(connection)
        ]
        for connection in mute:
            backend_activity.cut(connection)
        return len(mute)

    def _give_up(self) -> None:
        for one in list(self._attempts):
            if one.waited >= self._patience and one.is_waiting and not one.is_over:
                one.is_over = True
                self._cut_unowned()
                one.cut()

    # Words

    def _say_silent(self, late: Sequence[Attempt]) -> None:
        if late and not self._has_said_silent:
            self._has_said_silent = True
            self._say(max(late, key=lambda one: one.waited), "database_silent")

    def _say_locked(self, attempt: Attempt, lock: str) -> None:
        if lock not in self._said_locks:
            self._said_locks.add(lock)
            self._say(attempt, "database_locked")

    def _say(self, attempt: Attempt, action: str) -> None:
        logger.warning(
            "%s %s",
            self.sentence(attempt),
            self._waits.format(patience=wording.format_period(self._patience)),
            extra={"action": action},
        )

    def _say_lost(self, attempt: Attempt) -> None:
        logger.warning(
            "A statement, or its answer, was lost on the way to or from the database %s ago; it is "
            "done again on another connection",
            wording.format_period(attempt.waited),
            extra={"action": "connection_lost"},
        )
