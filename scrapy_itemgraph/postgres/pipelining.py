"""Statements sent in libpq's pipeline mode: nobody waits for an answer but who reads it.

SQLAlchemy keeps the pool, the transaction and the errors; the statements go to psycopg itself,
which costs half of what they cost through SQLAlchemy's cursors, and a third where several are
under way (decision 22).
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import psycopg
import sqlalchemy as sa
from psycopg.pq import PipelineStatus
from psycopg.rows import namedtuple_row
from psycopg.waiting import Ready, Wait
from sqlalchemy.util import await_only

from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.postgres.arrays import array
from scrapy_itemgraph.postgres.engine import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from psycopg import AsyncCursor, AsyncPipeline


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
    def rowcount(self) -> int:
        """How many rows were written, or returned."""
        return self._answered().rowcount

    def _answered(self) -> AsyncCursor[Any]:
        if self._cursor.pgresult is None:
            self._connection.wait()
        return self._cursor


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


class PipelinedConnection:
    """Executes statements of a transaction without waiting for them; see `pipelined`.

    It has of SQLAlchemy's `Connection` what functions of the store use: text alone is executed.
    An error of a statement is raised by a later one, or where an answer is waited for.
    """

    def __init__(
        self, connection: sa.Connection, pipeline: AsyncPipeline, answered: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._driver: psycopg.AsyncConnection[Any] = _driver(connection)
        self._pipeline = pipeline
        self._tell_answered = answered
        self._sent_at = time.monotonic()
        # A pooler has a process of its own behind a connection, and may give another to the next
        # transaction, which knows nothing of what was prepared on this one.
        self._prepares = self._driver.info.backend_pid == connection.info.get(PROCESS)
        if self._prepares and self._driver.prepare_threshold is None:
            # Nothing but what is executed here, by request: plans of other transactions differ.
            self._driver.prepare_threshold = sys.maxsize
            self._driver.prepared_max = _MOST_PREPARED

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
        self._tell_answered()
        if time.monotonic() - self._sent_at > LONGEST_SILENCE:
            self._sent("SELECT", None)

    def _sent(self, statement: str, given: Any) -> Answer:
        self._sent_at = time.monotonic()
        cursor = _SyncedCursor(self._driver, row_factory=namedtuple_row)
        await_only(cursor.execute(statement, given, prepare=self._prepares))
        return Answer(self, cursor)

    def flush(self) -> None:
        """Send what the socket did not take at once, which psycopg leaves."""
        if self._driver.pgconn.flush():
            await_only(self._driver.wait(_flushing(self._driver.pgconn)))

    def wait(self) -> None:
        """Wait for the answers to all that was sent."""
        self.flush()
        await_only(self._pipeline.sync())
        self._tell_answered()


@contextmanager
def pipelined(
    connection: sa.Connection, answered: Callable[[], None] = lambda: None
) -> Iterator[sa.Connection]:
    """Send what is executed within without waiting for answers, where an event loop runs.

    `answered` is called when answers came. All is done, or its error raised, at the end.
    """
    driver = _driver(connection)
    if not isinstance(driver, psycopg.AsyncConnection):
        yield connection
        return
    context = driver.pipeline()
    try:
        pipeline = await_only(context.__aenter__())
        try:
            sent = PipelinedConnection(connection, pipeline, answered)
            yield cast("sa.Connection", sent)
            sent.flush()
        except BaseException:
            # Told of the error, it would write what the rest says to a log of its own.
            with suppress(psycopg.Error):
                await_only(context.__aexit__(None, None, None))
            raise
        await_only(context.__aexit__(None, None, None))
        answered()
    except BaseException as error:
        # As SQLAlchemy's own cursors have it: a server that takes no writes is left, too. In a
        # pipeline that psycopg could not leave nothing can be rolled back.
        is_lost = driver.closed or _is_pipelining(driver) or errors.is_read_only(error)
        if is_lost:
            connection.invalidate(error)
        if not isinstance(error, psycopg.Error):
            raise
        raise sa.exc.DBAPIError.instance(
            None, None, error, psycopg.Error, connection_invalidated=is_lost
        ) from error


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
