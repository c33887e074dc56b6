"""A runner: it takes crawls in the order of the queue, sees processes end, and starts the next."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa
from support import queued, servers
from support.projects import Project, until

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import Rule

# A crawl that goes on, whatever its site does.
ENDLESS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        print("it begins", flush=True)
        while True:
            await asyncio.sleep(0.05)
        yield

    def parse(self, response):
        pass
"""

# One that ends as its crawl's argument says.
ENDS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed(f"PAGE:{self.how}")

    @task(tags=["page"])
    def parse_page(self, response, item):
        with open("/proc/self/cmdline") as file:
            assert "hidden" not in file.read()
        assert self.token == "hidden"
        print("the token is", self.token)
        if self.how == "exit":
            os._exit(3)
        if self.how == "close":
            raise CloseSpider("enough")
"""


def test_places_have_the_best_crawls_and_a_killed_process_is_started_again(project, site):
    """MNB-4: the nicest two of three run; a killed process costs its place, and is run again."""
    project.write(ENDLESS)
    queued.add(project, "third", nice=5)
    queued.add(project, "first", "second")
    runner = queued.work(project, "--processes", "2", "--name", "r")

    before = queued.until_running(project, "first", "second")
    os.kill(before["first"], signal.SIGKILL)
    until(lambda: queued.running(project).get("first") not in {None, before["first"]}, project.log)
    after = queued.until_running(project, "first", "second")

    assert after["second"] == before["second"]
    log = queued.end(project, runner)
    assert runner.returncode == 0, log
    (listed,) = json.loads(project.scrapy("itemgraph", "runners", "list", "--json").output)
    assert listed["state"] == "ended"
    assert queued.jobs(project) == [
        ("first", "temporary-error", 1),
        ("second", "cancelled", 1),
        ("first", "cancelled", 2),
    ]


def test_processes_end_as_they_do_and_crawls_go_on_or_not(project, site, monkeypatch):
    """MNB-3, SS-3: finished, crashed, refused, closed by itself; a secret is no argument."""
    monkeypatch.setenv("KEY", "hidden")
    project.write(ENDS)
    for how in ("well", "exit", "close"):
        queued.add(project, how, arguments={"how": how, "token": "@env:KEY"})
    queued.add(project, "refused", spider="none")

    run = project.finish(queued.work(project, "--processes", "2", "--once"))

    assert run.code == 0, run.log
    ended = project.rows(
        "SELECT c.name, j.state, j.attempts, j.exit_code, j.reason FROM jobs j "
        "JOIN crawls c ON c.id = j.crawl_id ORDER BY c.id, j.id"
    )
    twice = [one[:4] for one in ended if one[2] <= 2]  # the third start is after the backoff
    assert twice == [
        ("well", "completed", 1, 0),
        ("exit", "temporary-error", 1, 3),
        ("exit", "temporary-error", 2, 3),
        ("close", "completed", 1, 0),
        ("refused", "temporary-error", 1, 1),
        ("refused", "permanent-error", 2, 1),
    ], run.log
    states = project.rows("SELECT name, state, next_at > now() FROM crawls ORDER BY id")
    assert states == [
        ("well", "finished", None),
        ("exit", "active", True),
        ("close", "finished", None),
        ("refused", "paused", True),
    ]
    assert project.rows("SELECT count(*) FROM places WHERE job_id IS NOT NULL") == [(0,)]
    ((number, path),) = project.rows(
        "SELECT j.id, j.log FROM jobs j JOIN crawls c ON c.id = j.crawl_id WHERE c.name = 'well'"
    )
    assert "the token is @env:KEY" in Path(path).read_text()
    with ItemGraph.open(project.url) as graph:
        assert "the token is @env:KEY" in graph.jobs.output(number)
        assert graph.jobs.get(number).memory > 10**6


def test_a_running_process_is_steered_and_its_log_read_from_elsewhere(project, site):
    """MNB-3: its time is limited, it is cancelled, and its crawl aborted; each job says why."""
    project.write(ENDLESS)
    queued.add(project, "a", time_limit=timedelta(seconds=1.5))
    runner = queued.work(project)

    def reasons():
        return [reason for (reason,) in project.rows("SELECT reason FROM jobs ORDER BY id")]

    # One that is ended before it has begun has its last line in the reason, too.
    too_long = "it ran longer than its time limit"
    until(lambda: reasons() and (reasons()[0] or "").startswith(too_long), project.log)
    queued.set_terms(project, "a", time_limit=None)
    until(lambda: is_cancelled(project), project.log)
    until(lambda: "it was cancelled" in reasons(), project.log)
    queued.until_running(project, "a")
    queued.change(project, "a", "abort")
    until(lambda: not queued.running(project), project.log)

    said = reasons()
    assert said[0].startswith(too_long)
    assert said[-1] == "the crawl was aborted"
    queued.end(project, runner)


def is_cancelled(project: Project) -> bool:
    """Cancel the job that has begun, by what it wrote; False: none has, or its time is over."""
    with ItemGraph.open(project.url) as graph:
        for job in graph.jobs.list(is_open=True):
            if "it begins" in graph.jobs.output(job.id):
                with suppress(OperationError):
                    graph.jobs.cancel(job.id, by="ann@test")
                    return True
    return False


def test_a_runner_waits_for_its_database_and_another_takes_over_from_it(project, site):
    """Children go on while the database is away; those of a killed runner end, and run again."""
    with servers.own_postgres() as server:
        project.url = server.url
        project.write(ENDLESS, 'ITEMGRAPH_PATIENCE = "1m"\nITEMGRAPH_LEASE = 3')
        project.scrapy("itemgraph", "init")
        queued.add(project, "a", "b")
        runner = queued.work(project, "--processes", "2", "--name", "one")
        before = queued.until_running(project, "a", "b")
        begun = "SELECT count(*) FROM jobs WHERE worker_id IS NOT NULL"
        until(lambda: project.rows(begun) == [(2,)], project.log)

        server.stop()
        until(lambda: "The runner waits for it" in project.log(runner), project.log)
        os.kill(before["a"], signal.SIGKILL)
        until(lambda: not queued.is_alive(before["a"]), project.log)
        assert queued.is_alive(before["b"])
        server.start()
        until(lambda: queued.running(project).get("a") not in {None, before["a"]}, project.log)
        after = queued.until_running(project, "a", "b")
        assert after["b"] == before["b"]

        other = queued.work(project, "--processes", "2", "--name", "two")
        until(lambda: "The runner two takes" in project.log(other), project.log)
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
        until(lambda: not any(map(queued.is_alive, after.values())), project.log)
        until(lambda: len(set(queued.running(project).values()) - set(after.values())) == 2)

        log = queued.end(project, other)
        assert other.returncode == 0, log
        assert sorted(queued.jobs(project)) == [
            ("a", "cancelled", 1),
            ("a", "temporary-error", 1),
            ("a", "temporary-error", 2),
            ("b", "cancelled", 1),
            ("b", "temporary-error", 1),
        ]


def test_a_runner_starts_crawls_by_their_schedule(project, site):
    """SS-6: when it is due a process of the crawl runs, and knows which due time it is for."""
    project.write(
        """
    import os

    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            print("due at", os.environ["ITEMGRAPH_DUE_AT"], flush=True)
            return
            yield
    """
    )
    queued.add(project, "books", is_scheduled=True)
    every = NewSchedule(rule=Rule.read({"every": "1m"}))
    with ItemGraph.open(project.url) as graph:
        made = graph.schedules.add("books", every, by="ann")
    runner = queued.work(project)
    with queued.transaction(project.url) as connection:
        connection.execute(sa.text("UPDATE schedules SET next_at = now()"))

    until(lambda: project.rows("SELECT FROM jobs WHERE state = 'completed'"), project.log)
    queued.end(project, runner)

    ((schedule, due_at, output, state),) = project.rows(
        "SELECT j.schedule_id, j.due_at, j.output, c.state FROM jobs j "
        "JOIN crawls c ON c.id = j.crawl_id"
    )
    assert (schedule, state) == (made.id, "finished")
    assert f"due at {due_at.isoformat()}" in output


def test_a_runner_that_runs_once_starts_what_fell_due_before_it(project, site):
    """SS-6: the round that has a crawl begin is not its last, though nothing runs yet."""
    project.write(ENDLESS.replace("while True", "while False"))
    queued.add(project, "books", is_scheduled=True)
    every = NewSchedule(rule=Rule.read({"every": "1h"}))
    with ItemGraph.open(project.url) as graph:
        graph.schedules.add("books", every, by="ann")
    with queued.transaction(project.url) as connection:
        connection.execute(sa.text("UPDATE schedules SET next_at = now()"))

    run = project.finish(queued.work(project, "--once"))

    assert run.code == 0, run.log
    assert queued.jobs(project) == [("books", "completed", 1)]
