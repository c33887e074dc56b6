"""Watchdog of a command: how long it waits for the database, and what it says meanwhile."""

from __future__ import annotations

import _thread
import asyncio
import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import DatabaseError, DatabaseUnavailableError
from scrapy_itemgraph.postgres import backend_activity as server_backends
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine

# In seconds: after which a command says what it waits for, and after which it waits no longer.
NOTE_AFTER = 3.0
GIVE_UP_AFTER = 30.0
_SAMPLE_EVERY = 0.1
_CANCEL_WITHIN = 0.5


class Patience:
    """Waits for a lock or a silent server a short time; for a server at work as long as it takes.

    A thread looks on, for whoever waits cannot. Ctrl-C ends a wait at once: what is asked of the
    server is cut off, instead of asking the server to end it, which may not answer.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take what tells people, a line at a time."""
        self.longest = GIVE_UP_AFTER
        self._note_after = NOTE_AFTER
        self._say = say
        # What is open, and the server's process behind it.
        self._opened: WeakKeyDictionary[psycopg.Connection[Any], int] = WeakKeyDictionary()
        self._asked = 0  # how many things so far
        self._is_connecting = False
        self._is_interrupted = False
        self._verdict: str | None = None
        self._ended = threading.Event()

    @contextmanager
    def over(self, engine: Engine) -> Iterator[None]:
        """Look after what is asked of an engine within, in this thread.

        Raises:
            DatabaseUnavailableError: saying what was waited for, when that took too long.
            KeyboardInterrupt: at Ctrl-C.

        """
        self._listen(engine)
        thread = threading.Thread(target=self._watch, args=[engine], daemon=True)
        thread.start()
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, self._interrupted) if is_main else None
        try:
            yield
        except (DBAPIError, psycopg.Error, DatabaseError, KeyboardInterrupt):
            if self._verdict is not None:
                raise DatabaseUnavailableError(self._verdict) from None
            if self._is_interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._ended.set()
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def _listen(self, engine: Engine) -> None:
        def connecting(*_: Any) -> None:
            self._is_connecting = True
            self._asked += 1

        def connected(_: Any, record: Any) -> None:
            self._is_connecting = False
            self._opened[record.driver_connection] = record.driver_connection.info.backend_pid

        def begun(connection: Connection) -> None:
            raw: Any = connection.connection.driver_connection
            self._opened[raw] = connection.info[engines.PROCESS]

        def failed(_: Any) -> None:
            self._is_connecting = False

        def asked(*_: Any) -> None:
            self._asked += 1

        event.listen(engine, "do_connect", connecting)
        event.listen(engine, "connect", connected, insert=True)
        event.listen(engine, "begin", begun)
        event.listen(engine, "handle_error", failed)
        for name in ("before_cursor_execute", "commit", "rollback"):
            event.listen(engine, name, asked)

    def _waiting(self) -> list[psycopg.Connection[Any]]:
        return [one for one in list(self._opened) if server_backends.is_waiting(one)]

    # The thread

    def _watch(self, engine: Engine) -> None:
        asked, since, look_at = 0, time.monotonic(), 0.0
        has_said = False
        while not self._ended.wait(_SAMPLE_EVERY):
            now = time.monotonic()
            if asked != self._asked or not (self._is_connecting or self._waiting()):
                asked, since, look_at, has_said = self._asked, now, now + self._note_after, False
            if now < look_at:
                continue
            lock, is_at_work = self._look(engine)
            now = time.monotonic()
            look_at = min(now + self._note_after, max(since + self.longest, now))
            if asked != self._asked or self._ended.is_set():
                continue
            if is_at_work:
                since = now
                continue
            sentence = server_backends.sentence(engine.url, now - since, lock)
            if now - since >= self.longest:
                self._verdict = sentence
                self._end_waits()
                return
            if not has_said:
                has_said = True
                longest = wording.format_period(self.longest)
                self._say(f"{sentence} This command waits up to {longest}; Ctrl-C ends it.")

    def _look(self, engine: Engine) -> tuple[str | None, bool]:
        """Return the lock that is waited for, and whether the server is at work on what we asked.

        Only who reaches the server again knows about either.
        """
        processes = [self._opened[one] for one in self._waiting()]
        connect = engines.connect_arguments(engine)
        found = asyncio.run(server_backends.look(connect, processes, max(1.0, self._note_after)))
        if found is None or self._is_connecting:
            return None, False
        backends = list(found.values())
        lock = next((one.lock for one in backends if one.lock is not None), None)
        return lock, lock is None and any(not one.is_idle for one in backends)

    def _end_waits(self) -> None:
        """Have the thread that waits find that there is nothing to wait for any more."""
        waiting = self._waiting()
        for one in waiting:
            _cancel(one)
        if not waiting:
            _thread.interrupt_main()

    def _interrupted(self, *_: Any) -> None:
        """Be Ctrl-C's handler."""
        self._is_interrupted = True
        waiting = self._waiting()
        if not waiting:
            raise KeyboardInterrupt
        for one in waiting:
            _cancel(one)


def _cancel(connection: psycopg.Connection[Any]) -> None:
    """End a statement: by the server's grace if it answers soon, else behind its back."""

    def ask() -> None:
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_WITHIN)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_CANCEL_WITHIN)
    server_backends.cut(connection)
