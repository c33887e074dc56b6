"""Engines, and what each connection and transaction must have set.

Nothing here is set for a session: behind a pooler in transaction mode a session is shared with
strangers. So no start-up `options`, which PgBouncer refuses, and no `SET`; the isolation level
goes with each `BEGIN`, everything else is set locally to its transaction.
"""

from __future__ import annotations

import math
import select
import time
from functools import partial
from typing import Any

import psycopg
import sqlalchemy as sa

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.postgres import errors, loaders, urls
from scrapy_itemgraph.postgres.async_engine import AsyncEngine
from scrapy_itemgraph.postgres.programs import NEWEST, OLDEST
from scrapy_itemgraph.postgres.server_clock import CLOCK, ServerClock
from scrapy_itemgraph.tools import logs

logger = logs.logger(__name__)

POOL_SIZE = 2  # one claims while the other commits
POOL_WAIT = 10  # seconds that a thread waits for a connection of a pool

APPLICATION = "scrapy-itemgraph"

CONNECT_ARGUMENTS: dict[str, Any] = {
    "application_name": APPLICATION,
    "client_encoding": "UTF8",  # a role may have another, which cannot say every text
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

# PostgreSQL has it from 17 on, and refuses to set what it does not know.
NO_TRANSACTION_TIMEOUT = """\
CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
        THEN set_config('transaction_timeout', '0', true) END"""

# Which server and database: when it was started, and where a table is stored.
_WHERE = """\
concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
        pg_relation_filepath(to_regclass('crawls')))"""

START = "BEGIN ISOLATION LEVEL READ COMMITTED"

# What every transaction relies on, whatever the server, database or role have as default: psycopg
# reads moments and periods in one style alone, and a null in an array may be the text NULL.
BEGIN = f"""\
SELECT pg_backend_pid(), CAST(extract(epoch FROM clock_timestamp()) AS float8) AS told,
    concat(set_config('synchronous_commit', 'on', true),
        set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, MDY', true),
        set_config('IntervalStyle', 'postgres', true), set_config('array_nulls', 'on', true),
        set_config('extra_float_digits', '1', true), {NO_TRANSACTION_TIMEOUT},
        set_config('lock_timeout', '{{lock:.0f}}', true),
        set_config('statement_timeout', '0', true),
        set_config('idle_in_transaction_session_timeout', '{{idle:.0f}}', true)) AS settings,
    {_WHERE} AS server"""  # noqa: S608 - our own text

# Plans that do not depend on statistics (docs/decisions; trials P2).
HOT_PATH = """\
SELECT count(set_config(name, 'off', true))
FROM unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin',
    'enable_sort', 'jit']) AS flat(name)"""

# An error where it is not this process of this server. What follows it in a pipeline is skipped.
OTHER_SERVER = "itemgraph: another server"
SAME_SERVER = f"""\
CASE WHEN pg_backend_pid() = CAST(%(process)s AS int) AND {_WHERE} = CAST(%(server)s AS text)
        THEN 0 ELSE CAST(concat('{OTHER_SERVER} ', pg_backend_pid()) AS int) END"""

COMMAND_PATIENCE = 30  # seconds that a command waits for a server that is starting or stopping,
QUIET_WAIT = 3  # and those of them after which it says so
START_PAUSE = 0.2
ANNOUNCE = sa.text("SELECT set_config('application_name', :name, true)")

PROCESS = "itemgraph_process"  # the server's, behind a connection; a pooler tells another one
# Which server and database a transaction is on: when that was started, and where a table is stored.
SERVER = "itemgraph_server"
USED = "itemgraph_used"  # when its last transaction began, by `time.monotonic`
TRUSTED_FOR = 30  # seconds for which an idle connection is not asked whether it still works

NOW = sa.text("SELECT clock_timestamp()")


def sync_engine(
    url: str | sa.URL, *, connections: int | None = None, lock_wait: float = 0.0, **connect: Any
) -> sa.Engine:
    """Make an engine for the command line, HTTP and tests; `connect` goes to libpq.

    With `connections` it has that many at most, for threads that share it; who waits for one gives
    up after ten seconds. A lock is waited for `lock_wait` seconds (0: for ever).
    """
    parsed = urls.normalised(url)
    options = _engine_options(parsed, **connect)
    if connections is not None:
        options |= {"pool_size": connections, "max_overflow": 0, "pool_timeout": POOL_WAIT}
    engine = sa.create_engine(parsed, **options)
    sa.event.listen(engine, "begin", partial(_set_up_transaction, lock=lock_wait))
    _listen(engine, ServerClock())
    return engine


def async_engine(
    url: str | sa.URL, *, pool_size: int = POOL_SIZE, longest_idle: float = 0.0
) -> AsyncEngine:
    """Make an engine for the crawl, with that many connections at most.

    A transaction in which nothing happens for `longest_idle` seconds (0: for ever) is ended by the
    server: its locks must not outlast a callback that blocks the event loop, or a stopped process.
    """
    parsed = urls.normalised(url)
    options: dict[str, Any] = {**_engine_options(parsed), "pool_reset_on_return": None}
    engine = AsyncEngine(parsed, pool_size=pool_size, max_overflow=0, **options)
    engine.longest_idle = longest_idle
    sa.event.listen(engine.sync_engine, "reset", _roll_back_what_is_open)
    sa.event.listen(engine.sync_engine, "begin", partial(_begin_transaction, idle=longest_idle))
    _listen(engine.sync_engine, ServerClock(hears_always=True))
    sa.event.listen(engine.sync_engine, "connect", _begin_by_ourselves)
    return engine


class Starting:
    """Tells whether a start waits: for a server that is known to be at this address.

    That is one that is our own, that has let us in, or that said that it is starting or stopping.
    Any other is not waited for: its address may be wrong.
    """

    def __init__(self, patience: float, *, is_known: bool = False) -> None:
        self._until = time.monotonic() + patience  # seconds
        self.is_known = is_known

    def goes_on(self, error: exceptions.DatabaseUnavailableError) -> bool:
        """Tell whether to try again after this error."""
        self.is_known |= isinstance(error, exceptions.DatabaseStartingError)
        is_gone = isinstance(error, exceptions.DatabaseGoneError)
        return self.is_known and is_gone and time.monotonic() < self._until


def when_up(engine: sa.Engine, *, is_known: bool = False) -> None:
    """Connect; a server that is known, or says that it is starting or stopping, is waited for."""
    starting = Starting(COMMAND_PATIENCE, is_known=is_known)
    is_said = time.monotonic() + QUIET_WAIT
    while True:
        try:
            with errors.translated(engine.url), engine.connect():
                return
        except exceptions.DatabaseUnavailableError as error:
            if not starting.goes_on(error):
                raise
            if time.monotonic() > is_said:
                is_said = math.inf
                logger.warning("%s Waiting for it up to %d s", error, COMMAND_PATIENCE)
        time.sleep(START_PAUSE)


def server_version(connection: sa.Connection) -> int:
    """Return the server's major version."""
    number: str = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
    return int(number) // 10_000


def check_version(connection: sa.Connection) -> int:
    """Refuse a server that is too old; warn of one that is newer than our tests."""
    version = server_version(connection)
    if version < OLDEST:
        raise exceptions.DatabaseError(
            f"The server is PostgreSQL {version}; scrapy-itemgraph needs {OLDEST} to {NEWEST}. "
            "Upgrade it, or leave ITEMGRAPH_DATABASE_URL out to use the embedded one."
        )
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise exceptions.DatabaseError(
            f"The database's encoding is {encoding}, which cannot hold every text; make one with "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    if version > NEWEST:
        logger.warning(
            "The server is PostgreSQL %d; scrapy-itemgraph is tested with %d to %d",
            version,
            OLDEST,
            NEWEST,
            extra={"action": "server_untested"},
        )
    return version


def hot_path(connection: sa.Connection) -> None:
    """Make this transaction's plans independent of statistics."""
    connection.exec_driver_sql(HOT_PATH)


def announce(connection: sa.Connection, what: str, done: int, total: int | None = None) -> None:
    """Let others see how far long work is, in this transaction's name, while it lasts."""
    of = "" if total is None else f"/{total}"
    given = {"name": f"{APPLICATION}: {what} {done}{of}"}
    connection.execute(ANNOUNCE, given)


def connect_arguments(engine: sa.Engine | AsyncEngine) -> dict[str, Any]:
    """Return what a connection beside the engine's is made with, by psycopg itself."""
    given = engine.dialect.create_connect_args(engine.url)[1]
    return {**{k: v for k, v in CONNECT_ARGUMENTS.items() if k not in engine.url.query}, **given}


def _engine_options(url: sa.URL, **connect: Any) -> dict[str, Any]:
    wanted = CONNECT_ARGUMENTS | connect
    arguments = {k: v for k, v in wanted.items() if k not in url.query}
    return {
        # Prepared statements break behind older PgBouncers, and get generic plans.
        "connect_args": {**arguments, "prepare_threshold": None},
        "isolation_level": "READ COMMITTED",
        "json_deserializer": input_checks.load_json,
    }


def _listen(engine: sa.Engine, clock: ServerClock) -> None:
    sa.event.listen(engine, "connect", partial(_set_up_connection, clock))
    sa.event.listen(engine, "checkout", partial(_check_connection, engine.dialect))
    sa.event.listen(engine, "handle_error", _leave_standby)


def _set_up_connection(clock: ServerClock, _: Any, record: sa.pool.ConnectionPoolEntry) -> None:
    driver: Any = record.driver_connection
    loaders.register(driver)
    record.info[CLOCK] = clock
    record.info[USED] = time.monotonic()


def _begin_by_ourselves(dbapi_connection: Any, _: sa.pool.ConnectionPoolEntry) -> None:
    """Have psycopg begin no transaction: it would wait for the answer to that alone."""
    dbapi_connection.autocommit = True


def _roll_back_what_is_open(
    dbapi_connection: Any, _: sa.pool.ConnectionPoolEntry, state: sa.pool.PoolResetState
) -> None:
    """Roll back a connection that is given back, unless its transaction is over.

    psycopg may yield to the loop even where it has nothing to send, and who is cancelled there
    would find SQLAlchemy's error in the log.
    """
    status = dbapi_connection.info.transaction_status
    if state.asyncio_safe and status != psycopg.pq.TransactionStatus.IDLE:
        dbapi_connection.rollback()


def _check_connection(
    dialect: sa.Dialect, dbapi_connection: Any, record: sa.pool.ConnectionPoolEntry, _: Any
) -> None:
    """Replace the connections of the pool if the server closed this one while it was idle.

    A server that goes down says so, and the socket has it to read. A statement would ask the same,
    and be a transaction more for each one that is begun.
    """
    driver: Any = record.driver_connection
    if time.monotonic() - record.info[USED] < TRUSTED_FOR and not _has_input(driver):
        return
    try:
        dialect.do_ping(dbapi_connection)
    except psycopg.Error as error:
        raise sa.exc.InvalidatePoolError from error


def _has_input(driver: Any) -> bool:
    """Tell whether a connection that asked for nothing has something to read, or is broken."""
    if driver.closed:
        return True
    poll = select.poll()
    poll.register(driver.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _set_up_transaction(connection: sa.Connection, idle: float = 0.0, lock: float = 0.0) -> None:
    begin = BEGIN.format(idle=idle * 1000, lock=lock * 1000)
    asked = time.monotonic()
    note_begun(connection.info, connection.exec_driver_sql(begin).one(), asked)


def _begin_transaction(connection: sa.Connection, idle: float) -> None:
    connection.exec_driver_sql(START)
    _set_up_transaction(connection, idle=idle)


def note_begun(info: dict[Any, Any], row: Any, asked: float) -> None:
    """Keep what the answer to BEGIN says of the server; `asked` is a moment of `time.monotonic`."""
    info[CLOCK].note(row.told, asked, time.monotonic())
    info[PROCESS], info[SERVER] = row[0], row.server
    info[USED] = asked


def _leave_standby(context: sa.engine.ExceptionContext) -> None:
    """Give up connections to a server that takes no writes: another one is the primary now."""
    if errors.is_read_only(context.original_exception):
        context.is_disconnect = True
