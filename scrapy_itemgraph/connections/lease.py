"""The lease of a process: renewed on the session's thread, for as long as the event loop turns.

A lease that is over, or a lock that is free, tells others that the process is dead. They bury it
then; a process that finds itself buried registers anew. The thread asks the loop for a sign at each
beat, and renews the lease while the last sign is not older than the patience.

Where there is no session the loop renews the lease, by the connection that all else uses; the
thread does so by a connection of its own only while the loop is busy.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph.connections import locks
from scrapy_itemgraph.connections.loop_watch import LoopWatch
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from datetime import timedelta

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.session import Session

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEATS_PER_LEASE = 3
_LOOP_ANSWERS_WITHIN = 1.5  # seconds, else the thread renews by a connection of its own


class GivenUpError(Exception):
    """The process was given up for dead before its first beat."""


def _elapsed() -> float:
    """Return seconds from some moment on, also those while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """Lock and lease of a process; the keeper of a session."""

    def __init__(
        self,
        own: Identity,
        *,
        lease: timedelta,
        patience: timedelta,
        replace: Callable[[int], Coroutine[Any, Any, None]],
        renew: Callable[[], Coroutine[Any, Any, bool]],
    ) -> None:
        """Take who the process is, and how long the event loop may stand still before it counts.

        `replace` is awaited on the loop with a number that was given up for dead: it registers the
        process anew. `renew` is awaited there where there is no session: it renews the lease, and
        returns False if the process was given up.
        """
        self.interval = lease.total_seconds() / _BEATS_PER_LEASE
        self._own = own
        self._lease = lease
        self._loop_watch = LoopWatch(patience)
        self._replace = replace
        self._renew_on_loop = renew
        self._is_stopped = False
        self._lives_until = -math.inf
        self._is_broken = False
        # The thread's.
        self._number = 0  # under which the process has its lock and its lease
        self._has_begun = False
        self._replacing: Future[None] | None = None

    # The loop's

    @property
    def lives(self) -> bool:
        """Whether lock and lease stand, as far as this process was told."""
        is_whole = not self._is_broken and self._number == self._own.id
        return is_whole and _elapsed() < self._lives_until

    def stop(self) -> None:
        """Renew no more; the lock stays."""
        self._is_stopped = True

    # The thread's

    @property
    def is_due(self) -> bool:
        """Whether the process has another number than the one that is locked."""
        return self._own.id != self._number

    def begin(self, session: Session) -> None:
        """Take the lock, where there is a session, and see that it is the process's database."""
        self._number = self._own.id
        if session.has_session:
            self._take_lock(session)
        else:
            self._renew(session, locked=False)
        if self._lives_until < 0:
            if session.is_known:
                raise GivenUpError
            raise ConfigurationError(
                "ITEMGRAPH_SESSION_URL leads to another database than ITEMGRAPH_DATABASE_URL"
            )
        self._has_begun = True

    def beat(self, session: Session) -> None:
        """Renew the lease while the loop turns; with a new session or number, take the lock."""
        if self._is_stopped or self._is_being_replaced() or not self._loop_turns(session):
            return
        if self._own.id != self._number:
            session.hang_up()
            self._number = self._own.id
        if not session.has_session:
            self._renew_without_session(session)
        elif session.is_open:
            self._renew(session, locked=False)
        else:
            self._take_lock(session)

    def is_lost(self) -> None:
        """Note that the lock is free."""
        self._is_broken = True

    def overslept(self, seconds: float) -> None:
        """Forgive the loop the time in which the process stood still, or the machine slept."""
        self._loop_watch.overslept(seconds)

    def _is_being_replaced(self) -> bool:
        """Tell whether the process is registering anew, and has no other number yet."""
        replacing = self._replacing
        if replacing is None:
            return False
        is_same = self._own.id == self._number
        if is_same and not replacing.done():
            return True
        self._replacing = None
        if is_same:
            replacing.result()  # raises what it failed of; the next renewal has it tried again
        return False

    def _loop_turns(self, session: Session) -> bool:
        """Ask the loop for a sign; whether the last one is not longer ago than the patience."""

        def turned() -> None:
            if self._loop_watch.turned():
                session.hurry()

        return self._loop_watch.turns(lambda: session.tell(turned))

    def _take_lock(self, session: Session) -> None:
        """Lock the process's number, say so, and listen; what was told before was not heard."""
        try:
            with session.transaction() as connection:
                locks.take(connection, self._number)
                session.listen(connection)
        except BaseException:
            session.hang_up()
            raise
        self._renew(session, locked=True)
        session.tell_all()

    def _renew(self, session: Session, *, locked: bool) -> None:
        """Renew the lease; who finds that it was given up for dead is registered anew."""
        asked = _elapsed()
        try:
            with session.transaction() as connection:
                locks.wait_briefly(connection)
                lives = processes.renew(connection, self._number, self._lease)
                if lives and locked:
                    processes.mark_locked(connection, self._number)
        except sa.exc.DBAPIError as error:
            if locked or not errors.is_passing(error):
                session.hang_up()
            raise
        self._renewed(session, asked, lives=lives)

    def _renew_without_session(self, session: Session) -> None:
        """Have the loop renew the lease; while it is busy, renew it here."""
        asked = _elapsed()
        renewing = asyncio.run_coroutine_threadsafe(self._renew_on_loop(), session.loop)
        try:
            self._renewed(session, asked, lives=renewing.result(_LOOP_ANSWERS_WITHIN))
        except TimeoutError:
            renewing.cancel()
            try:
                self._renew(session, locked=False)
            finally:
                session.hang_up()

    def _renewed(self, session: Session, asked: float, *, lives: bool) -> None:
        """Take note of how a renewal that was asked for then went."""
        if lives:
            self._lives_until = asked + self._lease.total_seconds()
            self._is_broken = False
        elif self._has_begun and not self._is_stopped:
            self._lives_until = -math.inf
            replacing = asyncio.run_coroutine_threadsafe(self._replace(self._number), session.loop)
            self._replacing = replacing
            replacing.add_done_callback(lambda _: session.hurry())
