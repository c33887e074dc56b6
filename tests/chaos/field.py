"""The field: a site, a database behind a proxy, and workers."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
import psycopg
import sites
import sqlalchemy as sa
from projects import Project
from proxies import Proxy, proxy

from chaos import spiders
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.postgres.server_sharing import EmbeddedServer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEASE = 5.0  # seconds
PATIENCE = 180.0
DONE = "SELECT count(*) FROM results WHERE is_successful"
HELD = """
    SELECT count(*) FROM work w JOIN workers k ON k.id = w.worker_id
    WHERE w.token IS NOT NULL AND k.process_id = ANY (%s)
"""


@dataclass(eq=False)
class Field:
    """What faults strike; `url` leads to the database directly, workers go through the proxy."""

    directory: Path
    project: Project
    proxy: Proxy
    url: str
    workers: list[subprocess.Popen]
    site: sites.Site
    struck: set[int] = field(default_factory=set)  # processes that a fault has ended

    # Workers

    def start(self) -> subprocess.Popen:
        """Start one more worker."""
        return self.project.start("crawl", "s")

    def replace(self, *ended: subprocess.Popen) -> None:
        """Start a worker for each that a fault has ended."""
        for worker in ended:
            self.struck.add(worker.pid)
            worker.wait(PATIENCE)
            self.workers[self.workers.index(worker)] = self.start()

    def wait_until_it_crawls(self, worker: subprocess.Popen) -> None:
        """Wait until a worker has opened its spider: signals that come earlier end any program."""
        until(lambda: "Spider opened" in self.project.log(worker) or worker.poll() is not None)

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended."""
        return all(worker.poll() is not None for worker in self.workers)

    # The database

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """Yield a connection that does not go through the proxy."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield connection

    def ask(self, statement: str, *given: object) -> int:
        """Return a number; while the server is away it is asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.connection() as connection:
                    row = connection.execute(statement, given or None).fetchone()
                    assert row is not None
                    return int(row[0])
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def done(self) -> int:
        """Return how many results there are."""
        return self.ask(DONE)

    def claims_of(self, *processes: int) -> int:
        """Return how many pieces of work processes have claimed."""
        return self.ask(HELD, list(processes))

    def signal_postgres(self, number: int) -> None:
        """Send a signal to the postmaster; we start it again, as any process that uses it does."""
        pid = self.directory / ".scrapy/itemgraph/cluster/postmaster.pid"
        with suppress(psutil.NoSuchProcess):
            psutil.Process(int(pid.read_text().split()[0])).send_signal(number)
        time.sleep(0.1)


def until(holds: Callable[[], object], seconds: float = PATIENCE) -> float:
    """Wait until something holds; return how many seconds that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - began


@contextmanager
def open_field(directory: Path, pages: int, workers: int) -> Iterator[Field]:
    """Start a site, an embedded server and workers of a new crawl; end what is left of them."""
    with ExitStack() as stack:
        site = stack.enter_context(sites.site())
        keeper = EmbeddedServer.start(directory / ".scrapy/itemgraph")
        stack.callback(keeper.close)
        engine = engines.sync_engine(keeper.url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        between, through = stack.enter_context(proxy(engine))
        engine.dispose()
        project = Project(directory, through, site.url)
        os.environ["PAGES"] = str(pages)
        project.write(spiders.SPIDER, spiders.SETTINGS)
        direct = sa.make_url(keeper.url).set(drivername="postgresql")
        url = direct.render_as_string(hide_password=False)
        one = Field(directory, project, between, url, [], site)
        stack.callback(_end, one)
        one.workers = [one.start() for _ in range(workers)]
        until(lambda: one.done() > 0)
        yield one


def _end(one: Field) -> None:
    one.proxy.thaw()
    for process in one.project.started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
