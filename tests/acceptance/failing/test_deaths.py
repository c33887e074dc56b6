"""Pages that kill or block their process, and the innocent ones beside them."""

from __future__ import annotations

import os
import random
import re
import time

from support.projects import Project, kill, until

from scrapy_itemgraph.postgres import engine as engines

# In a dose for `make test`; `make chaos` gives sixty.
KILLS = int(os.environ.get("ITEMGRAPH_CHAOS_KILLS", "4"))

PAGES = """
import signal
import time


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(COUNT):
            yield seed(f"PAGE:{number}", f"/page/{number}")

"""

KILLER = (
    PAGES.replace("COUNT", "191")
    + """
    @task(tags=["page"])
    def parse(self, response, item):
        if item.id == "PAGE:40":
            os.kill(os.getpid(), signal.SIGKILL)
        yield UpdateData({"done": True})
"""
)


def test_a_page_that_kills_its_process_is_the_only_one_given_up(project):
    """Of 191 pages one kills each process that runs it: it alone fails, after five deaths."""
    project.write(KILLER, "ITEMGRAPH_LEASE = 3600\nCONCURRENT_REQUESTS_PER_DOMAIN = 8")
    runs = []
    while not runs or runs[-1].code != 0:
        assert len(runs) < 6, runs[-1].log
        runs.append(project.crawl())

    last = runs[-1]
    assert [run.code for run in runs] == [-9] * 5 + [0], last.log
    assert last.stats["reason"] == "finished", last.log
    ((item, error),) = project.rows(
        "SELECT i.name, f.error FROM failures f JOIN items i ON i.id = f.item_id"
    )
    assert (item, error["type"]) == ("PAGE:40", "worker died")
    assert sum("done" in data for data in project.data().values()) == 190
    assert project.outcomes()["PAGE:40"] == ["died"] * 5
    log = "".join(run.log for run in runs)
    (warning,) = [line for line in log.splitlines() if "] WARNING: Gave up" in line]
    assert f"{project.site_url}/page/40" in warning
    assert "1 held because its workers died or stalled" in last.log
    assert "worker died" in project.scrapy("itemgraph", "failures").output


BESIDE = """
from scrapy_itemgraph import exceptions


class S(scrapy.Spider):
    name = "s"
    active = done = 0

    def seeds(self):
        for number in range(3):
            yield seed(f"SUSPECT:{number}")
        for number in range(150):
            yield seed(f"PAGE:{number}")

    @task(tags=["page"])
    async def parse(self, response, item):
        if not hasattr(self, "go"):
            engine = self.crawler.engine
            self.closing = asyncio.ensure_future(engine.close_spider_async(reason="enough"))
            raise exceptions.DatabaseUnavailableError("given back")
        before = self.active
        self.active += 1
        await asyncio.sleep(0.2 if item.id.startswith("SUSPECT") else 0.02)
        self.active -= 1
        self.done += 1
        if item.id.startswith("SUSPECT"):
            self.logger.info("SUSPECT BESIDE %d, AFTER %d", before + self.active, self.done)
"""


def test_what_is_suspect_runs_alone_between_ordinary_batches(project):
    """Work that workers died on need not wait for the end of the rest, and nothing runs beside."""
    project.write(BESIDE)
    assert project.crawl().stats["reason"] == "enough"
    suspect = "SELECT id FROM items WHERE name LIKE 'SUSPECT%%'"
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE work SET deaths = 2 WHERE item_id IN ({suspect})")
    engine.dispose()

    run = project.crawl("-a", "go=1")

    found = re.findall(r"SUSPECT BESIDE (\d+), AFTER (\d+)", run.log)
    assert [beside for beside, _ in found] == ["0"] * 3, run.log
    assert 20 < int(found[0][1]) < 150
    assert {ends[-1] for ends in project.outcomes().values()} == {"ok"}
    assert len(project.outcomes()) == 153


BLOCKING = (
    PAGES.replace("COUNT", "12")
    + """
    @task(tags=["page"])
    async def parse(self, response, item):
        if item.id == "PAGE:3" and hasattr(self, "ends"):
            await asyncio.sleep(0.5)
            self.logger.info("BLOCKS")
            while not os.path.exists("end"):
                time.sleep(0.05)
        yield UpdateData({"done": True})
"""
)


def blocked(project, other, settings):
    """Write both projects, and start the crawl of the first, whose loop a callback then blocks."""
    for one in (project, other):
        one.write(BLOCKING, settings)
    process = project.start("crawl", "s", "-a", "ends=1")
    project.wait_for("BLOCKS")
    return process


def test_a_callback_that_blocks_the_loop_for_longer_than_the_lease_is_no_death(project, other):
    """The beat does not depend on the loop: the worker keeps its claims to itself."""
    process = blocked(project, other, "ITEMGRAPH_LEASE = 3")
    helper = other.start("crawl", "s")
    other.wait_for("Spider opened")
    ((lease,),) = project.rows("SELECT lease_until FROM processes ORDER BY id LIMIT 1")
    twice = f"SELECT lease_until > '{lease}'::timestamptz + interval '6 s' FROM processes"
    until(lambda: project.rows(f"{twice} ORDER BY id LIMIT 1") == [(True,)])
    (project.directory / "end").touch()
    run, ran = project.finish(process), other.finish(helper)

    assert (ran.stats["reason"], run.stats["reason"]) == ("finished", "finished"), run.log
    assert set(map(tuple, project.outcomes().values())) == {("ok",)}
    assert sorted(project.rows("SELECT reason FROM processes")) == [("finished",)] * 2
    assert "itemgraph/lease_lost" not in run.stats


def test_a_loop_that_is_blocked_for_longer_than_the_patience_is_a_stall(project, other):
    """Its stack is logged, others do its work, and it commits nothing of it when it goes on."""
    process = blocked(project, other, "ITEMGRAPH_LEASE = 3\nITEMGRAPH_PATIENCE = 2")
    project.wait_for("blocked the event loop")

    ran = other.crawl()
    (project.directory / "end").touch()
    run = project.finish(process)

    assert "time.sleep(0.05)" in run.log
    assert "Traceback" not in run.log
    assert ran.stats["reason"] == "finished", ran.log
    assert project.outcomes()["PAGE:3"] == ["stalled", "ok"]
    assert {tuple(ends) for ends in project.outcomes().values()} <= {("ok",), ("stalled", "ok")}
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["itemgraph/lease_lost"] >= 1


HUNDREDS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/slow/0.5/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        for child in range(3 * number + 1, 3 * number + 4):
            if child < int(os.environ["PAGES"]):
                yield scrapy.Request(f"{SITE}/slow/0.5/{child}")
"""


def test_many_kills_leave_no_page_held(tmp_path, database, site, monkeypatch):
    """Kill -9 of one of three processes again and again: every page is done, and none is held."""
    pages = 100 * (KILLS + 2)
    monkeypatch.setenv("PAGES", str(pages))
    settings = "CONCURRENT_REQUESTS_PER_DOMAIN = 24\nITEMGRAPH_LEASE = 3600"
    projects = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        one = Project(tmp_path / str(number), database, site.url)
        projects.append(one.write(HUNDREDS, settings))
    choice = random.Random(10)
    running = [one.start("crawl", "s") for one in projects]
    for _ in range(KILLS):
        next_at = time.monotonic() + choice.uniform(1.5, 4.5)
        while time.monotonic() < next_at:
            time.sleep(0.05)  # when does not matter, only that it is often
        victim = choice.randrange(3)
        kill(running[victim])
        running[victim] = projects[victim].start("crawl", "s")
    ended = [one.finish(process, 600) for one, process in zip(projects, running, strict=True)]

    assert {run.code for run in ended} == {0}, ended[0].log
    assert projects[0].rows("SELECT count(*) FROM failures") == [(0,)]
    assert projects[0].rows("SELECT count(*) FROM results WHERE is_held") == [(0,)]
    assert projects[0].rows("SELECT count(*) FROM work") == [(0,)]
    done = {path for path, ends in projects[0].request_outcomes().items() if ends[-1] == "ok"}
    assert done == {f"/slow/0.5/{number}" for number in range(pages)}
