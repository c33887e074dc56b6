"""Engines, and what each connection and transaction must have set.

Nothing here is set for a session: behind a pooler in transaction mode a session is shared with
strangers. So no start-up `options`, which PgBouncer refuses, and no `SET`; the isolation level
goes with each `BEGIN`, everything else is set locally to its transaction.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.model import values
from scrapy_itemgraph.postgres import embedded
from scrapy_itemgraph.tools import logs, url_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

logger = logs.logger(__name__)

T = TypeVar("T")

SLICE = 1000  # rows that one statement of a large batch has at most

DRIVER = "postgresql+psycopg"
SCHEMES = ("postgresql", "postgres", DRIVER)
OLDEST, NEWEST = 15, 18
POOL_SIZE = 3

APPLICATION = "scrapy-itemgraph"

CONNECT_ARGUMENTS: dict[str, Any] = {
    "application_name": APPLICATION,
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

# What every transaction relies on, whatever the server, database or role have as default.
BEGIN = """\
SELECT pg_backend_pid(), set_config('synchronous_commit', 'on', true),
    set_config('TimeZone', 'UTC', true),
    set_config('lock_timeout', '0', true),
    set_config('statement_timeout', '0', true),
    set_config('idle_in_transaction_session_timeout', '{idle:.0f}', true)"""

# Plans that do not depend on statistics (docs/decisions; trials P2).
HOT_PATH = """\
SELECT clock_timestamp(),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('enable_sort', 'off', true),
    set_config('jit', 'off', true),
    set_config('plan_cache_mode', 'force_custom_plan', true)"""


COMMAND_PATIENCE = 30  # seconds that a command waits for a server that is starting or stopping,
QUIET_WAIT = 3  # and those of them after which it says so
START_PAUSE = 0.2
ANNOUNCE = sa.text("SELECT set_config('application_name', :name, true)")

PROCESS = "itemgraph_process"  # the server's, behind a connection; a pooler tells another one
READ_ONLY = "25006"
POOLERS = "08P01"  # of all that PgBouncer says itself

NOW = sa.text("SELECT clock_timestamp()")


@dataclass(frozen=True)
class _Reason:
    """Why a server cannot be used: how to recognise it, and what to say.

    A refused connection carries no SQLSTATE, only the words of a message, which are the server's
    language; what is recognised by neither is quoted as it is.
    """

    states: tuple[str, ...]
    pattern: str
    what: str
    cure: str
    error: type[exceptions.DatabaseUnavailableError] = exceptions.DatabaseUnavailableError


REASONS = (
    _Reason(
        ("28P01",),
        "password authentication failed|no password supplied",
        "refuses the password",
        "Check user and password in ITEMGRAPH_DATABASE_URL",
    ),
    _Reason(
        ("28000",),
        'no pg_hba.conf entry|role ".*" does not exist|authentication failed',
        "refuses the login",
        "Check the user, and the server's pg_hba.conf",
    ),
    _Reason(
        ("3D000",),
        'database ".*" does not exist|no such database',
        "has no such database",
        "Create it with `createdb`, or check the name in ITEMGRAPH_DATABASE_URL",
    ),
    _Reason(
        ("53300",),
        "too many (clients|connections)|connection slots|no more connections",
        "has too many connections",
        "Run fewer processes, or raise its max_connections",
    ),
    _Reason(
        ("57P03",),
        "is (starting up|shutting down)|in recovery mode|not (yet )?accepting connections",
        "is starting or stopping",
        "Try again in a moment",
        exceptions.DatabaseStartingError,
    ),
    _Reason(("53100",), "No space left", "has no disk space left", "Free some"),
    _Reason(
        (READ_ONLY,),
        "read-only transaction",
        "takes no writes",
        "It is a replica, or just becoming the primary; use the primary's address",
    ),
    _Reason(
        (),
        "query_wait_timeout",
        "has no connection free behind its pooler",
        "Raise PgBouncer's default_pool_size above the number of workers: each holds one",
    ),
    _Reason(
        (),
        "Connection refused",
        "refuses connections",
        "Start it, or check host and port in ITEMGRAPH_DATABASE_URL",
        exceptions.DatabaseGoneError,
    ),
    _Reason(
        (),
        "translate host name|resolve host|Name or service not known|getaddrinfo",
        "has an unknown host name",
        "Check the host in ITEMGRAPH_DATABASE_URL",
    ),
    _Reason(
        (),
        "timeout|timed out|No route to host|unreachable|No such file or directory",
        "cannot be reached",
        "Check host and port in ITEMGRAPH_DATABASE_URL, and that it runs",
        exceptions.DatabaseGoneError,
    ),
)
LOST = _Reason(
    ("57P01", "57P02", "57P05", "25P03", "08003", "08006"),
    "closed (the connection )?unexpectedly|terminating connection|connection is (lost|closed)"
    "|no connection to the server|Connection reset|Broken pipe|SSL connection has been closed"
    "|consuming input failed|sending query failed|flushing failed",
    "broke the connection",
    "Look whether it was restarted; what was not committed will be done again",
    exceptions.DatabaseGoneError,
)
OTHER = _Reason((), "", "cannot be used", "Check ITEMGRAPH_DATABASE_URL")

# OperationalErrors that concern the server or the connection; all others are about a statement.
# Without any state a connection was refused or lost.
UNAVAILABLE = ("08", "28", "3D", "53", "57P", "58")
# What another transaction, or who watches over them, did to ours: it may be done again as it was.
PASSING = ("40001", "40P01", "55P03", "57014")
NO_RIGHT = "42501"


def normalise_url(url: str) -> sa.URL:
    """Return the URL with the driver that we use.

    Raises:
        ConfigurationError: it is no URL, or not PostgreSQL's.

    """
    accepted = "postgresql://user:password@host:5432/database"
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError, TypeError):
        # Not quoted: it may hold a password.
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_DATABASE_URL is no URL; give it as {accepted} (special characters in the "
            "password percent-encoded)."
        ) from None
    if url.partition("://")[2].partition("?")[0].count("@") > 1:
        # Not quoted: what stands there is a part of the password.
        raise exceptions.ConfigurationError(
            "ITEMGRAPH_DATABASE_URL has more than one @; write %40 for one in the password."
        )
    if parsed.drivername not in SCHEMES:
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_DATABASE_URL begins with {parsed.drivername!r}; only PostgreSQL is "
            f"supported: {accepted} (also postgres:// and {DRIVER}://)."
        )
    return _with_password_in_place(parsed.set(drivername=DRIVER))


def location(url: sa.URL, *, is_embedded: bool) -> str:
    """Return where a database is, for people: its URL, or the embedded server's directory."""
    if is_embedded and (server := embedded_server(url)):
        return str(server.directory)
    plain = url.set(drivername=SCHEMES[0])
    return url_secrets.shown(plain.render_as_string(hide_password=True))


def embedded_server(url: sa.URL) -> embedded.EmbeddedServer | None:
    """Return the embedded server that this process started or joined at a URL."""
    host = url.query.get("host")
    return embedded.serving(host) if isinstance(host, str) else None


def sync_engine(url: str | sa.URL, **connect: Any) -> sa.Engine:
    """Make an engine for the command line, HTTP and tests; `connect` goes to libpq."""
    parsed = _normalised(url)
    engine = sa.create_engine(parsed, **_engine_options(parsed, **connect))
    sa.event.listen(engine, "begin", _set_up_transaction)
    return engine


def async_engine(
    url: str | sa.URL, *, pool_size: int = POOL_SIZE, longest_idle: float = 0.0
) -> AsyncEngine:
    """Make an engine for the crawl, with that many connections at most.

    A transaction in which nothing happens for `longest_idle` seconds (0: for ever) is ended by the
    server: its locks must not outlast a callback that blocks the event loop, or a stopped process.
    """
    parsed = _normalised(url)
    engine = create_async_engine(
        parsed, pool_size=pool_size, max_overflow=0, **_engine_options(parsed)
    )
    sa.event.listen(engine.sync_engine, "begin", partial(_set_up_transaction, idle=longest_idle))
    return engine


@contextmanager
def errors(url: str | sa.URL | None = None) -> Iterator[None]:
    """Turn the driver's errors about the server or the connection into one clear line.

    It suits `async with` bodies too. The URL, if given, is named without its password.
    """
    try:
        yield
    except sa.exc.DBAPIError as error:
        if not _is_unavailable(error.orig, lost=error.connection_invalidated):
            raise
        raise _unavailable(error.orig, url, lost=error.connection_invalidated) from None
    except psycopg.Error as error:
        if not _is_unavailable(error, lost=False):
            raise
        raise _unavailable(error, url, lost=False) from None


@contextmanager
def all_errors(url: sa.URL) -> Iterator[None]:
    """Turn every error of the driver into one clear line, also one about a statement."""
    try:
        with errors(url):
            yield
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        cure = ""
        if _state(cause) == NO_RIGHT:
            cure = (
                f". Grant the user {url.username!r} CREATE on the schema, or run `scrapy itemgraph "
                "migrate` as a user who has it, and grant the rights on the tables"
            )
        raise exceptions.DatabaseError(
            f"The database refuses: {_first_line(str(cause))}{cure}"
        ) from error


class Starting:
    """Tells whether a start waits: for a server that said once that it is starting or stopping.

    One that is not there is not waited for, unless it went away after saying so: its address may
    be wrong.
    """

    def __init__(self, patience: float) -> None:
        """Take how many seconds to wait in all."""
        self._until = time.monotonic() + patience
        self._has_said_so = False

    def goes_on(self, error: exceptions.DatabaseUnavailableError) -> bool:
        """Tell whether to try again after this error."""
        self._has_said_so |= isinstance(error, exceptions.DatabaseStartingError)
        is_gone = isinstance(error, exceptions.DatabaseGoneError)
        return self._has_said_so and is_gone and time.monotonic() < self._until


def when_up(engine: sa.Engine) -> None:
    """Connect; where the server says that it is starting or stopping, wait for it a while first."""
    starting, is_said = Starting(COMMAND_PATIENCE), time.monotonic() + QUIET_WAIT
    while True:
        try:
            with errors(engine.url), engine.connect():
                return
        except exceptions.DatabaseUnavailableError as error:
            if not starting.goes_on(error):
                raise
            if time.monotonic() > is_said:
                is_said = math.inf
                logger.warning("%s Waiting for it up to %d s", error, COMMAND_PATIENCE)
        time.sleep(START_PAUSE)


def is_passing(error: sa.exc.DBAPIError) -> bool:
    """Tell whether the transaction may succeed when it is done again."""
    return _state(error.orig) in PASSING


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


def hot_path(connection: sa.Connection) -> datetime:
    """Make this transaction's plans independent of statistics, and tell the server's time."""
    now: datetime = connection.exec_driver_sql(HOT_PATH).scalar_one()
    return now


def announce(connection: sa.Connection, what: str, done: int, total: int | None = None) -> None:
    """Let others see how far long work is, in this transaction's name, while it lasts."""
    of = "" if total is None else f"/{total}"
    given = {"name": f"{APPLICATION}: {what} {done}{of}"}
    connection.execute(ANNOUNCE, given)


def _normalised(url: str | sa.URL) -> sa.URL:
    return normalise_url(url if isinstance(url, str) else url.render_as_string(hide_password=False))


def _with_password_in_place(url: sa.URL) -> sa.URL:
    """Move a password given as an option to where everybody hides it; libpq prefers the option."""
    if (given := url.query.get("password")) is None:
        return url
    password = given if isinstance(given, str) else given[-1]
    return url.difference_update_query(["password"]).set(password=password)


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
        "json_deserializer": values.load_json,
        "pool_pre_ping": True,
    }


def _set_up_transaction(connection: sa.Connection, idle: float = 0.0) -> None:
    begin = BEGIN.format(idle=idle * 1000)
    connection.info[PROCESS] = connection.exec_driver_sql(begin).scalar_one()


def _is_unavailable(error: BaseException | None, *, lost: bool) -> bool:
    """Tell errors about the server or the connection from those about a statement."""
    if lost:
        return True
    state = _state(error)
    if state == READ_ONLY:
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return state is None or state.startswith(UNAVAILABLE)


def _state(error: BaseException | None) -> str | None:
    return error.sqlstate if isinstance(error, psycopg.Error) else None


def _unavailable(
    error: BaseException | None, url: str | sa.URL | None, *, lost: bool
) -> exceptions.DatabaseUnavailableError:
    message = str(error or "").strip()
    state = getattr(error, "sqlstate", None)
    reason = LOST if lost else _reason(state, message)
    parsed = None if url is None else _normalised(url)
    server = None if parsed is None else embedded_server(parsed)
    if server is not None:
        is_gone = reason.error is not exceptions.DatabaseUnavailableError
        cure = "It is started again within seconds" if is_gone else reason.cure
        if "ITEMGRAPH_" in cure:  # nobody named this server
            cure = "Look at what it wrote"
        cure += f"; its log is {server.log}"
    else:
        cure = reason.cure
    who = name(parsed) if parsed is not None else "The PostgreSQL server"
    return reason.error(f"{who} {reason.what}. {cure}. ({_first_line(message)})")


def _reason(state: str | None, message: str) -> _Reason:
    for reason in (*REASONS, LOST):
        has_words = state is None or state == POOLERS
        if state in reason.states or (has_words and re.search(reason.pattern, message)):
            return reason
    return OTHER


def name(url: sa.URL) -> str:
    """Name the server of a URL to people: where it is, or that it is ours."""
    server = embedded_server(url)
    if server is not None:
        return f"The embedded PostgreSQL in {server.directory}"
    return f"The PostgreSQL server at {_place(url)}"


def _place(url: sa.URL) -> str:
    """Name the server, database and user of a URL."""
    host = url.query.get("host", url.host)
    named = host if isinstance(host, str) else ",".join(host) if host else "the default host"
    port = f":{url.port}" if url.port else ""
    user = f", user {url.username!r}" if url.username else ""
    return url_secrets.hidden(f"{named}{port} (database {url.database or 'default'!r}{user})")


def _first_line(message: str) -> str:
    """Keep the part of libpq's message that says what happened."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return url_secrets.hidden(lines[0]).rstrip(".") if lines else "no reason given"


def breathe(connection: sa.Connection) -> None:
    """Let the event loop turn once, where one is waiting for this connection's transaction."""
    driver: Any = connection.connection.dbapi_connection
    if hasattr(driver, "run_async"):
        driver.run_async(lambda _: asyncio.sleep(0))


def rest(connection: sa.Connection, count: int) -> None:
    """Let the event loop turn after a step over so many things, if they are many."""
    if count > SLICE:
        breathe(connection)


def slices(
    connection: sa.Connection, given: Sequence[T], size: int = SLICE
) -> Iterator[Sequence[T]]:
    """Yield parts of a sequence, and let the event loop turn between them."""
    for start in range(0, len(given), size):
        if start:
            breathe(connection)
        yield given[start : start + size]
