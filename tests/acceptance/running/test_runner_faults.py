"""Runners and processes that hang, freeze, are cut off, or lose a place to a better crawl."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from chaos import hosts
from support import proxies, queued, servers
from support.little_roles import little_role
from support.projects import until

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.crawl_waits import sentences

# Pages one at a time; or a process that is stuck in `__init__`, where Scrapy hears no SIGINT.
PAGES = """
import time

class S(scrapy.Spider):
    name = "s"
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def __init__(self, pages="", **given):
        super().__init__(**given)
        self.pages = int(pages or 0)
        while not pages:
            open("stuck", "w").close()
            time.sleep(60)

    async def start(self):
        for number in range(self.pages):
            yield scrapy.Request(f"{SITE}/slow/0.1/{self.pages}/{number}")

    def parse(self, response):
        yield {"url": response.url}
"""

# A crawl that goes on, whatever its site does.
ENDLESS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        while True:
            await asyncio.sleep(0.05)
        yield

    def parse(self, response):
        pass
"""

SHORT = 'ITEMGRAPH_PATIENCE = "1m"\nITEMGRAPH_LEASE = 3'


def test_a_better_crawl_takes_a_place_and_the_other_goes_on_where_it_was(project, site):
    """MNB-5: it loses no page and fetches none twice; one that is stuck ends within the ladder."""
    project.write(PAGES)
    queued.add(project, "long", nice=1, arguments={"pages": "40"})
    runner = queued.work(project, "--stop-after", "2s")
    until(lambda: sum(site.hits.values()) > 5, project.log)
    with queued.transaction(project.url) as connection:
        connection.execute(sa.text("UPDATE places SET since = since - interval '1 minute'"))
    queued.add(project, "stuck", nice=2)
    queued.add(project, "short", arguments={"pages": "3"})
    until((project.directory / "stuck").exists, project.log)
    stuck = queued.running(project)["stuck"]
    with ItemGraph.open(project.url) as graph:
        (job,) = graph.jobs.list(is_open=True)
        graph.jobs.cancel(job.id, by="ann@test")
    until(lambda: queued.running(project).get("stuck") != stuck, project.log)

    assert not queued.is_alive(stuck)
    ended = project.rows("SELECT exit_code FROM jobs WHERE reason = 'it was cancelled'")
    assert ended == [(-signal.SIGKILL,)]
    jobs = queued.jobs(project)
    assert jobs[:3] == [
        ("long", "cancelled", 1),
        ("short", "completed", 1),
        ("long", "completed", 1),
    ]
    asked = Counter(hit.split("/")[3] for hit in site.hits if hit.startswith("/slow/"))
    assert asked == {"40": 40, "3": 3}
    assert {hits for hit, hits in site.hits.items() if hit.startswith("/slow/")} == {1}
    assert queued.replayed(project, sticks=0).counts["preempted"] == 1
    queued.end(project, runner, sticks=0)


# Processes that take no notice of the SIGTERM which they get as their runner dies: one before it
# registered, and one that runs.
DEAF = """
import signal, time

class S(scrapy.Spider):
    name = "s"

    def __init__(self, stuck="", **given):
        super().__init__(**given)
        if stuck and not os.path.exists("again"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open("again", "w").close()
            time.sleep(600)

    async def start(self):
        if not os.path.exists("again"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open("again", "w").close()
            while True:
                await asyncio.sleep(1)
        return
        yield
"""


@pytest.mark.parametrize(
    "stuck",
    [
        "",
        pytest.param("before it registered", marks=pytest.mark.slow),
        "before it was noted",
    ],
)
def test_a_process_that_outlives_its_runner_is_ended_before_the_next_begins(project, stuck):
    """The next runner of the host goes down the ladder; two processes never run at once."""
    project.write("import os\n" + DEAF)
    queued.add(project, "a", arguments={"stuck": stuck} if stuck else {})
    killed = queued.work(project, "--name", "one")
    until((project.directory / "again").exists, lambda: project.log(killed))
    until(lambda: project.rows("SELECT 1 FROM jobs WHERE process_id IS NOT NULL"))
    ((job, deaf),) = project.rows("SELECT id, process_id FROM jobs")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    if stuck == "before it was noted":
        with queued.transaction(project.url) as connection:
            connection.execute(sa.text("UPDATE jobs SET process_id = NULL"))
    with ItemGraph.open(project.url) as graph:
        until(lambda: "is gone: the next runner" in " ".join(sentences(graph.queue.explain("a"))))
    assert queued.is_alive(deaf)

    run = project.finish(queued.work(project, "--name", "two", "--once", "--stop-after", "1s"))

    assert run.code == 0, run.log
    assert f"its process {deaf} is not" in run.log
    assert f"Process {deaf} has not ended; it is killed" in run.log
    assert not queued.is_alive(deaf)
    assert [state for _, state, _ in queued.jobs(project)] == ["temporary-error", "completed"]
    ((ended,), (began,)) = (
        project.rows(f"SELECT ended_at FROM jobs WHERE id = {job}")[0],
        project.rows(f"SELECT min(started_at) FROM jobs WHERE id > {job}")[0],
    )
    assert ended <= began


def test_a_runner_of_an_older_version_ends_once_the_database_is_migrated(project, site):
    """It starts nothing that would be refused, so that no crawl is set aside for it."""
    project.write(ENDLESS, SHORT)
    queued.add(project, "a")
    runner = queued.work(project, "--processes", "2")
    queued.until_running(project, "a")
    until(lambda: project.rows("SELECT 1 FROM jobs WHERE worker_id IS NOT NULL"), project.log)
    with queued.transaction(project.url) as connection:
        connection.execute(sa.text("UPDATE itemgraph_version SET version_num = '9999'"))
    queued.add(project, "b")

    run = project.finish(runner)
    assert run.code == 1
    assert "ERROR: The runner ends: This database was made by a newer" in run.log
    assert queued.jobs(project) == [("a", "cancelled", 1)]
    assert project.rows("SELECT state FROM crawls WHERE name = 'b'") == [("active",)]


def test_a_runner_whose_role_loses_its_rights_says_so_and_notes_ends_later(project, other, site):
    """It says it once for each refusal, and a job that ended meanwhile has its exit code."""
    queued.add(project, "a")
    with little_role(project.url) as role:
        other.url = role.url
        other.write(ENDLESS, SHORT)
        runner = queued.work(other)
        before = queued.until_running(project, "a")
        role.take()
        os.kill(before["a"], signal.SIGKILL)
        refused = "A round failed, and is tried again every 2 seconds: The database refuses"
        until(lambda: refused in other.log(runner), other.log)
        role.give()
        until(lambda: queued.running(project).get("a") not in {None, before["a"]}, other.log)
        runner.send_signal(signal.SIGTERM)
        log = other.finish(runner).log

    assert "Traceback" not in log
    ended = project.rows("SELECT state, exit_code FROM jobs ORDER BY id LIMIT 1")
    assert ended == [("temporary-error", -signal.SIGKILL)]


def test_a_frozen_runner_does_not_act_on_what_it_lost(project, site):
    """MNB-1: another takes over after the lease; thawed, it goes on with what is its own alone."""
    project.write(ENDLESS, SHORT)
    queued.add(project, "a", "b")
    frozen = queued.work(project, "--processes", "2", "--name", "one")
    before = queued.until_running(project, "a", "b")
    second = project.scrapy("itemgraph", "work", *queued.LITTLE, "--name", "one")
    assert second.code == 1
    assert f"the runner one runs already: process {frozen.pid} on " in second.log
    assert "or give this one a name of its own: work --name NAME" in second.log

    other = queued.work(project, "--processes", "2", "--name", "two")
    os.kill(frozen.pid, signal.SIGSTOP)
    os.kill(before["a"], signal.SIGKILL)
    until(lambda: queued.running(project).get("a") not in {None, before["a"]}, project.log)
    assert "The runner one is gone" in project.log(other)
    assert queued.running(project)["b"] == before["b"]
    os.kill(frozen.pid, signal.SIGCONT)
    until(lambda: project.rows("SELECT 1 FROM places WHERE crawl_id IS NOT NULL OFFSET 1"))

    after = queued.until_running(project, "a", "b")
    assert after["b"] == before["b"]
    queued.end(project, frozen)
    until(lambda: queued.running(project).get("b") not in {None, after["b"]}, project.log)
    assert queued.running(project)["a"] == after["a"]
    queued.end(project, other)
    assert queued.jobs(project) == [
        ("a", "temporary-error", 1),
        ("b", "cancelled", 1),
        ("a", "cancelled", 1),
        ("b", "cancelled", 1),
    ]


def test_a_runner_ends_whose_name_another_process_has_by_now(project, site):
    """MNB-1: thawed after the lease it stops what it runs, which the other starts again."""
    project.write(ENDLESS, SHORT)
    queued.add(project, "a")
    frozen = queued.work(project, "--name", "one")
    (before,) = queued.until_running(project, "a").values()
    os.kill(frozen.pid, signal.SIGSTOP)
    dead = "SELECT 1 FROM processes WHERE kind = 'runner' AND lease_until < clock_timestamp()"
    until(lambda: project.rows(dead) != [])
    other = queued.work(project, "--name", "one")
    until(lambda: "The runner one takes" in project.log(other), project.log)
    os.kill(frozen.pid, signal.SIGCONT)

    log = project.finish(frozen).log
    assert f"the runner one runs already: process {other.pid} on " in log
    until(lambda: queued.running(project).get("a") not in {None, before}, project.log)
    assert not queued.is_alive(before)
    queued.end(project, other)


def test_a_host_that_is_cut_off_loses_its_crawls_to_another(project, other, engine, site):
    """MNB-1: after the lease others run them; back again, its processes see that, and end."""
    project.write(ENDLESS, SHORT)
    with proxies.proxy(engine) as (proxy, other.url):
        other.write(ENDLESS, SHORT)
        queued.add(project, "a")
        cut = queued.work(other, "--name", "far")
        (lost,) = queued.until_running(project, "a").values()
        near = queued.work(project, "--name", "near")
        until(lambda: "The runner near takes" in project.log(near), project.log)
        proxy.freeze()
        until(lambda: queued.running(project).get("a") not in {None, lost}, project.log)
        assert queued.is_alive(lost)
        proxy.thaw()
        until(lambda: not queued.is_alive(lost), other.log)

        queued.end(project, near)
        until(lambda: "a" in queued.running(project), other.log)
        queued.end(other, cut)
    assert queued.jobs(project) == [
        ("a", "temporary-error", 1),
        ("a", "cancelled", 1),
        ("a", "cancelled", 1),
    ]


TWO_LIVE = "SELECT 1 FROM processes WHERE kind = 'worker' AND locked_at IS NOT NULL OFFSET 1"


@pytest.fixture
def stoppable(project, site):
    """Queue two crawls in a database of the test's own server, which it may stop."""
    with servers.own_postgres() as server:
        project.url = server.url
        project.write(ENDLESS, SHORT)
        project.scrapy("itemgraph", "init")
        queued.add(project, "a", "b")
        yield server


def until_two_live(project) -> dict:
    """Wait until both crawls run, and their processes can be told from dead ones."""
    found = queued.until_running(project, "a", "b")
    until(lambda: project.rows(TWO_LIVE), project.log)
    return found


@pytest.mark.slow
def test_processes_outlive_a_database_that_is_away_for_two_minutes(project, stoppable):
    """MNB-4: they wait for it and go on, and the runner starts what was queued right before."""
    project.write(ENDLESS, SHORT.replace("1m", "5m"))
    runner = queued.work(project, "--processes", "3")
    before = until_two_live(project)
    stoppable.stop()
    time.sleep(120)
    assert all(map(queued.is_alive, before.values()))
    stoppable.start()
    queued.add(project, "c")
    after = queued.until_running(project, "a", "b", "c")
    queued.end(project, runner)

    assert before.items() <= after.items()


@pytest.mark.slow
def test_runners_bury_nobody_after_an_outage_longer_than_their_lease(project, stoppable):
    """MNB-4: each finds the leases of the others over, and leaves them the time to renew them."""
    project.write(ENDLESS, SHORT.replace("LEASE = 3", "LEASE = 15"))
    three = [queued.work(project, "--name", name) for name in ("one", "two", "three")]
    before = until_two_live(project)
    stoppable.stop()
    time.sleep(30)
    stoppable.start()
    for runner in three:
        until(lambda runner=runner: "The database answers again" in project.log(runner))
    time.sleep(5)
    assert queued.running(project) == before, project.log()
    assert project.rows("SELECT what FROM notices") == []
    for runner in three:
        assert "is gone" not in queued.end(project, runner)


# It writes more than its disk has, once that is full.
WRITES = ENDLESS.replace(
    "            await asyncio.sleep(0.05)\n",
    """            await asyncio.sleep(0.05)
            if os.path.exists("write"):
                for n in range(50_000):
                    print("line", n)
                raise CloseSpider("written")
""",
)


@pytest.mark.slow
def test_a_full_disk_of_logs_stops_no_process_and_starts_none(project, site, tmp_path):
    """MNB-1: what writes goes on without a file; nothing is started until there is room again."""
    logs = tmp_path / "logs"
    logs.mkdir()
    project.write(WRITES)
    queued.add(project, "a")
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(hosts.disk(logs))
        except hosts.UnavailableError as error:
            pytest.skip(f"no disk of its own: {error}")
        options = ("--processes", "2", "--logs", str(logs), "--min-disk", "1G")
        runner = queued.work(project, *options)
        queued.until_running(project, "a")
        with disk.full():
            until(lambda: "low on disk" in project.log(runner), project.log)
            queued.add(project, "b")
            (project.directory / "write").touch()
            until(lambda: not queued.running(project), project.log)
            (project.directory / "write").unlink()
            assert "cannot be written: [Errno 28] No space left" in project.log(runner)
            ended = project.rows("SELECT state, output LIKE '%line 49999%' FROM jobs")
            assert ended == [("completed", True)]
        until(lambda: "b" in queued.running(project), project.log)
        queued.end(project, runner)
