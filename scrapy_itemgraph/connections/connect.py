"""Connecting: an engine for a command, with the embedded server behind it where none is named."""

from __future__ import annotations

import math
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import event

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.postgres import backend_activity, errors, migrate, urls
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    import psycopg
    from sqlalchemy import Connection, Engine

    from scrapy_itemgraph.connections.patience import Patience


_SOON = 5  # seconds after which a server that says nothing is taken to be away
_IMPATIENT = {
    "connect_timeout": _SOON,
    "keepalives_idle": _SOON,
    "keepalives_interval": 1,
    "tcp_user_timeout": _SOON * 1000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """Where a database is, and its schema's versions before and after a migration."""

    location: str
    is_embedded: bool
    before: str | None
    after: str


@contextmanager
def connected(
    url: str | None,
    data_dir: Path,
    patience: Patience | None,
    *,
    postgres_bin: Path | None = None,
    connections: int | None = None,
    lock_wait: float = 0.0,
) -> Iterator[tuple[Engine, datetime | None]]:
    """Connect to the server at `url`, or to the embedded one, which stays up meanwhile."""
    with ExitStack() as stack:
        alone_since = None
        is_embedded = url is None
        if url is None:
            longest_start = 0.0 if patience is None else patience.longest
            started = EmbeddedServer.start(data_dir, postgres_bin, patience=longest_start)
            server = stack.enter_context(closing(started))
            url, alone_since = server.url, server.alone_since
        longest = {} if patience is None else {"connect_timeout": math.ceil(patience.longest) + 5}
        engine = engines.sync_engine(url, connections=connections, lock_wait=lock_wait, **longest)
        stack.callback(engine.dispose)
        if connections is not None:
            stack.enter_context(_ended(engine))
        if patience is not None:
            stack.enter_context(patience.over(engine))
        engines.when_up(engine, is_known=is_embedded)
        yield engine, alone_since


@contextmanager
def beside(engine: Engine) -> Iterator[Engine]:
    """Make an engine of one connection to the same server, for what has to know soon."""
    one = engines.sync_engine(engine.url, connections=1, lock_wait=_SOON, **_IMPATIENT)
    try:
        with _ended(one):
            yield one
    finally:
        one.dispose()


@contextmanager
def _ended(engine: Engine) -> Iterator[None]:
    """End at last what threads still ask of an engine, for the server may never answer them.

    What else they do with a connection they may finish; it is closed as they give it back.
    """
    opened: WeakSet[psycopg.Connection[Any]] = WeakSet()
    event.listen(engine, "connect", lambda _, record: opened.add(record.driver_connection))
    try:
        yield
    finally:
        event.listen(engine, "checkin", lambda _, record: record.close())
        for connection in list(opened):
            if backend_activity.is_waiting(connection):
                backend_activity.cut(connection)


def migrated(
    url: str | None,
    data_dir: Path,
    patience: Patience | None,
    reached: Callable[[int, int], None] | None,
    *,
    postgres_bin: Path | None = None,
    force: bool = False,
) -> Migrated:
    """Make the schema at `url`, or bring it up to date, as `ItemGraph.migrate` says."""
    with (
        connected(url, data_dir, patience, postgres_bin=postgres_bin) as (engine, _),
        errors.all_translated(engine.url),
        engine.begin() as connection,
    ):
        engines.check_version(connection)
        before = migrate.current(connection)
        if migrate.is_behind(connection) and not force:
            _refuse_processes(connection)
        migrate.upgrade(connection, reached)
        return Migrated(
            location=urls.location(engine.url, is_embedded=url is None),
            is_embedded=url is None,
            before=before,
            after=migrate.head(),
        )


def ensure_schema(connection: Connection, *, auto: bool, alone_since: datetime | None) -> None:
    """Make sure that the schema is this code's; migrate if `auto`, or if the database is empty.

    `alone_since` is when the embedded server started with nobody else: older processes are dead.

    Raises:
        OperationError: while a process of an older version lives.
        SchemaVersionError: it is another one, and stays as it is.

    """
    if auto and migrate.is_behind(connection):
        if alone_since is not None:
            processes.end_leases(connection, alone_since)
        _refuse_processes(connection)
    migrate.ensure(connection, auto=auto)
    if alone_since is not None:
        processes.end_leases(connection, alone_since)


def _refuse_processes(connection: Connection) -> None:
    """Refuse to change the schema that processes of an older version work with."""
    for one in processes.living(connection):
        raise OperationError(
            f"{one.kind} {one.id} (process {one.process_id} on {one.host}) runs, and its code does "
            "not work with a newer schema; stop it first, or run `scrapy itemgraph migrate --force`"
        )
