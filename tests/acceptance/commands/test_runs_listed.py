"""`scrapy itemgraph runs`: how the runs of real crawls stood and ended, and what they did."""

from __future__ import annotations

import json
import signal

import pytest
from support.projects import ONE_ITEM, kill

from scrapy_itemgraph import CreateItem, ItemGraph

PAGES = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        yield {"url": response.url}
        if response.url.endswith("/page/0"):
            for path in PATHS:
                yield scrapy.Request(SITE + path, self.parse)
        if response.url.endswith("/page/bad"):
            raise ValueError("no price")

PATHS = ["/page/1", "/page/2", "/page/bad"]
"""

GATED = PAGES.replace('"/page/1", "/page/2"', '"/gate", "/page/1"')

TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("A")
        yield seed("B")

    @task(tags=["page"], max_attempts=1)
    def parse(self, response, item):
        yield {"name": item.id}
        yield {"name": item.id}
        if item.id == "B":
            raise ValueError("no price")
"""


def runs(project):
    """Return the crawl's runs, the newest first."""
    with ItemGraph.open(project.url, "s") as graph:
        return graph.crawls.runs()


def shown(run, *names):
    """Return some fields of a run."""
    return tuple(getattr(run, name) for name in names)


@pytest.mark.parametrize(("spider", "pages", "items"), [(PAGES, 3, 4), (TASKS, 1, 2)])
@pytest.mark.tracebacks("no price")
def test_runs_that_finished_have_their_counts(project, site, spider, pages, items):
    """Each start after the end is a run of its own, with what it did; the newest is first."""
    project.write(spider)
    project.crawl()
    project.crawl()

    second, first = runs(project)

    assert shown(first, "number", "state", "reason", "error") == (1, "finished", "finished", None)
    assert shown(first, "pages", "items", "failures") == (pages, items, 1)
    assert shown(first, "spider", "worker", "workers") == ("s", 1, 0)
    assert first.started_at < first.ended_at < second.started_at
    assert shown(second, "number", "state", "worker") == (2, "finished", 2)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.tracebacks("no price")
def test_a_run_that_was_ended_early_goes_on_as_the_same(project, site, how):
    """It is running, then stopped: by whom is its reason; the next start makes it run again."""
    project.write(GATED, "CONCURRENT_REQUESTS = 1")
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    (running,) = runs(project)

    if how == "stopped":
        process.send_signal(signal.SIGINT)
        project.wait_for("shutting down gracefully")
        site.may_answer.set()
        project.finish(process)
    else:
        kill(process)
        site.may_answer.set()
    (ended,) = runs(project)
    project.crawl()
    (finished,) = runs(project)

    assert shown(running, "state", "workers", "ended_at", "reason") == ("running", 1, None, None)
    reason = "shutdown" if how == "stopped" else "died"
    assert shown(ended, "number", "state", "reason", "workers") == (1, "stopped", reason, 0)
    assert ended.ended_at is not None
    assert shown(finished, "number", "state", "reason") == (1, "finished", "finished")
    assert shown(finished, "started_at", "worker") == shown(running, "started_at", "worker")
    if how == "stopped":
        assert shown(finished, "pages", "items", "failures") == (3, 4, 1)


@pytest.mark.tracebacks("no price")
def test_a_run_of_two_workers_is_one(project, site):
    """It runs on when one of them is stopped, and has what both did."""
    project.write(GATED)
    first = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    other = project.start("crawl", "s")
    project.wait_for("Crawled 0 pages")
    (both,) = runs(project)
    other.send_signal(signal.SIGINT)
    assert project.finish(other).code == 0
    (running,) = runs(project)
    site.may_answer.set()
    project.finish(first)
    (finished,) = runs(project)

    assert (both.workers, running.workers) == (2, 1)
    assert shown(running, "state", "reason", "ended_at") == ("running", None, None)
    assert shown(finished, "state", "worker", "pages", "items") == ("finished", 1, 3, 4)


RAISES = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        raise ValueError("no\\nlogin")
        yield

    def parse(self, response):
        pass
"""

BAD_SEED = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield CreateItem("A", tags=["page"])
        raise ValueError("no list")

    @task(tags=["page"], download=False)
    def parse(self, response, item):
        pass
"""


@pytest.mark.tracebacks("login", "no list")
@pytest.mark.parametrize(
    ("spider", "error"),
    [(RAISES, "start() raised ValueError: no\\nlogin"), (BAD_SEED, "ValueError: no list")],
)
def test_an_error_at_the_start_of_a_spider_is_told(project, spider, error):
    """Its sentence stands in the run, on one line."""
    project.write(spider)
    project.scrapy("crawl", "s")

    (run,) = runs(project)

    assert run.state in {"finished", "stopped"}
    assert error in run.error
    assert error in project.scrapy("itemgraph", "runs").output


def test_the_command_lists_runs(project):
    """One line each, the newest first; where there was none it says so."""
    project.write(ONE_ITEM)
    with ItemGraph.open(project.url, "s") as graph:
        graph.apply([CreateItem("A")])
    none = project.scrapy("itemgraph", "runs")
    project.crawl()
    project.crawl()

    listed = project.scrapy("itemgraph", "runs").output
    second, first = json.loads(project.scrapy("itemgraph", "runs", "--json").output)

    assert none.output == "there was no run yet\n"
    assert 0 < listed.index("2  finished") < listed.index("1  finished")
    assert (second["number"], first["number"], first["pages"]) == (2, 1, 1)
