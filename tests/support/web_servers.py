"""`scrapy itemgraph serve` in a process of its own, and requests to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpx

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import urls
from support import processes
from support.commands_run import TASKS
from support.graphs import Crawl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import sqlalchemy as sa
    from starlette.types import ASGIApp

    from scrapy_itemgraph.model.roles import RoleKind

SCRAPY = [sys.executable, "-m", "scrapy", "itemgraph"]
PATIENCE = 120.0  # seconds; a busy machine takes half a minute to start a process


@dataclass(frozen=True)
class Server:
    """A server that runs, and where."""

    url: str
    line: str
    database: str | None
    process: subprocess.Popen[str]
    client: httpx.Client

    @property
    def port(self) -> int:
        """Where it listens."""
        found = urlsplit(self.url).port
        assert found is not None
        return found

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send a request; a body as JSON."""
        given = {} if body is None else {"json": body}
        return self.client.request(method, self.url.rstrip("/") + path, **given, **options)

    def get(self, path: str, **options: Any) -> Any:
        """Return the document at a path."""
        answer = self.ask("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stop(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """End the server, and return its exit code and what it wrote to standard error."""
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors

    def itemgraph(self, *arguments: str) -> Any:
        """Run a command on the same database, and return its document."""
        return run(self.database, *arguments)


def run(database: str, *arguments: str) -> Any:
    """Run a command on a database, and return its document."""
    setting = f"ITEMGRAPH_DATABASE_URL={database}"
    done = processes.run(
        [*SCRAPY, *arguments, "--json", "-s", setting],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def serving(database: str | None, *arguments: str, cwd: Path | None = None) -> Iterator[Server]:
    """Serve a database on a free port; None: the embedded one that the arguments name."""
    named = [] if database is None else ["-s", f"ITEMGRAPH_DATABASE_URL={database}"]
    process = processes.Popen(
        [*SCRAPY, "serve", "--port", "0", *arguments, *named],
        cwd=cwd or tempfile.gettempdir(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, (line, process.communicate(timeout=PATIENCE))
        url = found[0].replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            yield Server(url, line, database, process, client)
    finally:
        if process.poll() is None:
            process.terminate()
        if not process.stdout.closed:
            process.communicate(timeout=PATIENCE)


def asked(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    client: tuple[str, int] = ("127.0.0.1", 1),
    host: str = "localhost",
    scheme: str = "http",
    **options: Any,
) -> httpx.Response:
    """Send one request to an application in this process, and return the answer."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=client)
        base = f"{scheme}://{host}"
        async with httpx.AsyncClient(transport=transport, base_url=base) as one:
            return await one.request(method, path, **options)

    return asyncio.run(ask())


@contextmanager
def crawl_of(url: str, name: str = "books") -> Iterator[Crawl]:
    """Yield a crawl with two tasks, whose changes are to be committed."""
    engine = engines.sync_engine(url)
    with engine.connect() as connection:
        crawl = Crawl(connection, name)
        crawl.register(**TASKS)
        connection.commit()
        yield crawl
        connection.commit()
    engine.dispose()


@contextmanager
def role_of(url: str, name: str, kind: RoleKind) -> Iterator[str]:
    """Make a role of a kind for a database, and yield the URL with it."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'sesame'")
    with ItemGraph.open(url) as graph:
        graph.database.grants(kind, name, apply=True)
    of_role = urls.normalise_url(url).set(username=name, password="sesame")
    try:
        yield of_role.render_as_string(hide_password=False)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')
        engine.dispose()


def encoded(name: str) -> str:
    """Return a name as it stands in a path."""
    return quote(name, safe="")


def rows(url: str, sql: str) -> list[sa.Row]:
    """Return what a query finds."""
    engine = engines.sync_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(sql).all()
    engine.dispose()
    return found
