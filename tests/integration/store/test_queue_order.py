"""Assignments and preemptions agree with a model that replays what happened to the queue."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from datetime import timedelta

import sqlalchemy as sa
from support.queue_replay import Replay

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.model.runners import HostState, Terms
from scrapy_itemgraph.store import awakening
from scrapy_itemgraph.store.registry import (
    crawl_ends,
    crawl_queue,
    job_changes,
    job_ends,
    jobs,
    place_locks,
    places,
    processes,
    runners,
)

# In a dose for `make test`; `make chaos` gives more.
ACTS = int(os.environ.get("ITEMGRAPH_CHAOS_ACTS", "1000"))
SEED = int(os.environ.get("ITEMGRAPH_CHAOS_SEED", "1"))
STICKS = 0.005
LEASE = timedelta(minutes=1)
TAGS = [None, None, "big", "gpu", "proxy"]
RUNNERS = {
    "one": {"places": 2, "tags": ("big", "gpu")},
    "two": {"places": 1},
    "only": {"places": 1, "tags": ("proxy",), "only_tagged": True},
    "gentle": {"places": 2, "tags": ("big",), "preempts": False},
}


class Chance:
    """Crawls, runners and people, each of whom does one of the things that may happen."""

    def __init__(self, connection: sa.Connection, seed: int) -> None:
        self.connection = connection
        self.choice = random.Random(seed)
        self.living: dict[str, tuple[int, int]] = {}
        self.crawls: list[str] = []
        self.by_hand: list[int] = []
        self.replay = Replay(sticks=STICKS)
        self.idle = 0  # rounds that found nothing to do, as the model did

    def act(self) -> None:
        """Do something, or learn that it cannot be done."""
        weights = {
            self.round: 30,
            self.end: 12,
            self.add: 3,
            self.change: 5,
            self.set_terms: 16,
            self.lock: 1,
            self.unlock: 2,
            self.start: 3,
            self.die: 0.7,
            self.leave: 0.5,
            self.host: 0.5,
            self.drain: 0.5,
            self.set_runner: 1,
            self.hand: 1,
            self.stop: 2,
            self.finish: 1,
            self.retry: 1,
        }
        (what,) = self.choice.choices(list(weights), list(weights.values()))
        with suppress(OperationError), self.connection.begin_nested():
            what()

    def run(self, statement: str, **given) -> list:
        """Run a statement; return the first column of its rows."""
        done = self.connection.execute(sa.text(statement), given)
        return list(done.scalars()) if done.returns_rows else []

    def one(self, of) -> object:
        """Return one of several, or refuse if there is none."""
        found = list(of)
        if not found:
            raise OperationError("there is none")
        return self.choice.choice(found)

    # Runners

    def round(self) -> None:
        """Have a runner look, and do what it finds, as its supervisor does."""
        name = self.one(self.living)
        runner, process = self.living[name]
        (now,) = self.run("SELECT clock_timestamp()")
        found = places.look(self.connection, runner, process)
        if found is None:
            del self.living[name]
            return
        if found.gone:
            runners.bury(self.connection, found.gone, runner, name)
        orphans = [one.job for one in found.left if one.is_orphan]
        job_ends.end_orphans(self.connection, orphans, by=name)
        while found.may_preempt and places.preempt(self.connection, runner, process):
            pass
        if found.may_assign:
            places.assign(self.connection, runner, process, "h")
        if not (found.gone or orphans or found.may_preempt or found.may_assign):
            assert self.replay.read(self.connection).left(name, now) == []
            self.idle += 1

    def start(self) -> None:
        """Start a runner, or have one that was given up for dead go on with what it runs."""
        name = self.choice.choice(list(RUNNERS))
        mine = (
            "SELECT p.number FROM places p JOIN runners r ON r.id = p.runner_id WHERE r.name = :n"
        )
        running = {}
        if name in self.living and self.choice.random() < 0.5:
            job = f"({mine.replace('p.number', 'p.job_id')} AND p.number = q)"
            statement = f"SELECT {job} FROM unnest(CAST(:q AS int[])) AS q"
            numbers = self.run(mine + " AND p.job_id IS NOT NULL", n=name)
            running = dict(zip(numbers, self.run(statement, n=name, q=numbers), strict=True))
            self.end_lease(name)
        terms = Terms(name=name, project="p", **RUNNERS[name])
        process, runner = runners.register(
            self.connection, terms, host="h", process_id=1, lease=LEASE, running=running
        )
        self.living[name] = runner, process.id

    def end_lease(self, name: str) -> None:
        """Have a runner be dead for others."""
        statement = "UPDATE processes SET lease_until = started_at WHERE id = :id"
        self.run(statement, id=self.living[name][1])

    def die(self) -> None:
        """Kill a runner, and with it its processes."""
        name = self.one(self.living)
        self.end_lease(name)
        del self.living[name]

    def leave(self) -> None:
        """End a runner in order, or take from it what it has."""
        name = self.one(self.living)
        runner, process = self.living.pop(name)
        if self.choice.random() < 0.5:
            job_changes.reclaim_runner(self.connection, name, "it hangs", by="ann")
        else:
            runners.stop(self.connection, runner, process, name)

    def host(self) -> None:
        """Have a runner's host be low on something, or well."""
        low = self.choice.choice(["disk", None, None])
        state = HostState(disk_free=1, disk_total=2, memory_free=3, load=0.5, low=low)
        runners.report(self.connection, *self.living[self.one(self.living)], state)

    def drain(self) -> None:
        """Drain a runner, or have it go on."""
        runner, _ = self.living[self.one(self.living)]
        runners.drain(self.connection, runner, by="ann", drains=self.choice.random() < 0.4)

    def set_runner(self) -> None:
        """Change what a runner takes."""
        tags = self.choice.sample(["big", "gpu", "proxy"], 2)
        given = {"tags": tags, "only_tagged": self.choice.random() < 0.3}
        job_changes.set_runner(self.connection, self.one(self.living), given, by="ann")

    # Processes

    def open_jobs(self) -> list[int]:
        """Return the jobs of runners that run."""
        return self.run(
            "SELECT id FROM jobs WHERE ended_at IS NULL AND origin = 'runner' "
            "AND started_at IS NOT NULL"
        )

    def end(self) -> None:
        """Have a process end, well or not: rather one that was told to."""
        told = self.run("SELECT id FROM jobs WHERE ended_at IS NULL AND stop_wanted IS NOT NULL")
        job = self.one(told or self.open_jobs())
        code = self.choice.choice([0, 0, -9, 3])
        job_ends.end(self.connection, job, by="runner", exit_code=code)
        if self.choice.random() < 0.7:  # nobody waits for ten minutes here
            self.run("UPDATE crawls SET crashes = 0")

    def stop(self) -> None:
        """Cancel a job, or have it be over its time."""
        job = self.one(self.open_jobs())
        if self.choice.random() < 0.5:
            job_changes.cancel(self.connection, job, by="ann")
        else:
            job_ends.stop(self.connection, job, Stop.TIME, by="runner")

    def hand(self) -> None:
        """Start a process by hand, or have one end."""
        if self.by_hand and self.choice.random() < 0.5:
            jobs.leave(self.connection, self.by_hand.pop(), "finished")
            return
        (crawl,) = self.run("SELECT id FROM crawls WHERE name = :n", n=self.one(self.crawls))
        more = {"host": "h", "process_id": 2, "lease": LEASE}
        worker = processes.register(self.connection, "worker", crawl_id=crawl, **more)
        jobs.make(self.connection, worker.id, scrapyd_job=None)
        self.by_hand.append(worker.id)

    # People

    def add(self) -> None:
        """Put a crawl into the queue."""
        name = f"crawl {len(self.crawls)}"
        new = NewCrawl(
            spider="s", name=name, project="p", arguments={}, settings={}, **self.terms()
        )
        crawl_queue.add(self.connection, new, by="ann")
        self.crawls.append(name)

    def terms(self) -> dict:
        """Return terms of a crawl."""
        return {
            "nice": self.choice.randint(-2, 2),
            "concurrency": self.choice.choice([0, 1, 1, 2, 2, 3]),
            "tag": self.choice.choice(TAGS),
            "resource": self.choice.choice([None, None, None, "a", "b"]),
        }

    def change(self) -> None:
        """Pause a crawl, or what people do to it else; rather what has it go on."""
        wanted = self.choice.choice([*Change, *[Change.RESUME, Change.REVIVE] * 3])
        name = self.one(self.crawls)
        keeps = self.choice.random() < 0.3
        crawl_queue.change(self.connection, name, wanted, by="ann", keeps_place=keeps)

    def set_terms(self) -> None:
        """Change some of a crawl's terms."""
        terms = self.terms()
        some = {name: terms[name] for name in self.choice.sample(list(terms), 2)}
        crawl_queue.set_terms(self.connection, self.one(self.crawls), some, by="ann")

    def lock(self) -> None:
        """Lock a place to a crawl."""
        name, runner = self.one(self.crawls), self.one(self.living)
        for_ = place_locks.INDEFINITELY
        place_locks.lock(self.connection, name, runner, None, for_=for_, by="ann")

    def unlock(self) -> None:
        """Unlock the places of a crawl."""
        locked = self.run("SELECT c.name FROM places p JOIN crawls c ON c.id = p.locked_to")
        place_locks.unlock(self.connection, self.one(locked), by="ann")

    def finish(self) -> None:
        """Have a worker find the end of a crawl, or somebody add work to one that had ended."""
        ids = self.run("SELECT id FROM crawls WHERE state = 'finished'")
        if ids and self.choice.random() < 0.5:
            awakening.awaken(self.connection, [self.one(ids)])
            return
        crawl = self.one(self.run("SELECT id FROM crawls WHERE state = 'active'"))
        crawl_ends._end(self.connection, crawl, "worker", None)

    def retry(self) -> None:
        """Have a job be done again."""
        over = self.run("SELECT id FROM jobs WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 9")
        job_changes.retry(self.connection, self.one(over), by="ann")


def test_each_assignment_and_preemption_is_the_one_that_a_model_makes(connection, monkeypatch):
    """MNB-2, MNB-4 … MNB-6, SS-6: whatever people, processes and hosts do, the best crawl runs."""
    monkeypatch.setattr(places, "STICKS", STICKS)
    chance = Chance(connection, SEED)
    for _ in range(10):
        chance.add()
    for _ in range(ACTS):
        chance.act()

    replay = chance.replay.read(connection)
    assert replay.wrongs == []
    assert replay.counts["assigned"] > ACTS / 20, replay.counts
    assert replay.counts["preempted"] > ACTS / 200, replay.counts
    assert chance.idle > ACTS / 20
    rows = connection.execute(
        sa.text(
            "SELECT r.name, p.number, p.job_id, p.kept_for, p.locked_to "
            "FROM places p JOIN runners r ON r.id = p.runner_id ORDER BY 1, 2"
        )
    )
    known = [
        (name, number, place.job, place.kept_for, place.locked_to)
        for name, own in sorted(replay.runners.items())
        for number, place in sorted(own.places.items())
    ]
    assert known == [tuple(row) for row in rows]
    open_jobs = set(
        chance.run("SELECT id FROM jobs WHERE ended_at IS NULL AND started_at IS NOT NULL")
    )
    assert set(replay.jobs) == open_jobs
