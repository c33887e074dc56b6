"""How a crawl is stopped: what has ended is committed, the rest is released."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import scrapy
from support import servers
from support.projects import Project

from scrapy_itemgraph import ItemGraph

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("GATE", "/gate", tags=["gate"])
        yield seed("FOLLOWS", "/gate/follows", tags=["follows"])
        for n in range(60):
            yield seed(f"PAGE:{n}", f"/gate/{n}")

    @task(tags=["gate"], nice=-1)
    def parse_gate(self, response, item):
        yield UpdateData({"done": True})

    @task(tags=["follows"], nice=-1)
    def parse_follows(self, response, item):
        yield UpdateData({"done": True})
        yield scrapy.Request(response.url + "/more", self.parse_more)

    def parse_more(self, response, item):
        yield UpdateData({"more": True})

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
"""


def test_one_interrupt_finishes_what_is_under_way(project, site):
    """SIGINT: in-flight pages are committed; unstarted and half-done work is released."""
    project.write(SPIDER)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()

    process.send_signal(signal.SIGINT)
    project.wait_for("shutting down gracefully")
    site.may_answer.set()
    run = project.finish(process)

    assert run.stats["reason"] == "shutdown", run.log
    assert project.claimed() == 0
    outcomes = project.outcomes()
    assert outcomes["GATE"] == ["ok"]
    assert outcomes["FOLLOWS"] == ["released"]
    assert "done" not in project.data()["FOLLOWS"]
    assert run.stats["itemgraph/claimed"] == (
        run.stats["itemgraph/committed"] + run.stats["itemgraph/released"]
    )
    assert run.stats["itemgraph/committed"] <= 8

    again = project.crawl()

    assert again.code == 0
    assert all(ends[-1] == "ok" for ends in project.outcomes().values())
    assert len(project.outcomes()) == 62


def test_two_interrupts_leave_the_work_to_the_next_run(project, site):
    """After a second SIGINT nothing of ours runs; the next start takes the work over at once."""
    project.write(SPIDER)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()

    process.send_signal(signal.SIGINT)
    project.wait_for("shutting down gracefully")
    process.send_signal(signal.SIGINT)
    project.finish(process)

    assert project.claimed() > 0
    site.may_answer.set()
    again = project.crawl()
    assert again.code == 0, again.log
    assert project.claimed() == 0
    assert all(ends[-1] == "ok" for ends in project.outcomes().values())
    assert again.stats["elapsed_time_seconds"] < 20


def test_close_spider_in_a_callback_of_a_task_ends_its_page_well(project):
    """What the execution yielded is committed, and the next start has nothing of it to do again."""
    spider = """
    class S(scrapy.Spider):
        name = "s"

        def seeds(self):
            yield seed("PAGE")

        @task(tags=["page"])
        def parse_page(self, response, item):
            yield UpdateData({"done": True})
            if not hasattr(self, "go"):
                raise CloseSpider("enough")
    """
    project.write(spider)

    run = project.crawl()

    assert run.stats["reason"] == "enough"
    assert project.outcomes() == {"PAGE": ["ok"]}
    assert project.data()["PAGE"]["done"] is True

    project.crawl("-a", "go=1")

    assert project.outcomes() == {"PAGE": ["ok"]}


@pytest.mark.edge
@pytest.mark.tracebacks("CloseSpider")
def test_close_spider_in_start_ends_the_crawl(project):
    """Scrapy before 2.18 takes it for an error: what was begun is done, and the crawl ends."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield scrapy.Request(SITE + "/page/1")
            if not hasattr(self, "go"):
                raise CloseSpider("enough")

        def parse(self, response):
            pass
    """)

    run = project.crawl()
    project.crawl("-a", "go=1")

    closes = scrapy.version_info >= (2, 18)
    assert run.stats["reason"] == ("enough" if closes else "finished"), run.log
    assert ("start() raised CloseSpider" in run.log) is not closes
    assert project.request_outcomes()["/page/1"][-1] == "ok"
    assert project.claimed() == 0


@pytest.mark.tracebacks("ValueError: the parser is broken")
def test_a_failure_stays_one_when_the_spider_closes(project):
    """What failed is recorded as failed though the crawl ends before its follow-ups could run."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        custom_settings = {
            "CLOSESPIDER_ERRORCOUNT": 1,
            "DOWNLOAD_SLOTS": {"slow": {"concurrency": 1, "delay": 1, "randomize_delay": False}},
        }

        def seeds(self):
            yield seed("PAGE")

        @task(tags=["page"])
        def parse_page(self, response, item):
            for n in range(4):
                yield scrapy.Request(
                    f"{SITE}/page/{n}", self.parse_more, meta={"download_slot": "slow"}
                )

        def parse_more(self, response, item):
            raise ValueError("the parser is broken")
    """
    project.write(spider)

    run = project.crawl()

    assert run.stats["reason"] == "closespider_errorcount", run.log
    assert project.outcomes() == {"PAGE": ["failed"]}
    assert project.rows("SELECT count(*) FROM failures") == [(1,)]


def test_an_interrupt_without_a_server_ends_with_one_line(tmp_path, site):
    """SIGINT after the server died: one error, no traceback, and the reason is the interrupt's."""
    settings = """
    ITEMGRAPH_PATIENCE = 2.0
    ITEMGRAPH_IDLE = "wait"
    """
    with servers.unwatched(tmp_path / "server") as server:
        ItemGraph.migrate(server.url)  # which a short patience does not wait for
        project = Project(tmp_path, server.url, site.url).write(SPIDER, settings)
        process = project.start("crawl", "s")
        assert site.arrived.wait(60), project.log()
        (pid_file,) = Path(tmp_path).rglob("postmaster.pid")

        os.kill(int(pid_file.read_text().split()[0]), signal.SIGQUIT)
        process.send_signal(signal.SIGINT)
        site.may_answer.set()
        run = project.finish(process, 120)

    assert run.stats["reason"] == "shutdown", run.log
    assert "Traceback" not in run.log
    assert run.log.count("ERROR: ") == 1, run.log


@pytest.mark.tracebacks("twisted.internet.defer.AlreadyCalledError")  # Scrapy's own
def test_what_is_downloaded_after_the_end_goes_through(project, site):
    """A `spider_closed` handler may download, though the graph is closed; the run ends."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"

            @classmethod
            def from_crawler(cls, crawler, *args, **kwargs):
                spider = super().from_crawler(crawler, *args, **kwargs)
                crawler.signals.connect(spider.say_bye, scrapy.signals.spider_closed)
                return spider

            def seeds(self):
                yield seed("PAGE")

            @task(tags=["page"])
            def parse_page(self, response, item):
                pass

            async def say_bye(self):
                await self.crawler.engine.download_async(scrapy.Request(SITE + "/bye"))
        """,
        settings="DOWNLOAD_DELAY = 0.1",
    )

    run = project.crawl()

    assert run.code == 0, run.log
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/bye"] == 1


ENDLESS = """
class S(scrapy.Spider):
    name = "s"
    custom_settings = {"CLOSESPIDER_TIMEOUT": 1}

    async def start(self):
        for n in range(10**9):
            slot = self.crawler.engine._slot
            if slot is None or slot.closing is not None:
                self.crawler.stats.inc_value("yielded_while_closing")
            yield scrapy.Request(f"{SITE}/page/{n}")
            PAUSE

    def parse(self, response):
        pass
"""


@pytest.mark.parametrize("pause", ["await asyncio.sleep(0.001)", "pass"])
def test_closing_stops_a_start_without_end(project, site, pause):
    """CLOSESPIDER_TIMEOUT: `start()` is asked for no more, whether it awaits or never does."""
    project.write(ENDLESS.replace("PAUSE", pause), "DOWNLOAD_DELAY = 0.05\n")

    run = project.crawl()

    assert run.stats["reason"] == "closespider_timeout", run.log
    assert run.stats.get("yielded_while_closing", 0) <= 2
    assert project.rows("SELECT is_finished FROM runs") == [(False,)]
