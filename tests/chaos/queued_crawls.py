"""The queue under fire: many crawls, few places, changes of mind, and a fault a minute.

    python tests/chaos/queued_crawls.py --crawls 300 --kill-every 60 --changes 60

A fourth of the spiders close themselves once; what they leave is freed, and their runs continue. In
the end each crawl has fetched the pages that it would have fetched undisturbed and kept what it
scraped of each once, in one run. No log has the secret that each page writes, and a model that
replays what happened agrees with every assignment and every preemption. A notice is sent of each
end, though its function leaves a daemon. How long places were empty after a kill is printed. The
runners' role has a worker's rights. `make chaos` runs it.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import sqlalchemy as sa
from support import queued, servers, sites
from support.little_roles import little_role
from support.projects import Project, until
from support.queue_replay import Replay

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.crawl_states import Change, State
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.postgres import migrate

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from support.little_roles import LittleRole

# Each page leads to two more, as far as there are.
SPIDER = """
import contextlib
import signal

class S(scrapy.Spider):
    name = "s"

    def __init__(self, pages, closes="0", **given):
        super().__init__(**given)
        self.pages, self.closes = int(pages), int(closes)

    async def start(self):
        if int(self.key) % 3 == 0:  # it hears no SIGTERM, also as its runner is killed
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        yield self.page(1)

    def page(self, number):
        return scrapy.Request(f"{SITE}/page/{self.key}/{number}")

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {"url": response.url}
        with contextlib.suppress(BrokenPipeError):  # a deaf process outlives its runner
            print(f"{self.token!r} at page {number}", flush=True)
        for each in (2 * number, 2 * number + 1):
            if each <= self.pages:
                yield self.page(each)
        if number == self.closes:
            raise CloseSpider("enough")
"""
# It leaves a daemon that has all pipes of whoever calls it.
TELLS = """
import subprocess

def tell(notice):
    with open("told.txt", "a") as file:
        file.write(f"{notice['what']} {notice['crawl']}\\n")
    subprocess.Popen(["sleep", "20"], start_new_session=True)
"""
SECRET = "s3same/open 'door'"
SETTINGS = """
ITEMGRAPH_KEEP_ITEMS = True
LOG_LEVEL = "INFO"
ITEMGRAPH_LEASE = 10
ITEMGRAPH_NOTIFY_FUNCTION = "proj.notices.tell"
"""
RUNNERS = {
    "one": ("--processes", "2", "--tag", "big", "--tag", "gpu"),
    "two": (
        "--processes",
        "1",
    ),
    "only": ("--processes", "1", "--tag", "proxy", "--only-tagged"),
}
TAGS = (None, None, None, "big", "gpu", "proxy")
LASTS = 4.0  # seconds that a role has no rights, or the schema is another version's
AIMS = {"process": 5.0, "runner": 10.0, "all": 10.0, "deaf": 30.0}
# What befalls all at once, and what is done again after a while.
CHANGES = ("rights", "schema")
STALLED = 600.0  # seconds without an end of a crawl
ROUND = 0.5  # seconds until what has died is started again


@dataclass
class Field:
    """A project with its runners, which are started again as systemd would.

    `owner` reaches its database as who owns it.
    """

    owner: Project
    project: Project
    role: LittleRole
    choice: random.Random
    crawls: dict[str, int]  # the pages of each
    closers: set[str]  # those whose spider closes itself once
    runners: dict[str, subprocess.Popen] = field(default_factory=dict)
    kills: list[tuple[str, datetime, dict[tuple[str, int], int]]] = field(default_factory=list)
    freed: int = 0  # pages that spiders left
    faults: Counter[str] = field(default_factory=Counter)

    def keep_running(self) -> None:
        """Start each runner that does not run."""
        for name, options in RUNNERS.items():
            if name not in self.runners or self.runners[name].poll() is not None:
                self.runners[name] = queued.work(self.project, "--name", name, *options)

    def is_at_rest(self) -> bool:
        """Tell whether no job is open any more; a runner takes care of those of a dead one."""
        self.keep_running()
        return not self.owner.rows(OPEN)

    def befall(self, what: str) -> None:
        """Kill something, or have it befall all for a while."""
        self.faults[what] += 1
        if what == "rights":
            self.role.take()
            time.sleep(LASTS)
            self.role.give()
        elif what == "schema":
            with queued.transaction(self.owner.url) as connection:
                version = connection.scalar(migrate.VERSION)
            self._have_schema("9999")
            time.sleep(LASTS)
            self._have_schema(version)
        else:
            self.kill(what)

    def _have_schema(self, version: str) -> None:
        with queued.transaction(self.owner.url) as connection:
            connection.execute(SET_VERSION, {"version": version})

    def kill(self, what: str) -> None:
        """Kill a process, a runner, or all; "deaf": a runner whose processes hear no SIGTERM."""
        rows = self.owner.rows(
            "SELECT r.name, p.number, j.id, j.process_id FROM places p "
            "JOIN runners r ON r.id = p.runner_id JOIN jobs j ON j.id = p.job_id "
            "WHERE j.process_id IS NOT NULL AND j.worker_id IS NOT NULL"
        )
        self.choice.shuffle(rows)
        if what == "process":
            rows = rows[:1]
        elif what in {"runner", "deaf"}:
            rows = [row for row in rows if row[0] == rows[0][0]]
        ((now,),) = self.owner.rows("SELECT clock_timestamp()")
        if what == "deaf":  # a process that is stopped ends by SIGKILL alone
            for *_, process in rows:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
        if what != "process":
            for name in {row[0] for row in rows}:
                with suppress(ProcessLookupError):
                    self.runners[name].kill()
        for *_, process in rows:
            if what not in {"runner", "deaf"}:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        if rows:
            self.kills.append((what, now, {(name, place): job for name, place, job, _ in rows}))

    def change(self, graph: ItemGraph) -> None:
        """Have somebody change their mind about a crawl; what cannot be done is not."""
        over = {
            one.name for one in graph.queue.list([State.FINISHED])
        }  # once more is not asked for
        if not (names := sorted(self.crawls.keys() - over - self.closers)):
            return
        name = self.choice.choice(names)
        queue, choice = graph.queue, self.choice
        what = choice.choice(
            [
                lambda: queue.set(name, nice=choice.randint(-2, 2), by="ann"),
                lambda: queue.set(name, tag=choice.choice(TAGS), by="ann"),
                lambda: queue.set(name, concurrency=choice.randint(0, 3), by="ann"),
                *(partial(queue.change, name, change, by="ann") for change in Change),
            ]
        )
        with suppress(OperationError):
            what()

    def free(self, graph: ItemGraph) -> None:
        """Free what spiders have left, so that their crawls continue; sweep as a server does."""
        graph.duties.do_due()
        for crawl in graph.queue.list([State.FINISHED]):
            if crawl.name in self.closers:
                self.freed += graph.of(crawl.name).pages.free_all(Hold.LEFT)

    def settle(self, graph: ItemGraph) -> None:
        """Have all crawls go on."""
        again = {State.PAUSED: Change.RESUME, State.ABORTED: Change.REVIVE}
        for crawl in graph.queue.list([State.ACTIVE, *again]):
            with suppress(OperationError):
                if crawl.concurrency == 0:
                    graph.queue.set(crawl.name, concurrency=1, by="ann")
                if crawl.state in again:
                    graph.queue.change(crawl.name, again[crawl.state], by="ann")


def add(project: Project, choice: random.Random, count: int) -> tuple[dict[str, int], set[str]]:
    """Put crawls into the queue, the last of which wait for a resource.

    Return their pages, and those whose spider closes itself, on any of these but the last.
    """
    closers = set()
    crawls = {f"crawl {number}": choice.randint(1, 200) for number in range(count)}
    for number, (name, pages) in enumerate(crawls.items()):
        closes = choice.randint(1, pages - 1) if pages > 1 and number % 4 == 0 else 0
        if closes:
            closers.add(name)
        queued.add(
            project,
            name,
            arguments={
                "pages": str(pages),
                "closes": str(closes),
                "key": str(number),
                "token": "@env:DOOR",
            },
            nice=choice.randint(-2, 2),
            concurrency=choice.choice([0, 1, 1, 2, 3]),
            tag=choice.choice(TAGS),
            resource="site" if number >= count - count // 15 else None,
        )
    return crawls, closers


def run(one: Field, arguments: argparse.Namespace) -> None:
    """Kill and change until all crawls have ended."""
    one.keep_running()
    until(lambda: len(one.owner.rows("SELECT FROM runners")) == len(RUNNERS))
    with ItemGraph.open(one.owner.url) as graph:
        for name in one.choice.sample(list(one.crawls), len(one.crawls) // 30):
            with suppress(OperationError):
                graph.queue.lock(
                    name, one.choice.choice(["one", "two"]), until_finished=True, by="ann"
                )
        strike(one, graph, arguments)
    deadline = time.monotonic() + STALLED
    while one.owner.rows(UNTOLD) and time.monotonic() < deadline:
        one.keep_running()
        time.sleep(ROUND)


def strike(one: Field, graph: ItemGraph, arguments: argparse.Namespace) -> None:
    """Do what is due each second, until no crawl is left."""
    whats, changes = itertools.cycle([*AIMS, *CHANGES]), arguments.changes
    now = moved_at = time.monotonic()
    kill_at, change_at, before = now + arguments.kill_every, now, 0
    while (left := one.owner.rows(LEFT)[0][0]) > 0:
        time.sleep(ROUND)
        now = time.monotonic()
        one.keep_running()
        one.free(graph)
        if changes and now >= change_at:
            changes, change_at = changes - 1, now + arguments.kill_every / 15
            one.change(graph)
        elif not changes:
            one.settle(graph)
        if now >= kill_at:
            kill_at = now + arguments.kill_every
            one.befall(next(whats))
            print(f"{one.faults.total()} faults, {left} crawls left, {changes} changes", flush=True)
        if left != before:
            before, moved_at = left, now
        assert now - moved_at < STALLED, one.owner.rows(STATES)


UNTOLD = "SELECT what, error FROM notices WHERE sent_at IS NULL"
SET_VERSION = sa.text("UPDATE itemgraph_version SET version_num = :version")
LEFT = """
    SELECT count(*) FROM crawls c WHERE state <> 'finished'
        OR EXISTS (SELECT FROM sweeps s WHERE s.crawl_id = c.id)
        OR EXISTS (
            SELECT FROM tasks t JOIN results r ON r.task_id = t.id
            WHERE t.crawl_id = c.id AND r.hold = 'left')
"""
STATES = "SELECT name, state, state_reason, next_at FROM crawls WHERE state <> 'finished'"
KEPT = "SELECT c.name, j.fields->>'url' FROM journal j JOIN crawls c ON c.id = j.crawl_id"
RUNS = """
    SELECT c.name, count(*) FROM runs r JOIN crawls c ON c.id = r.crawl_id
    GROUP BY c.name HAVING count(*) > 1
"""
OPEN = "SELECT id FROM jobs WHERE ended_at IS NULL"
STARTS = """
    SELECT r.name, j.place, j.id, j.started_at FROM jobs j JOIN runners r ON r.id = j.runner_id
    WHERE j.place IS NOT NULL ORDER BY j.id"""


def wrongs(one: Field, replay: Replay) -> Iterator[str]:
    """Return what is not as it would have been undisturbed."""
    yield from replay.wrongs
    kept: dict[str, Counter[int]] = defaultdict(Counter)
    for name, url in one.owner.rows(KEPT):
        kept[name][int(url.rpartition("/")[2])] += 1
    for name, pages in one.crawls.items():
        if kept[name] != Counter(range(1, pages + 1)):
            extra, missing = kept[name] - Counter(range(1, pages + 1)), pages - len(kept[name])
            said = one.owner.scrapy("itemgraph", "crawls", "history", name).output
            yield f"{name}: {missing} of {pages} pages missing, {extra.total()} too many\n{said}"
            yield one.owner.scrapy("itemgraph", "failures", "--crawl", name).output
    for name, runs in one.owner.rows(RUNS):
        yield f"{name}: {runs} runs"
    told = (one.owner.directory / "told.txt").read_text().splitlines()
    yield from (f"nobody was told that {name} is finished" for name in untold(one, told))
    yield from (f"the notice {what!r} is not sent: {why}" for what, why in one.owner.rows(UNTOLD))
    yield from (f"job {job} is open" for (job,) in one.owner.rows(OPEN))
    yield from (f"{where} has the secret" for where, said in written(one) if "s3same" in said)


def untold(one: Field, told: Collection[str]) -> list[str]:
    """Return the crawls of whose end nobody was told."""
    return [name for name in one.crawls if f"finished {name}" not in told]


def written(one: Field) -> Iterator[tuple[str, str]]:
    """Return what processes wrote, in files and in the database."""
    logs = one.owner.directory / ".scrapy" / "itemgraph-logs"
    read = {path: path.read_bytes() for path in logs.rglob("*.log*")}
    said = {
        path.name: gzip.decompress(data) if path.suffix == ".gz" else data
        for path, data in read.items()
    }
    assert any(b"@env:DOOR" in data for data in said.values())
    yield from ((name, data.decode(errors="replace")) for name, data in said.items())
    yield from one.owner.rows("SELECT format('job %s', id), output FROM jobs WHERE output <> ''")


def figures(one: Field) -> Iterator[str]:
    """Return how long places were empty that were killed, until another process was started."""
    starts = one.owner.rows(STARTS)
    found: dict[str, list[float]] = defaultdict(list)
    for what, at, places in one.kills:
        for (runner, place), job in places.items():
            after = (s for r, p, j, s in starts if (r, p) == (runner, place) and j > job and s > at)
            started = next(after, None)
            if started is not None:
                found[what].append((started - at).total_seconds())
    for what, aim in AIMS.items():
        if seconds := found[what]:
            middle = statistics.median(seconds)
            met = "met" if middle <= aim else "NOT met"
            yield (
                f"a place runs again after kill -9 of {what}: median {middle:.1f} s, "
                f"worst {max(seconds):.1f} s, {len(seconds)} times; aim {aim:g} s: {met}"
            )


def main() -> int:
    """Run it all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crawls", type=int, default=300)
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds")
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    choice = random.Random(arguments.seed)
    os.environ["DOOR"] = SECRET
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="itemgraph-chaos-") as directory,
        servers.own_postgres() as server,
        sites.site() as site,
        ExitStack() as stack,
    ):
        project = Project(Path(directory), server.url, site.url).write(SPIDER, SETTINGS)
        project.scrapy("itemgraph", "init")
        owner = Project(Path(directory), server.url, site.url)
        role = stack.enter_context(little_role(server.url))
        crawls, closers = add(owner, choice, arguments.crawls)
        project.url = role.url
        project.write(SPIDER, SETTINGS, notices=TELLS)
        one = Field(owner, project, role, choice, crawls, closers)
        try:
            run(one, arguments)
            until(one.is_at_rest)
            for runner in one.runners.values():
                runner.send_signal(signal.SIGTERM)
            for runner in one.runners.values():
                runner.wait(60)
        finally:
            for process in project.started:
                process.kill()
                process.wait()
        with queued.transaction(owner.url) as connection:
            replay = Replay().read(connection)
        found = list(wrongs(one, replay))
        counts = ", ".join(f"{what} {count}" for what, count in sorted(replay.counts.items()))
        load = os.getloadavg()[2]
        print(*(f"{what}: {count}" for what, count in one.faults.items()), sep=", ")
        print(f"{time.monotonic() - began:.0f} s, load {load:.1f}; events: {counts}")
        print(
            f"{len(one.closers)} spiders closed themselves; {one.freed:,} pages were left and freed"
        )
        print(f"{sum(site.hits.values()):,} requests for {sum(one.crawls.values()):,} pages")
        print(*figures(one), sep="\n")
        print(*found or ["nothing lost, nothing twice, and the model agrees"], sep="\n")
        return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
