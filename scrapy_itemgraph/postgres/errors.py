"""Errors of the driver: which concern the server, what they mean in one line, which pass."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy as sa

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres import urls
from scrapy_itemgraph.tools import url_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_ONLY = "25006"

POOLERS = "08P01"  # of all that PgBouncer says itself


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
    # It speaks, so that its address is right.
    _Reason(
        ("57P01", "57P02"),
        "(?!)",  # no words: a connection that breaks off may be anybody's
        "broke the connection",
        "Look whether it was restarted; what was not committed will be done again",
        exceptions.DatabaseStartingError,
    ),
    # What a server says that has no process for a connection; libpq shows no more of it.
    _Reason(
        (),
        "error response during SSL exchange",
        "takes no connection at this moment",
        "Try again in a moment",
        exceptions.DatabaseStartingError,
    ),
    _Reason(("53100",), "No space left", "has no disk space left", "Free some"),
    # libpq says this where the URL asks for a server that takes writes: one is promoted soon.
    _Reason(
        (),
        "session is read-only|server is in hot standby mode",
        "takes no writes yet",
        "It is a standby, and no primary answers: it has to be promoted. On a primary, "
        "default_transaction_read_only is on for the database or the role",
        exceptions.DatabaseStartingError,
    ),
    _Reason(
        (READ_ONLY,),
        "read-only transaction",
        "takes no writes",
        "It is a standby, or just becoming the primary; use the primary's address, or name both "
        "with target_session_attrs=read-write. On a primary, default_transaction_read_only is on "
        "for the database or the role",
    ),
    _Reason(
        (),
        "query_wait_timeout",
        "has no connection free behind its pooler",
        "Raise PgBouncer's default_pool_size",
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

# It closes the connection, too.
NO_TRANSACTIONS = _Reason(
    (),
    "statement pooling mode",
    "is behind a pooler that has no transactions",
    "Set PgBouncer's pool_mode to transaction or session",
)

OTHER = _Reason((), "", "cannot be used", "Check ITEMGRAPH_DATABASE_URL")

# OperationalErrors that concern the server or the connection; all others are about a statement.
# Without any state a connection was refused or lost.
UNAVAILABLE = ("08", "28", "3D", "53", "57P", "58")

# What another transaction, or who watches over them, did to ours: it may be done again as it was.
DEADLOCK = "40P01"
PASSING = ("40001", DEADLOCK, "55P03", "57014")

NO_RIGHT = "42501"


@contextmanager
def translated(url: str | sa.URL | None = None) -> Iterator[None]:
    """Turn the driver's errors about the server or the connection into one clear line.

    It suits `async with` bodies too. The URL, if given, is named without its password.
    """
    try:
        yield
    except sa.exc.TimeoutError:  # of the pool
        raise exceptions.DatabaseUnavailableError(
            "All connections to the database are in use. Try again in a moment"
        ) from None
    except sa.exc.DBAPIError as error:
        if not _is_unavailable(error.orig, lost=error.connection_invalidated):
            raise
        raise _unavailable(error.orig, url, lost=error.connection_invalidated) from None
    except psycopg.Error as error:
        if not _is_unavailable(error, lost=False):
            raise
        raise _unavailable(error, url, lost=False) from None


@contextmanager
def all_translated(url: sa.URL) -> Iterator[None]:
    """Turn every error of the driver into one clear line, also one about a statement."""
    try:
        with translated(url):
            yield
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        said = f"The database refuses: {_first_line(str(cause))}"
        if _state(cause) == NO_RIGHT:
            cure = _right_wanted(str(cause), url.username)
            raise exceptions.MissingRightError(f"{said}{cure}") from error
        raise exceptions.DatabaseError(said) from error


def _right_wanted(message: str, user: str | None) -> str:
    if "for schema" in message:
        return (
            f". Grant the user {user!r} CREATE on the schema, or run `scrapy itemgraph migrate` as "
            "a user who has it, and `scrapy itemgraph grants` for the others"
        )
    return (
        f". The role {user!r} is not for this; the owner of the tables may give it the rights of a "
        f"kind of role: `scrapy itemgraph grants KIND {user}`"
    )


def is_passing(error: sa.exc.DBAPIError) -> bool:
    """Tell whether the transaction may succeed when it is done again."""
    return _state(error.orig) in PASSING


def is_deadlock(error: sa.exc.DBAPIError) -> bool:
    """Tell whether PostgreSQL ended the transaction for the sake of another."""
    return _state(error.orig) == DEADLOCK


def is_read_only(error: BaseException | None) -> bool:
    """Tell whether the server takes no writes, as a standby does."""
    return _state(error) == READ_ONLY


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
    reason = LOST if lost and state != READ_ONLY else _reason(state, message)
    if re.search(NO_TRANSACTIONS.pattern, message):
        reason = NO_TRANSACTIONS
    parsed = None if url is None else urls.normalised(url)
    server = None if parsed is None else urls.embedded_server(parsed)
    if server is not None:
        is_gone = reason.error is not exceptions.DatabaseUnavailableError
        cure = "It is started again within seconds" if is_gone else reason.cure
        if "ITEMGRAPH_" in cure:  # nobody named this server
            cure = "Look at what it wrote"
        cure += f"; its log is {server.cluster.log}"
    else:
        cure = reason.cure
    who = urls.name(parsed) if parsed is not None else "The PostgreSQL server"
    return reason.error(f"{who} {reason.what}. {cure}. ({_first_line(message)})")


def _reason(state: str | None, message: str) -> _Reason:
    for reason in (*REASONS, LOST):
        has_words = state is None or state == POOLERS
        if state in reason.states or (has_words and re.search(reason.pattern, message)):
            return reason
    return OTHER


def _first_line(message: str) -> str:
    """Keep the part of libpq's message that says what happened."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return url_secrets.hidden(lines[0]).rstrip(".") if lines else "no reason given"
