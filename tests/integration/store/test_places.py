"""Which crawl a runner's place gets, which process ends for a better one, and who takes over."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from support import moved_clocks

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.model.runners import HostState, Terms
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import Rule
from scrapy_itemgraph.store.admin import job_reports, runner_reports
from scrapy_itemgraph.store.registry import (
    crawl_queue,
    job_changes,
    job_ends,
    place_locks,
    places,
    processes,
    runners,
    schedule_starts,
    schedules,
)

WELL = {"disk_free": 10**12, "disk_total": 10**12, "memory_free": 10**10, "load": 0.1}


def orphans(found):
    """Return the jobs of a round whose runner and process are gone."""
    return tuple(one.job for one in found.left if one.is_orphan)


class Queue:
    """Crawls and runners in one transaction."""

    def __init__(self, connection) -> None:
        self.connection = connection
        self.of: dict[str, tuple[int, int]] = {}  # a runner's number, and its process's

    def add(self, *names, **terms) -> None:
        """Queue crawls."""
        for name in names:
            new = NewCrawl(spider=name, name=name, project="p", arguments={}, settings={}, **terms)
            crawl_queue.add(self.connection, new, by="ann")

    def runner(self, name="r", count=1, running=None, **terms) -> None:
        """Start a runner."""
        process, runner = runners.register(
            self.connection,
            Terms(name=name, project="p", places=count, **terms),
            host="h",
            process_id=1,
            lease=timedelta(minutes=1),
            running=running or {},
        )
        self.of[name] = runner, process.id

    def assign(self, name="r") -> dict[str, int]:
        """Assign; return the new jobs by crawl."""
        found = places.assign(self.connection, *self.of[name], "h")
        return {one.crawl: one.job for one in found}

    def look(self, name="r"):
        """Return what a round finds."""
        return places.look(self.connection, *self.of[name])

    def preempt(self, name="r") -> bool:
        """Tell whether a process is told to stop."""
        return places.preempt(self.connection, *self.of[name])

    def end(self, job, code=0, output=None) -> None:
        """End a job."""
        job_ends.end(self.connection, job, by="runner r", exit_code=code, output=output)

    def run(self, statement) -> list:
        """Run a statement, and return its rows."""
        done = self.connection.execute(sa.text(statement))
        return [tuple(row) for row in done] if done.returns_rows else []

    def stick(self) -> None:
        """Have all places had their crawls for long."""
        self.run("UPDATE places SET since = since - interval '1 minute'")

    def stops(self) -> dict[int, str]:
        """Return why jobs are told to stop."""
        return dict(self.run("SELECT id, stop_wanted FROM jobs WHERE stop_wanted IS NOT NULL"))

    def die(self, name) -> None:
        """Have a runner's lease end."""
        self.run(f"UPDATE processes SET lease_until = started_at WHERE id = {self.of[name][1]}")


@pytest.fixture
def queue(connection) -> Queue:
    """Return an empty queue."""
    return Queue(connection)


def test_the_least_nice_and_then_the_first_are_assigned(queue):
    """MNB-4: nice counts first, then the time in the queue; a full crawl is passed over."""
    queue.add("late", nice=1)
    queue.add("first", concurrency=2)
    queue.add("second")
    queue.runner(count=4)

    assert list(queue.assign()) == ["first", "second", "late"]
    assert queue.run("SELECT count(*) FROM jobs WHERE ended_at IS NULL") == [(4,)]
    assert queue.assign() == {}


def test_tags_decide_who_takes_a_crawl(queue):
    """MNB-2: a tagged crawl goes to a runner with the tag; one for tagged crawls takes no other."""
    queue.add("plain")
    queue.add("tagged", tag="gpu")
    queue.runner("none")
    queue.runner("only", tags=("gpu", "big"), only_tagged=True, count=2)

    assert list(queue.assign("only")) == ["tagged"]
    assert list(queue.assign("none")) == ["plain"]


@pytest.mark.parametrize(
    "why",
    [
        "UPDATE crawls SET state = 'paused'",
        "UPDATE crawls SET concurrency = 0",
        "UPDATE crawls SET project = 'other'",
        "UPDATE crawls SET next_at = clock_timestamp() + interval '1 hour'",
        "UPDATE runners SET low = 'memory'",
        "UPDATE runners SET drains_since = clock_timestamp()",
        "UPDATE processes SET stopped_at = clock_timestamp()",
    ],
)
def test_what_may_not_run_is_not_assigned(queue, why):
    """A crawl that is not active, is full or waits is left, and so is all where the host is low."""
    queue.add("a")
    queue.runner()
    queue.run(why)

    assert queue.assign() == {}


def test_a_resource_has_one_process_at_a_time(queue):
    """SS-6: of two crawls of a resource the second waits until the first's process has ended."""
    queue.add("a", "b", resource="site")
    queue.runner(count=2)

    first = queue.assign()
    queue.run("UPDATE crawls SET state = 'finished' WHERE name = 'a'")
    between = queue.assign()
    queue.end(first["a"], -9)

    assert (list(first), between, list(queue.assign())) == (["a"], {}, ["b"])


def test_a_locked_place_takes_its_crawl_alone(queue):
    """MNB-6: a place that is locked takes no other crawl, and its own before the others."""
    queue.add("a", "b")
    queue.runner(count=2)
    place_locks.lock(queue.connection, "b", "r", 1, for_="indefinitely", by="ann")
    queue.run("UPDATE crawls SET state = 'paused' WHERE name = 'b'")

    assert list(queue.assign()) == ["a"]
    queue.run("UPDATE crawls SET state = 'active' WHERE name = 'b'")
    assert list(queue.assign()) == ["b"]


def test_a_better_crawl_gets_the_place_of_the_worst(queue):
    """MNB-5: after half a minute the worst process ends, and its place is kept for the better."""
    queue.add("worse", nice=5)
    queue.add("worst", nice=6)
    queue.runner(count=2)
    jobs = queue.assign()
    queue.add("better")

    assert not queue.preempt()  # a place keeps its crawl for a while
    queue.stick()
    assert queue.look().may_preempt
    assert queue.preempt()
    assert not queue.preempt()
    assert queue.stops() == {jobs["worst"]: "preempt"}
    queue.add("best", nice=-1)
    queue.end(jobs["worst"])
    ended = "SELECT reason FROM jobs WHERE ended_at IS NOT NULL"
    assert queue.run(ended) == [("a better crawl took its place",)]
    assert list(queue.assign()) == ["better"]


def test_nothing_is_preempted_for_what_a_free_place_takes(queue):
    """A place that is free elsewhere takes the crawl, and one of --no-preempt keeps its own."""
    queue.add("a", nice=5)
    queue.runner()
    queue.assign()
    queue.stick()
    queue.runner("free")
    queue.add("b")
    assert not queue.preempt()
    queue.assign("free")
    queue.add("c")
    queue.run("UPDATE runners SET preempts = false")
    assert not queue.preempt()


def test_a_process_that_may_not_run_here_any_more_ends(queue):
    """MNB-5: where the runner's tags changed, or a crawl may have fewer processes."""
    queue.add("a", concurrency=2)
    queue.runner(count=2)
    queue.assign()
    newest = max(job.job for job in queue.look().jobs)
    crawl_queue.set_terms(queue.connection, "a", {"concurrency": 1}, by="ann")

    assert queue.preempt()
    assert not queue.preempt()
    assert queue.stops() == {newest: "preempt"}
    job_changes.set_runner(queue.connection, "r", {"tags": ["x"], "only_tagged": True}, by="ann")
    assert queue.preempt()
    assert len(queue.stops()) == 2
    for job in queue.look().jobs:
        queue.end(job.job)
    assert queue.run("SELECT reason FROM jobs ORDER BY id") == [
        ("its runner may not take the crawl any more",),
        ("more processes ran than the crawl may have (1)",),
    ]


def test_abnormal_ends_back_off_and_then_pause_the_crawl(queue):
    """The first is started again at once, later ones wait; five without a page pause the crawl."""
    queue.add("a")
    queue.runner()
    waits = []
    for _ in range(5):
        queue.run("UPDATE crawls SET next_at = NULL")
        (job,) = queue.assign().values()
        queue.run(
            "UPDATE jobs SET worker_id = (SELECT min(id) FROM processes) WHERE ended_at IS NULL"
        )
        queue.end(job, -9)
        waits += queue.run(
            "SELECT round(extract(epoch FROM next_at - clock_timestamp())) FROM crawls"
        )

    assert [None if one is None else int(one) for (one,) in waits][:4] == [None, 10, 20, 40]
    (found,) = queue.run("SELECT state, crashes FROM crawls")
    assert found == ("paused", 5)
    assert queue.run("SELECT what FROM notices") == [("crash loop",)]
    assert [job.attempts for job in job_reports.jobs(queue.connection)] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("outcome", "crashes"), [("ok", 1), ("failed", 1), ("died", 4), ("released", 4)]
)
def test_a_process_that_did_a_page_before_it_was_killed_is_no_crash_loop(queue, outcome, crashes):
    """MNB-3: pages count from their commit on, before the process has told them."""
    queue.add("a")
    queue.runner()
    for _ in range(4):
        queue.run("UPDATE crawls SET next_at = NULL")
        (job,) = queue.assign().values()
        queue.run(f"UPDATE jobs SET worker_id = {queue.of['r'][1]} WHERE ended_at IS NULL")
        queue.end(job, -9)
        queue.run(DONE.format(worker=queue.of["r"][1], outcome=outcome))

    assert queue.run("SELECT state, crashes FROM crawls") == [("active", crashes)]


DONE = """
    INSERT INTO attempts (item_id, task_id, worker_id, token, task_version, number, outcome)
    SELECT 1, 1, {worker}, gen_random_uuid(), '1', 1, '{outcome}'
"""


def test_a_process_that_is_refused_twice_pauses_its_crawl(queue):
    """The second in a row that ended before it registered is a permanent error, which is told."""
    queue.add("a")
    queue.runner()
    for _ in range(2):
        (job,) = queue.assign().values()
        queue.end(job, 1, output="Traceback …\nModuleNotFoundError: No module named 'x'\n")

    jobs = job_reports.jobs(queue.connection, crawl="a")
    assert [job.state for job in jobs] == ["permanent-error", "temporary-error"]
    said = "it ended as it started, with exit code 1"
    assert jobs[0].reason == f"{said}: ModuleNotFoundError: No module named 'x'"
    paused = f"{said}; its log: scrapy itemgraph jobs log {job}"
    assert queue.run("SELECT state, state_reason FROM crawls") == [("paused", paused)]
    assert queue.run("SELECT body ->> 'reason' FROM notices") == [(paused,)]


def test_others_take_over_from_a_dead_runner(queue):
    """Its job stays as long as the job's own process lives, and is then started elsewhere."""
    queue.add("a")
    queue.runner("dead")
    queue.runner("other")
    (job,) = queue.assign("dead").values()
    worker = processes.register(
        queue.connection, "worker", host="h", process_id=2, lease=timedelta(minutes=1)
    )
    queue.run(f"UPDATE jobs SET worker_id = {worker.id}")
    queue.die("dead")

    gone = queue.look("other").gone
    assert gone == (queue.of["dead"][0],)
    buried = runners.bury(queue.connection, gone, queue.of["other"][0], "runner other")
    assert buried == ["dead"]
    assert (orphans(queue.look("other")), queue.assign("other")) == ((), {})
    processes.stop(queue.connection, worker.id, "shutdown")
    assert orphans(queue.look("other")) == (job,)
    assert job_ends.end_orphans(queue.connection, [job], by="runner other") == 1
    assert list(queue.assign("other")) == ["a"]
    assert [one.lives for one in runner_reports.runners(queue.connection)] == [False, True]


def test_a_runner_has_its_name_alone_and_takes_back_what_it_runs(queue):
    """A second one is refused while the first lives; one given up for dead keeps its processes."""
    queue.add("a")
    queue.runner()
    (job,) = queue.assign().values()
    with pytest.raises(OperationError, match="runs already: process 1 on h"):
        queue.runner()
    queue.die("r")
    runners.bury(queue.connection, [queue.of["r"][0]], 0, "runner x")

    assert queue.look() is None or not queue.look().jobs
    queue.runner(running={1: job})
    assert [(one.job, one.place) for one in queue.look().jobs] == [(job, 1)]


def test_a_process_that_was_a_runner_changes_nothing_of_the_one_that_is(queue):
    """MNB-1: taken for dead, and another of its name started: its end empties no place of that."""
    queue.add("a")
    queue.runner()
    before = queue.of["r"]
    queue.die("r")
    queue.runner()
    (job,) = queue.assign().values()

    low = HostState(**WELL, low="disk")
    runners.report(queue.connection, *before, low)
    runners.drain_itself(queue.connection, *before)
    runners.stop(queue.connection, *before, "r")
    assert queue.run("SELECT job_id FROM places") == [(job,)]
    assert queue.run("SELECT low, drains_since FROM runners") == [(None, None)]
    runners.drain_itself(queue.connection, *queue.of["r"])
    assert queue.look().is_draining


def test_a_low_host_is_an_event(queue):
    """MNB-1: what a runner reports of its host is kept; low and well again stand in the history."""
    queue.runner()
    low = HostState(**WELL, low="memory")
    for host in (HostState(**WELL), low, low, HostState(**WELL)):
        runners.report(queue.connection, *queue.of["r"], host)

    events = [what for (what,) in queue.run("SELECT what FROM crawl_events ORDER BY id")]
    assert events == ["runner up", "host low", "host well"]


def test_jobs_are_cancelled_retried_and_reclaimed(queue):
    """A running job is told to stop, a finished one is done again, and a lost one ends."""
    queue.add("a")
    queue.runner()
    (job,) = queue.assign().values()
    with pytest.raises(OperationError, match="is not over"):
        job_changes.retry(queue.connection, job, by="ann")

    assert job_changes.cancel(queue.connection, job, by="ann") == "a"
    assert queue.stops() == {job: "cancel"}
    queue.end(job)
    crawl_queue.change(queue.connection, "a", Change.ABORT, by="ann")
    made, _ = job_changes.retry(queue.connection, job, by="ann")
    assert queue.assign() == {"a": made}
    job_changes.reclaim_job(queue.connection, made, "host is gone", by="ann")
    ended = job_reports.job(queue.connection, made)
    assert (ended.state, ended.reason) == ("temporary-error", "reclaimed: host is gone")
    assert job_changes.reclaim_runner(queue.connection, "r", "host is gone", by="ann")
    assert queue.look() is None


def test_a_dead_runner_that_ran_nothing_is_noted_too(queue):
    """MNB-1: its free places wait for no crawl any more, and somebody is told; another notes it."""
    queue.add("worse", nice=1)
    queue.runner()
    queue.assign()
    queue.stick()
    queue.runner("idle", tags=("big",))
    queue.add("better")
    queue.die("idle")

    assert not queue.preempt()
    (gone,) = queue.look().gone
    assert runners.bury(queue.connection, [gone], queue.of["r"][0], "runner r") == ["idle"]
    assert queue.look().gone == ()
    assert queue.run("SELECT what, body->>'runner' FROM notices") == [("runner gone", "idle")]
    assert queue.preempt()


def test_a_place_that_is_locked_is_kept_for_nobody_else(queue):
    """MNB-6: a crawl that a process ends for gets another place, if its own is locked meanwhile."""
    queue.add("worse", nice=1, concurrency=2)
    queue.runner(count=2)
    queue.assign()
    queue.stick()
    queue.add("better")
    assert queue.preempt()
    place_locks.lock(queue.connection, "worse", "r", 1, for_="indefinitely", by="ann")
    place_locks.lock(queue.connection, "worse", "r", 2, for_="indefinitely", by="ann")
    place_locks.unlock(queue.connection, "worse", by="ann")

    assert queue.preempt()
    assert len(queue.stops()) == 2


def test_who_stops_a_process_is_in_the_history(queue):
    """MNB-3: that a job is cancelled, or over its time, is an event of its crawl: who, and why."""
    queue.add("a", concurrency=2)
    queue.runner(count=2)
    queue.assign()
    (job,), _ = queue.run("SELECT id FROM jobs ORDER BY id")
    job_changes.cancel(queue.connection, job, by="ann")
    job_ends.stop(queue.connection, job + 1, Stop.TIME, by="runner r")
    job_ends.stop(queue.connection, job + 1, Stop.DEPLOY, by="runner r")

    events = queue.run(
        "SELECT by, detail->>'why' FROM crawl_events WHERE what = 'told to stop' ORDER BY id"
    )
    assert events == [("ann", "cancel"), ("runner r", "time")]


def test_what_a_schedule_started_is_its_own_until_the_crawl_is_at_its_end(queue):
    """SS-6: a process that takes another's place has its schedule, due time and time limit."""
    queue.add("a", is_scheduled=True)
    queue.runner()
    new = NewSchedule(rule=Rule.read({"every": "1h"}), time_limit=timedelta(hours=2))
    number = schedules.add(queue.connection, "a", new, by="ann")
    queue.run("UPDATE schedules SET next_at = now() - interval '1 s'")
    schedule_starts.start_due(queue.connection)

    def begin():
        (one,) = places.assign(queue.connection, *queue.of["r"], "h")
        return one

    first = begin()
    queue.run(
        "INSERT INTO runs (crawl_id, number, started_at) SELECT id, 1, clock_timestamp() "
        "FROM crawls"
    )
    queue.run("UPDATE crawls SET run = 1")
    queue.end(first.job, -9)
    second = begin()
    assert (first.schedule, first.time_limit) == (number, timedelta(hours=2))
    for same in ("schedule", "due_at", "time_limit"):
        assert getattr(second, same) == getattr(first, same)

    queue.run("UPDATE runs SET is_finished = true, ended_at = clock_timestamp()")
    queue.end(second.job, -9)
    queue.run("UPDATE crawls SET next_at = NULL")
    by_hand = begin()
    assert (by_hand.schedule, by_hand.due_at, by_hand.time_limit) == (None, None, None)


@pytest.mark.server
def test_a_runner_is_not_gone_because_the_clock_jumped_ahead(database):
    """MNB-1: a lease that seems to be over since the server's clock was set is not; later it is."""
    moved_clocks.install(database)
    with moved_clocks.process(database) as one, moved_clocks.process(database) as other:
        with one.begin() as connection:
            Queue(connection).add("a")
            queue = Queue(connection)
            queue.runner()
            queue.assign()
        with other.begin() as connection:
            looks = Queue(connection)
            looks.runner("x")
            assert looks.look("x").gone == ()
        moved_clocks.move(database, 3600)
        with other.begin() as connection:
            looks.connection = connection
            assert looks.look("x").gone == ()
            looks.of |= queue.of
            looks.die("r")
            looks.run("UPDATE processes SET lease_until = lease_until - interval '2 hours'")
            assert looks.look("x").gone == (queue.of["r"][0],)


STARTED = """
    CREATE OR REPLACE FUNCTION public.pg_postmaster_start_time() RETURNS timestamptz
    LANGUAGE sql STABLE AS $$ SELECT CAST('{}' AS timestamptz) $$
"""


@pytest.mark.server
@pytest.mark.parametrize(("up_for", "is_gone"), [(1, False), (50, False), (70, True)])
def test_a_runner_is_not_gone_because_the_server_was_down(database, up_for, is_gone):
    """MNB-4: its lease, and its process's, count anew from when the server started."""
    moved_clocks.install(database)
    with moved_clocks.process(database) as one, one.begin() as connection:
        queue = Queue(connection)
        queue.add("a")
        queue.runner()
        queue.runner("x")
        queue.assign()
        queue.die("r")
        runners.bury(connection, [queue.of["r"][0]], queue.of["x"][0], "runner x")
        queue.run("UPDATE jobs SET worker_id = (SELECT min(id) FROM processes)")
        queue.run(
            "UPDATE processes SET stopped_at = NULL, seen_at = now() - interval '3 minutes', "
            f"lease_until = now() - interval '2 minutes' WHERE id = {queue.of['r'][1]}"
        )
        ((started,),) = queue.run(f"SELECT CAST(now() - interval '{up_for} s' AS text)")
        queue.run(STARTED.format(started))

        found = queue.look("x")

    assert (found.gone != ()) is is_gone
    assert (orphans(found) != ()) is is_gone
