"""The servers that frontiers are kept on: each is started once, and serves all rounds."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from conftest import new_database

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Backend:
    """Nowhere: what has its frontier in its own process and files."""

    pid: int = 0

    @contextmanager
    def emptied(self) -> Iterator[dict[str, str]]:
        """Be empty; yield the settings that say where it is."""
        yield {}

    def wal(self) -> int:
        """Return the bytes of WAL written so far."""
        return 0

    def outstanding(self) -> int:
        """Return how much work is left in what was crawled last."""
        return 0


@dataclass
class Redis(Backend):
    """A Redis that keeps all in memory, which is the fastest it can be."""

    socket: str = ""

    @contextmanager
    def emptied(self) -> Iterator[dict[str, str]]:
        """Forget all keys."""
        subprocess.run(
            ["redis-cli", "-s", self.socket, "flushall"], check=True, capture_output=True
        )
        yield {"REDIS_URL": f"unix://{self.socket}"}


@dataclass
class Postgres(Backend):
    """An embedded PostgreSQL as the add-on starts it; each run has a new database."""

    url: str = ""
    template: str = ""
    database: str = ""

    @contextmanager
    def emptied(self) -> Iterator[dict[str, str]]:
        """Make a migrated database without anything in it, and a checkpoint."""
        with new_database(self.url, self.template) as self.database:
            self.ask("CHECKPOINT")  # so that none of another's falls into the run
            yield {"ITEMGRAPH_DATABASE_URL": self.database}

    def wal(self) -> int:
        """Return the bytes of WAL written so far."""
        [(written,)] = self.ask("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        return int(written)

    def outstanding(self) -> int:
        """Return how many pieces of work are left in the run's database."""
        [(count,)] = self.ask("SELECT count(*) FROM work", self.database)
        return count

    def version(self) -> str:
        """Return the server's version."""
        [(version,)] = self.ask("SHOW server_version")
        return str(version)

    def ask(self, statement: str, url: str = "") -> list[tuple]:
        """Return the rows of a statement that runs outside a transaction."""
        engine = engines.sync_engine(url or self.url)
        try:
            with engine.connect() as connection:
                admin = connection.execution_options(isolation_level="AUTOCOMMIT")
                result = admin.execute(sa.text(statement))
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()


@contextmanager
def postgres(directory: Path) -> Iterator[Postgres]:
    """Run an embedded PostgreSQL with the settings that it has in a crawl."""
    server = EmbeddedServer.start(directory)
    try:
        with new_database(server.url) as template:
            engine = engines.sync_engine(template)
            with engine.begin() as connection:
                migrate.ensure(connection, auto=True)
            engine.dispose()
            backend = Postgres(server.cluster.ensure_running()[0].pid, server.url, template)
            [(durable,)] = backend.ask("SHOW fsync")
            assert durable == "on"
            yield backend
    finally:
        server.close()


@contextmanager
def redis(directory: Path) -> Iterator[Redis]:
    """Run a Redis that listens on a Unix socket and writes nothing to disk."""
    socket = str(directory / "redis.sock")
    given = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(
        ["redis-server", *given, "--dir", directory], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            asked = ["redis-cli", "-s", socket, "ping"]
            if b"PONG" in subprocess.run(asked, check=False, capture_output=True).stdout:
                break
            time.sleep(0.02)
        else:
            raise SystemExit("redis-server does not answer")
        yield Redis(process.pid, socket)
    finally:
        process.terminate()
        process.wait()


def start(name: str, directory: Path):
    """Start "postgresql" or "redis", as a context."""
    return {"postgresql": postgres, "redis": redis}[name](directory)
