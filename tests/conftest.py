"""The ladder of databases that tests stand on.

`server_url` → `template` (migrated once) → `database` (a clone of one's own) → `engine`; and
`connection`, a transaction that is rolled back, where nothing has to be committed.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support import logs, processes, servers

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate, urls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Processes that are forked beside gRPC's threads would crash now and then. It is read as gRPC is
# imported, which the conftest of a folder does before pytest is configured.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


def pytest_configure() -> None:
    """Have commands write to pipes as they do for users: whoever imports readline sets COLUMNS."""
    os.environ.pop("COLUMNS", None)
    processes.fork_from_now_on()


def pytest_unconfigure() -> None:
    """End the process that others were forked from."""
    processes.forks.close()


def pytest_ignore_collect(collection_path, config) -> bool | None:
    """Leave what runs in the reactor to a process with pytest-twisted: `make test-reactor`."""
    is_of_reactor = collection_path.name == "reactor" and collection_path.parent.name == "tests"
    return True if is_of_reactor and not config.pluginmanager.has_plugin("twisted") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep tests as pytest compiles them, even where Python is told to write no bytecode.

    Each process of pytest compiles all of them, or finds what another one did.
    """
    was = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = was


def pytest_collection_modifyitems(items) -> None:
    """Leave slow proofs to `make chaos`."""
    if os.environ.get("ITEMGRAPH_TEST_SLOW") != "1":
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: `make chaos` runs it"))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a directory of the test's own, which PostgreSQL's account can pass to."""
    with servers.open_directory() as directory:
        yield directory
        logs.gather()


@pytest.fixture(autouse=True)
def _clean_logs(request) -> Iterator[None]:
    """Fail a test whose processes left in their logs what they should not; see `logs`."""
    yield
    expected = [text for mark in request.node.iter_markers("tracebacks") for text in mark.args]
    found = logs.complaints(expected)
    if found:
        pytest.fail("\n\n".join(found), pytrace=False)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Where the server is, by the environment or embedded."""
    # Each database that is made or dropped has all buffers looked through three times.
    with servers.server(shared_buffers="128MB") as url:
        yield url


@contextmanager
def new_database(server_url: str, template: str | None = None) -> Iterator[str]:
    """Make a database, by default an empty one, yield its URL, and drop it.

    Its files are copied: PostgreSQL's own way logs each page, which costs four times the CPU.
    """
    url = urls.normalise_url(server_url)
    name = f"itemgraph_test_{uuid.uuid4().hex}"
    origin = urls.normalise_url(template).database if template else "template1"
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {origin} STRATEGY FILE_COPY")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database(server_url) -> Iterator[str]:
    """Yield a database without our schema."""
    with new_database(server_url) as url:
        yield url


@pytest.fixture(scope="session")
def template(server_url) -> Iterator[str]:
    """Yield a migrated database, to be cloned and not to be used."""
    with new_database(server_url) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        yield url


@pytest.fixture
def database(server_url, template) -> Iterator[str]:
    """Yield a database of the test's own, for commits and concurrency."""
    with new_database(server_url, template) as url:
        yield url


@pytest.fixture
def engine(database) -> Iterator[sa.Engine]:
    """Yield an engine on the test's own database."""
    engine = engines.sync_engine(database)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def shared_engine(server_url, template) -> Iterator[sa.Engine]:
    """Yield an engine on the database that tests share and leave unchanged."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture
def connection(shared_engine) -> Iterator[sa.Connection]:
    """Yield a connection whose transaction is rolled back."""
    with shared_engine.connect() as connection, connection.begin() as transaction:
        yield connection
        if transaction.is_active:
            transaction.rollback()
