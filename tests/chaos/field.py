"""The field: sites, a database behind a proxy on a disk of its own, and workers on two hosts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
import psycopg
import sqlalchemy as sa
from support import moved_clocks, servers, sites
from support.projects import Project
from support.proxies import Proxy, proxy

from chaos import hosts, spiders
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate, programs
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEASE = 5.0  # seconds
PATIENCE = 180.0
WATCHES = 30.0
PROGRESS = "SELECT coalesce(max(id), 0) FROM attempts WHERE outcome = 'ok'"
COMMITTED = """
    SELECT count(DISTINCT k.process_id) FROM attempts a JOIN processes k ON k.id = a.worker_id
    WHERE a.id > %s AND k.process_id = ANY (%s)
"""
# What a setting has workers do: write how many seconds each claim and each commit took.
TIMING = """
import time
from functools import wraps

from scrapy_itemgraph.graph.commits import Commits
from scrapy_itemgraph.graph.worker_claims import WorkerClaims


def timed(kind, name):
    function = getattr(kind, name)

    @wraps(function)
    async def within(*given, **named):
        began = time.perf_counter()
        answer = await function(*given, **named)
        with open("times.txt", "a") as file:
            file.write(f"{name} {time.perf_counter() - began}\\n")
        return answer

    setattr(kind, name, within)


timed(WorkerClaims, "claim")
timed(Commits, "commit")


class Timing:
    pass
"""
GRAPH = """
    SELECT i.name,
        ARRAY(SELECT a.name FROM aliases a WHERE a.item_id = i.id),
        ARRAY(SELECT g.tag_name FROM tags g WHERE g.item_id = i.id),
        i.data,
        ARRAY(
            SELECT json_build_array(t.name, r.metadata, r.task_version)
            FROM results r JOIN tasks t ON t.id = r.task_id
            WHERE r.item_id = i.id AND r.is_successful)
    FROM items i
"""
DEPTHS = """
    SELECT i.name, d.depth FROM items i LEFT JOIN depths d ON d.item_id = i.id
"""
HELD_BY = """
    FROM work w JOIN processes k ON k.id = w.worker_id
    WHERE w.token IS NOT NULL AND k.process_id = ANY (%s)
"""
HELD = f"SELECT count(*) {HELD_BY}"
CLAIMED = f"SELECT array_agg(ARRAY[w.item_id, w.task_id]), array_agg(w.token) {HELD_BY}"
WAITING = """
    SELECT w.item_id, w.task_id, w.token FROM work w
    JOIN unnest(%s::bigint[], %s::int[]) p (item_id, task_id) USING (item_id, task_id)
    WHERE w.token IS NULL OR w.token = ANY (%s)
"""
GONE = "broke the connection|cannot be reached|refuses connections"
HOSTS, DISK = "a host of its own", "a disk of its own"
CLOCK, PROXIED = "a clock of its own", "a proxy before all workers"


@dataclass(eq=False)
class Field:
    """What faults strike; `url` leads to the database directly, workers go through the proxy."""

    directory: Path
    project: Project
    proxy: Proxy
    url: str
    site: spiders.EndlessSite
    addresses: tuple[str, ...]  # of the sites
    host: hosts.Host | None  # where the first worker is
    disk: hosts.Disk | None  # where the database is
    is_local: bool  # all but the first worker use the server directly, and start it again
    has_clock: bool  # the database's clock can be moved
    workers: list[subprocess.Popen] = field(default_factory=list)
    struck: set[int] = field(default_factory=set)  # processes that a fault has ended
    versions: dict[str, list[str]] = field(
        default_factory=lambda: {task: ["1"] for task in spiders.TASKS}
    )
    over_at: int = 0  # the progress when the last fault was over
    _kept: psycopg.Connection | None = None

    # Workers

    def start(self, place: int) -> subprocess.Popen:
        """Start a worker; the first is on the other host, if there is one."""
        within: tuple[str, ...] = ()
        if place == 0 and self.host is not None:
            within = self.host.within
        elif place > 0 and self.is_local:
            within = ("env", "LOCAL=1")
        return self.project.start("crawl", "s", within=within)

    def replace(self, *ended: subprocess.Popen) -> None:
        """Start a worker for each that a fault has ended."""
        for worker in ended:
            self.struck.add(worker.pid)
            worker.wait(PATIENCE)
            place = self.workers.index(worker)
            self.workers[place] = self.start(place)

    def wait_until_it_crawls(self, worker: subprocess.Popen) -> None:
        """Wait until a worker has opened its graph: signals that come earlier end any program."""
        until(lambda: self.crawls(worker) or worker.poll() is not None)

    def wait_until_all_crawl(self) -> None:
        """Wait until all workers have opened their spiders."""
        for worker in self.workers:
            self.wait_until_it_crawls(worker)

    def crawls(self, worker: subprocess.Popen) -> bool:
        """Whether a worker has opened its spider, and its graph."""
        return "Crawled 0 pages" in self.project.log(worker)

    def has_old_code(self, worker: subprocess.Popen) -> bool:
        """Whether a worker that ended had been told that others do what it might still do."""
        is_outdated = "A later start declares the task" in self.project.log(worker)
        return worker.returncode == 0 and is_outdated

    def raise_version(self, task: str) -> None:
        """Have workers that start from now on run a task with a higher version."""
        self.versions[task].append(str(len(self.versions[task]) + 1))
        latest = {task: versions[-1] for task, versions in self.versions.items()}
        new = self.directory / "versions.new"
        new.write_text(json.dumps(latest))
        new.rename(self.directory / "versions.json")

    def url_of(self, number: int) -> str:
        """Return where a page is."""
        host = self.addresses[number % len(self.addresses)]
        return f"http://{host}:{self.site.server.server_port}/page/{number}"

    def graph(self) -> dict[str, spiders.State]:
        """Read the whole graph."""
        with self.connect() as connection:
            return {
                name: spiders.State(
                    frozenset(names),
                    frozenset(tags),
                    data,
                    {task: (metadata, version) for task, metadata, version in results},
                )
                for name, names, tags, data, results in connection.execute(GRAPH)
            }

    def depths(self) -> dict[str, int]:
        """Work out what is left of depths, and read how deep all items are."""
        engine = engines.sync_engine(self.url)
        with engine.connect() as connection:
            crawl_id = self.ask("SELECT id FROM crawls WHERE name = 's'")
            did = 1
            while did:
                engines.hot_path(connection)
                crawls.share_crawl(connection, crawl_id)
                steps = (sweeps.free, sweeps.sweep, relax.relax)
                did = sum(step(connection, crawl_id) for step in steps)
                connection.commit()
        engine.dispose()
        with self.connect() as connection:
            return dict(connection.execute(DEPTHS).fetchall())

    def was_refused(self, worker: subprocess.Popen) -> bool:
        """Whether a worker ended because the database was away when it started, as is meant."""
        found = re.search("ERROR: The PostgreSQL server .*", self.project.log(worker))
        return worker.returncode == 1 and found is not None and bool(re.search(GONE, found[0]))

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended."""
        return all(worker.poll() is not None for worker in self.workers)

    # The database

    def connect(self) -> psycopg.Connection:
        """Make a connection that does not go through the proxy."""
        return psycopg.connect(self.url, autocommit=True)

    def ask(self, statement: str, *given: object) -> int:
        """Return a number; while the server is away it is asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._kept is None:
                    self._kept = self.connect()
                row = self._kept.execute(statement, given or None).fetchone()
                assert row is not None
                return int(row[0])
            except psycopg.OperationalError:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def progress(self) -> int:
        """Return a number that grows with each execution that is committed."""
        return self.ask(PROGRESS)

    def claims_of(self, worker: subprocess.Popen) -> int:
        """Return how many pieces of work a worker has claimed."""
        return self.ask(HELD, [worker.pid])

    def all_have_committed(self) -> bool:
        """Whether each worker has committed something since the last fault was over."""
        processes = [worker.pid for worker in self.workers]
        return self.ask(COMMITTED, self.over_at, processes) == len(processes)

    def postmaster(self) -> int | None:
        """Return the process of PostgreSQL; None: it is being started."""
        pid = self.directory / ".scrapy/itemgraph/cluster/postmaster.pid"
        with suppress(OSError, ValueError, IndexError):
            return int(pid.read_text().split()[0])
        return None

    def signal_postgres(self, number: int, pause: float = 0.1) -> None:
        """Send a signal to the postmaster; we start it again, as any process that uses it does."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.postmaster()).send_signal(number)
        time.sleep(pause)

    def backup(self) -> Path:
        """Make a backup of the database, while workers work."""
        path = self.directory / "backup"
        self._run("pg_dump", "-Fc", "-d", self.url, "-f", path)
        return path

    def restore(self, backup: Path) -> None:
        """Put a backup in the place of the database; workers must not reach it meanwhile."""
        self.close()
        url = sa.make_url(self.url)
        new, old = f"{url.database}_new", f"{url.database}_old"
        self._alone(f"CREATE DATABASE {new}")
        restored = url.set(database=new).render_as_string(hide_password=False)
        self._run("pg_restore", "--single-transaction", "-d", restored, backup)
        if self.has_clock:
            self._alone(f"ALTER DATABASE {new} SET search_path = public, pg_catalog")
        self._alone(
            f"BEGIN; ALTER DATABASE {url.database} RENAME TO {old}; "
            f"ALTER DATABASE {new} RENAME TO {url.database}; COMMIT"
        )
        self._alone(f"DROP DATABASE {old} WITH (FORCE)")

    def _run(self, program: str, *arguments: object) -> None:
        command = [programs.find().programs / program, *map(str, arguments)]
        subprocess.run(command, check=True, env=os.environ | {"PGOPTIONS": ""})

    def _alone(self, statement: str) -> None:
        """Run a statement for which nobody may be connected to the database."""
        servers.alone(self.url, str(sa.make_url(self.url).database), statement)

    def close(self) -> None:
        """Give up the connection that is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class Watch(threading.Thread):
    """Looks when the claims that processes had are somebody else's, or done.

    It begins when a fault strikes them. `seconds` has one number for each claim that somebody got
    within a while; `freed` says when the last was taken from them, to be claimed in its turn.
    """

    def __init__(self, one: Field, *processes: int) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.freed: float | None = None
        self._began = time.monotonic()
        self._field = one
        with one.connect() as connection:
            row = connection.execute(CLAIMED, [list(processes)]).fetchone()
        assert row is not None
        self._claimed, self._tokens = {tuple(pair) for pair in row[0] or ()}, row[1]
        self.start()

    def run(self) -> None:
        """Look again and again."""
        with suppress(psycopg.OperationalError), self._field.connect() as connection:
            while self._claimed and time.monotonic() < self._began + WATCHES:
                items, tasks = zip(*self._claimed, strict=True)
                given = [list(items), list(tasks), self._tokens]
                rows = connection.execute(WAITING, given).fetchall()
                took = time.monotonic() - self._began
                left = {(item, task) for item, task, _ in rows}
                if self.freed is None and all(token is None for *_, token in rows):
                    self.freed = took
                self.seconds += [took] * len(self._claimed - left)
                self._claimed &= left
                time.sleep(0.02)


def until(holds: Callable[[], object], seconds: float = PATIENCE) -> float:
    """Wait until something holds; return how many seconds that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - began


@contextmanager
def open_field(
    directory: Path, workers: int, needs: frozenset[str], *, is_local: bool, settings: str = ""
) -> Iterator[Field]:
    """Start sites, an embedded server and workers of a new crawl; end what is left of them.

    Raises:
        hosts.UnavailableError: where the machine does not allow what is needed.

    """
    with ExitStack() as stack:
        home = directory / ".scrapy/itemgraph"
        home.mkdir(parents=True, mode=0o711)
        host = stack.enter_context(hosts.host(spiders.SITES)) if HOSTS in needs else None
        disk = stack.enter_context(hosts.disk(home)) if DISK in needs else None
        site = stack.enter_context(sites.site(spiders.EndlessSite))
        keeper = EmbeddedServer.start(home)
        stack.callback(keeper.close)
        engine = engines.sync_engine(keeper.url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        if CLOCK in needs:
            moved_clocks.install(keeper.url)
        is_local = is_local and PROXIED not in needs
        ours = host.ours if host else tuple(f"127.0.0.{1 + at}" for at in range(spiders.SITES))
        between, through = stack.enter_context(proxy(engine, ours[0]))
        engine.dispose()
        project = Project(directory, through)
        places = f"HOSTS = {ours}\nPORT = {site.server.server_port}\n"
        project.write(spiders.SPIDER, spiders.SETTINGS + settings, places=places, timing=TIMING)
        direct = sa.make_url(keeper.url).set(drivername="postgresql")
        url = direct.render_as_string(hide_password=False)
        one = Field(
            directory, project, between, url, site, ours, host, disk, is_local, CLOCK in needs
        )
        stack.callback(_end, one)
        (directory / "versions.json").write_text(json.dumps(dict.fromkeys(spiders.TASKS, "1")))
        one.workers += [one.start(place) for place in range(workers)]
        until(lambda: one.progress() > 0)
        yield one


def possible(needs: str) -> str:
    """Return why the machine does not allow what is needed, or nothing."""
    if needs in {CLOCK, PROXIED}:
        return ""
    with servers.open_directory() as directory:
        try:
            with hosts.host(1) if needs == HOSTS else hosts.disk(directory):
                return ""
        except hosts.UnavailableError as error:
            return str(error)


def _end(one: Field) -> None:
    one.close()
    one.proxy.thaw()
    for process in one.project.started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
