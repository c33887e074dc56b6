"""Statements sent in libpq's pipeline mode: nobody waits for an answer but who reads it.

SQLAlchemy keeps the pool, the transaction and the errors; the statements go to psycopg itself,
which costs half of what they cost through SQLAlchemy's cursors, and a third where several are
under way (decision 22).
"""

from __future__ import annotations

import sys
import time
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import psycopg
import sqlalchemy as sa
from psycopg.pq import PipelineStatus
from psycopg.rows import namedtuple_row
from psycopg.waiting import Ready, Wait
from sqlalchemy.util import await_only, greenlet_spawn

from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.postgres.arrays import array
from scrapy_itemgraph.postgres.async_engine import AsyncConnection
from scrapy_itemgraph.postgres.engine import (
    BEGIN,
    HOT_PATH,
    OTHER_SERVER,
    PROCESS,
    SAME_SERVER,
    SERVER,
    START,
    note_begun,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from psycopg import AsyncCursor

    from scrapy_itemgraph.postgres.async_engine import AsyncEngine

LONGEST_SILENCE = 1.0  # seconds between two statements of a transaction whose client is at work
_MOST_PREPARED = 300  # statements, each with each combination of its parameters' types


class Answer:
    """The answer to a statement, like SQLAlchemy's `CursorResult`; waited for when it is read."""

    __slots__ = ("_connection", "_cursor")

    def __init__(self, connection: PipelinedConnection, cursor: AsyncCursor[Any]) -> None:
        self._connection = connection
        self._cursor = cursor

    def all(self) -> list[Any]:
        """Return the rows, as named tuples."""
        return await_only(self._answered().fetchall())

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        return iter(self.all())

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return [column.name for column in self._answered().description or ()]

    def scalars(self) -> list[Any]:
        """Return the first column of all rows."""
        return [row[0] for row in self.all()]

    def first(self) -> Any:
        """Return the first row; None when there is none."""
        rows = self.all()
        return rows[0] if rows else None

    def one(self) -> Any:
        """Return the only row."""
        (row,) = self.all()
        return row

    def scalar(self) -> Any:
        """Return the first column of the first row; None when there is none."""
        row = self.first()
        return None if row is None else row[0]

    def scalar_one(self) -> Any:
        """Return the first column of the only row."""
        return self.one()[0]

    @property
    def status(self) -> str | None:
        """What the server calls what it did."""
        return self._answered().statusmessage

    @property
    def rowcount(self) -> int:
        """How many rows were written, or returned."""
        return self._answered().rowcount

    def _answered(self) -> AsyncCursor[Any]:
        if self._cursor.pgresult is None:
            self._connection.wait()
        return self._cursor


class _QueuedCursor(psycopg.AsyncCursor[Any]):
    """Keeps its statement until something is sent that ends with a Sync."""

    def _execute_gen(self, query: Any, params: Any = None, **how: Any) -> Any:
        yield from self._start_query(query)
        yield from self._maybe_prepare_gen(self._convert_query(query, params), **how)


class _SyncedCursor(psycopg.AsyncCursor[Any]):
    """Has the server answer each statement by itself, as it does outside a pipeline.

    Between statements it is idle in its transaction then, and not active: it says so to who asks,
    and ends the transaction of a process that has stopped (idle_in_transaction_session_timeout).
    """

    def _maybe_prepare_gen(self, *given: Any, **more: Any) -> Any:
        yield from super()._maybe_prepare_gen(*given, **more)
        pipeline = self._conn._pipeline  # noqa: SLF001 - there is no public way that does not wait
        assert pipeline is not None
        pipeline._enqueue_sync()  # noqa: SLF001


class OtherServerError(Exception):
    """A transaction that was to be on a known server is on another; nothing of it was done."""


class PipelinedConnection:
    """Executes statements of a transaction without waiting for them; see `transaction`.

    It has of SQLAlchemy's `Connection` what functions of the store use: text alone is executed.
    An error of a statement is raised by a later one, or where an answer is waited for.
    """

    def __init__(
        self,
        connection: sa.Connection,
        longest_idle: float,
        server: str | None,
        answered: Callable[[sa.Connection], None],
    ) -> None:
        self._connection = connection
        self._driver: psycopg.AsyncConnection[Any] = _driver(connection)
        self._context = self._driver.pipeline()
        self._tell_answered = answered
        self._asked_at = self._sent_at = time.monotonic()
        self._is_begun = False
        # A pooler has a process of its own behind a connection, and may give another to the next
        # transaction, which knows nothing of what was prepared on this one.
        self._prepares = False
        self._pipeline: Any = None  # until it is entered
        try:
            self._pipeline = await_only(self._context.__aenter__())
            self._begin(longest_idle, server)
        except BaseException as error:
            self.roll_back(error)
            raise

    def _begin(self, longest_idle: float, server: str | None) -> None:
        """Begin the transaction; wait for it, unless the server is known and says if it is not.

        Until the first answer there is no Sync: where BEGIN or the settings fail, all that was sent
        with them is skipped.
        """
        settings = f"{BEGIN.format(idle=longest_idle * 1000, lock=0)}, ({HOT_PATH}) AS flat"
        self._sent(START, None)
        if server is not None and self.info.get(SERVER) == server and self._is_own_process():
            self._prepares = True
            given = {"process": self.info[PROCESS], "server": server}
            self._settings = self._sent(f"{settings}, {SAME_SERVER} AS checked", given)
        else:
            self._settings = self._sent(settings, None)
            self.wait()
            self._prepares = self._is_own_process()
        if self._prepares and self._driver.prepare_threshold is None:
            # Nothing but what is executed here, by request: plans of other transactions differ.
            self._driver.prepare_threshold = sys.maxsize
            self._driver.prepared_max = _MOST_PREPARED

    def _is_own_process(self) -> bool:
        """Tell whether the server's process is the connection's, as of the last transaction."""
        return self._driver.info.backend_pid == self.info.get(PROCESS)

    @property
    def connection(self) -> Any:
        """The connection of the pool."""
        return self._connection.connection

    @property
    def info(self) -> dict[Any, Any]:
        """What is known of the connection for as long as it is open."""
        return self._connection.info

    @property
    def engine(self) -> sa.Engine:
        """The engine."""
        return self._connection.engine

    def execute(self, statement: sa.TextClause, given: Mapping[str, Any] | None = None) -> Answer:
        """Send a statement."""
        if given is not None:
            given = {
                name: array(value) if isinstance(value, list) else value
                for name, value in given.items()
            }
        return self._sent(_compiled(statement), given)

    def exec_driver_sql(self, statement: str, given: Any = None) -> Answer:
        """Send a statement with the driver's own parameters."""
        return self._sent(statement, given)

    def scalar(self, statement: sa.TextClause, given: Mapping[str, Any] | None = None) -> Any:
        """Send a statement and return the first column of the first row of its answer."""
        return self.execute(statement, given).scalar()

    def tell_at_work(self) -> None:
        """Have a transaction not taken for lost whose client does something else meanwhile.

        No answer is waited for; and the server, which ends what is idle, gets a statement.
        """
        self._tell_answered(self._connection)
        if time.monotonic() - self._sent_at > LONGEST_SILENCE:
            self._sent("SELECT", None)

    def _sent(self, statement: str, given: Any) -> Answer:
        self._sent_at = time.monotonic()
        kind = _SyncedCursor if self._is_begun else _QueuedCursor
        return self._executed(kind, statement, given, prepare=self._prepares)

    def _executed(
        self, kind: type[AsyncCursor[Any]], statement: str, given: Any = None, *, prepare: bool
    ) -> Answer:
        cursor = kind(self._driver, row_factory=namedtuple_row)
        await_only(cursor.execute(statement, given, prepare=prepare))
        return Answer(self, cursor)

    def flush(self) -> None:
        """Send what is queued, and what the socket did not take at once, which psycopg leaves."""
        if self._pipeline.command_queue:
            await_only(self._driver.wait(self._pipeline._communicate_gen()))  # noqa: SLF001
        if self._driver.pgconn.flush():
            await_only(self._driver.wait(_flushing(self._driver.pgconn)))

    def wait(self) -> None:
        """Wait for the answers to all that was sent."""
        self.flush()
        await_only(self._pipeline.sync())
        self._note_answers()

    def _note_answers(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            note_begun(self.info, self._settings.one(), self._asked_at)
        self._tell_answered(self._connection)

    def commit(self) -> None:
        """Commit by one packet with what nobody waited for, and give the connection back."""
        try:
            done = self._executed(_QueuedCursor, "COMMIT", prepare=False)
            self.flush()
            await_only(self._context.__aexit__(None, None, None))
            self._note_answers()
            _check_committed(done)
        except BaseException as error:
            self.roll_back(error)
            raise
        self._connection.close()

    def roll_back(self, error: BaseException) -> None:
        """Undo everything because of an error, which is raised as SQLAlchemy's if it is psycopg's.

        Raises:
            DBAPIError: psycopg's error.
            OtherServerError: the server is not the known one.

        """
        driver = self._driver
        if _is_pipelining(driver) and self._pipeline is not None:
            # Told of the error, it would write what the rest says to a log of its own.
            with suppress(psycopg.Error):
                self.flush()
            with suppress(psycopg.Error):
                await_only(self._context.__aexit__(None, None, None))
        # As SQLAlchemy's own cursors have it: a server that takes no writes is left, too. In a
        # pipeline that psycopg could not leave nothing can be rolled back.
        is_lost = driver.closed or _is_pipelining(driver) or errors.is_read_only(error)
        if is_lost:
            self._connection.invalidate(error)
        else:
            self.info.pop(SERVER, None)
        self._connection.close()  # which rolls back
        if not isinstance(error, psycopg.Error):
            return
        if OTHER_SERVER in str(error):
            raise OtherServerError from error
        raise sa.exc.DBAPIError.instance(
            None, None, error, psycopg.Error, connection_invalidated=is_lost
        ) from error


@asynccontextmanager
async def transaction(
    engine: AsyncEngine,
    server: str | None = None,
    answered: Callable[[sa.Connection], None] = lambda _: None,
) -> AsyncIterator[AsyncConnection]:
    """Take a connection for a transaction whose statements are sent without waiting for answers.

    It is committed unless an error is raised. Plans do not depend on statistics. `answered` is
    called when answers came. On a `server` that is known, BEGIN is not waited for.

    Raises:
        OtherServerError: it is on another server than the given one, and did nothing.

    """
    sent = await greenlet_spawn(_begun, engine, server, answered)
    try:
        yield AsyncConnection(cast("sa.Connection", sent))
    except BaseException as error:
        await greenlet_spawn(sent.roll_back, error)
        raise
    await greenlet_spawn(sent.commit)


def _begun(
    engine: AsyncEngine, server: str | None, answered: Callable[[sa.Connection], None]
) -> PipelinedConnection:
    connection = engine.sync_engine.connect()
    try:
        return PipelinedConnection(connection, engine.longest_idle, server, answered)
    except BaseException:
        connection.close()
        raise


def _check_committed(answer: Answer) -> None:
    """Raise an error if the server answered COMMIT by rolling back, and told no error before."""
    if answer.status != "COMMIT":
        raise psycopg.InternalError(f"COMMIT was answered by {answer.status}")


def _flushing(pgconn: Any) -> Any:
    while pgconn.flush():
        ready = yield Wait.RW
        if ready & Ready.R:  # else neither side would read
            pgconn.consume_input()


def _is_pipelining(driver: psycopg.AsyncConnection[Any]) -> bool:
    return driver.pgconn.pipeline_status != PipelineStatus.OFF


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


@cache
def _compiled(statement: sa.TextClause) -> str:
    """Return a statement as psycopg takes it."""
    return str(statement.compile(dialect=_DIALECT))


_DIALECT = sa.make_url("postgresql+psycopg://").get_dialect()()
