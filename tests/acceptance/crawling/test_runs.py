"""Drop-in crawls over several runs and in several processes: stopped, killed, started again."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import defaultdict
from pathlib import Path

import psutil
import pytest
from support import servers, sites
from support.projects import Project, kill, until

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

WORKER_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 'processes'::regclass "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Gated(sites.Site):
    """A site with as many gates as there are paths /gate/…, each opened by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: dict[str, threading.Event] = defaultdict(threading.Event)
        self.opened: dict[str, threading.Event] = defaultdict(threading.Event)

    def release(self):
        super().release()
        for gate in list(self.opened.values()):
            gate.set()

    def answer(self, target):
        if target.startswith("/gate/"):
            self.reached[target].set()
            self.opened[target].wait(60)
            target = target.replace("/gate/", "/gated/")
        return super().answer(target)


@pytest.fixture(scope="module")
def site_kind():
    """Return a site with gates."""
    return Gated


def last_outcomes(project):
    """Return how the last attempt at each request ended."""
    return {path: ends[-1] for path, ends in project.request_outcomes().items()}


# Stopped, and started again


TREE = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        for child in (3 * number + 1, 3 * number + 2, 3 * number + 3):
            if child < 40:
                yield scrapy.Request(f"{SITE}/page/{child}")
"""


def test_a_crawl_closed_by_a_limit_goes_on_where_it_was(project, site):
    """CLOSESPIDER_PAGECOUNT again and again: each page once, and a start that goes on says so."""
    project.write(TREE.replace("< 40", "< 60"), "CONCURRENT_REQUESTS = 4")

    limited = [project.crawl("-s", "CLOSESPIDER_PAGECOUNT=12") for _ in range(2)]
    last = project.crawl()

    assert [run.stats["reason"] for run in limited] == ["closespider_pagecount"] * 2
    assert last.stats["reason"] == "finished", last.log
    assert site.hits == {f"/page/{n}": 1 for n in range(60)}
    lines = ["a new crawl of the site" in run.log for run in (*limited, last)]
    assert lines == [True, False, False]
    assert ["resuming: " in run.log for run in (*limited, last)] == [False, True, True]


GATES = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        for n in range(4):
            yield scrapy.Request(f"{SITE}/gate/{n}", self.more, priority=1)
        for n in range(20):
            yield scrapy.Request(f"{SITE}/page/more/{n}", self.more)

    def more(self, response):
        yield {"url": response.url}
"""


def test_an_interrupted_crawl_goes_on_where_it_was(project, site):
    """SIGINT: what is under way is finished and committed, the rest is done by the next run."""
    project.write(GATES, "CONCURRENT_REQUESTS = 4")
    process = project.start("crawl", "s")
    for n in range(4):
        assert site.reached[f"/gate/{n}"].wait(120), project.log()

    process.send_signal(signal.SIGINT)
    project.wait_for("shutting down gracefully")
    for n in range(4):
        site.opened[f"/gate/{n}"].set()
    run = project.finish(process)
    again = project.crawl()

    assert run.stats["reason"] == "shutdown", run.log
    assert again.stats["reason"] == "finished", again.log
    assert set(site.hits.values()) == {1}, site.hits
    assert len(site.hits) == 25
    assert run.stats["item_scraped_count"] + again.stats["item_scraped_count"] == 24
    assert set(last_outcomes(project).values()) == {"ok"}
    assert project.claimed() == 0


def test_a_killed_crawl_goes_on_where_it_was(project, site):
    """Kill -9: only what was under way is downloaded again, not even the start request."""
    project.write(GATES, "CONCURRENT_REQUESTS = 4")
    process = project.start("crawl", "s")
    for n in range(4):
        assert site.reached[f"/gate/{n}"].wait(120), project.log()

    kill(process)
    for n in range(4):
        site.opened[f"/gate/{n}"].set()
    again = project.crawl()

    assert again.stats["reason"] == "finished", again.log
    assert again.stats["item_scraped_count"] == 24
    assert {path for path, hits in site.hits.items() if hits > 1} <= {
        f"/gated/{n}" for n in range(4)
    }
    assert site.hits["/page/0"] == 1
    assert set(last_outcomes(project).values()) == {"ok"}
    assert len(last_outcomes(project)) == 25


def test_a_finished_crawl_started_again_follows_what_is_new(project, site):
    """With a time to live start requests are fetched again, the pages that are known are not."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1", SITE + "/page/2"]

        def parse(self, response):
            for n in NUMBERS:
                yield scrapy.Request(f"{SITE}/page/more/{n}", self.more)

        def more(self, response):
            pass
    """
    project.write(spider.replace("NUMBERS", "(1, 2)"), 'ITEMGRAPH_DEFAULT_TTL = "never"')
    first = project.crawl()

    project.write(spider.replace("NUMBERS", "(1, 2, 3)"), 'ITEMGRAPH_DEFAULT_TTL = "never"')
    second = project.crawl()
    third = project.crawl()

    assert [run.stats["reason"] for run in (first, second, third)] == ["finished"] * 3, third.log
    assert site.hits == {
        "/page/1": 3,
        "/page/2": 3,
        "/page/more/1": 1,
        "/page/more/2": 1,
        "/page/more/3": 1,
    }


def test_a_filtered_start_request_is_fetched_once_in_each_run(project, site):
    """A start request without dont_filter shares its name with links to it, and runs every time."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield scrapy.Request(SITE + "/page/1")
            yield scrapy.Request(SITE + "/page/1")

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/1")
            yield scrapy.Request(SITE + "/page/2")
    """)

    first = project.crawl()
    second = project.crawl()

    assert [run.stats["reason"] for run in (first, second)] == ["finished"] * 2, second.log
    assert site.hits == {"/page/1": 2, "/page/2": 2}


def test_who_starts_after_a_kill_does_not_join_a_run_of_the_dead(project, site):
    """With all work done and its worker killed a run is over, though the lease is not."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"

            async def start(self):
                yield scrapy.Request(SITE + "/page/1")

            def parse(self, response):
                yield scrapy.Request(SITE + "/page/2")
        """,
        "ITEMGRAPH_LEASE = 3600",
    )
    waiting = project.start("crawl", "s", "-s", "ITEMGRAPH_IDLE=wait")
    until(lambda: project.rows("SELECT has_started FROM workers") == [(True,)], project.log)
    until(lambda: project.request_outcomes() == {"/page/1": ["ok"], "/page/2": ["ok"]}, project.log)

    kill(waiting)
    until(lambda: project.rows(WORKER_LOCKS) == [(0,)])
    again = project.crawl()

    assert again.stats["reason"] == "finished", again.log
    assert site.hits == {"/page/1": 2, "/page/2": 2}


def test_a_start_request_that_a_page_links_to_is_fetched_in_each_run(project, site):
    """A link to it that is known from the last run does not take the start request's turn."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield scrapy.Request(SITE + "/page/1", dont_filter=True)
            while not self.crawler.stats.get_value("itemgraph/committed"):
                await asyncio.sleep(0.05)
            yield scrapy.Request(SITE + "/page/2")

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2")
    """)

    runs = [project.crawl() for _ in range(2)]

    assert [run.stats["reason"] for run in runs] == ["finished"] * 2, runs[1].log
    assert site.hits["/page/1"] == 2
    assert site.hits["/page/2"] >= 2


def test_pages_are_fetched_again_when_their_results_are_stale(project, site):
    """ITEMGRAPH_DEFAULT_TTL for all, and meta["itemgraph_ttl"] for a single request."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/0"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/default", self.more)
            yield scrapy.Request(SITE + "/page/short", self.more, meta={"itemgraph_ttl": "1h"})
            yield scrapy.Request(SITE + "/page/never", self.more, meta={"itemgraph_ttl": "never"})

        def more(self, response):
            pass
    """,
        'ITEMGRAPH_DEFAULT_TTL = "1d"',
    )
    first = project.crawl()
    after_first = dict(site.hits)

    aged = project.scrapy("itemgraph", "age", "s", "2h")
    second = project.crawl()
    after_second = dict(site.hits)

    project.scrapy("itemgraph", "age", "s", "2d")
    third = project.crawl()

    assert aged.code == 0, aged.log
    assert [run.stats["reason"] for run in (first, second, third)] == ["finished"] * 3, third.log
    names = ("/page/0", "/page/default", "/page/short", "/page/never")
    assert [after_first[name] for name in names] == [1, 1, 1, 1]
    assert [after_second[name] for name in names] == [2, 1, 2, 1]
    assert [site.hits[name] for name in names] == [3, 2, 3, 1]


@pytest.mark.tracebacks("meta['itemgraph_ttl'] is 'soon'")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.more)
        yield scrapy.Request(SITE + "/page/3", self.more, meta={"itemgraph_ttl": "soon"})

    def more(self, response):
        pass
""")
def test_a_bad_time_to_live_is_an_error_at_the_yield(run, project, site):
    """It names the spider, the callback and the URL, and loses nothing that was yielded before."""
    assert run.stats["reason"] == "finished", run.log
    assert re.search(
        rf"spider s, callback parse, {site.url}/page/1: .*itemgraph_ttl.*soon", run.log
    ), run.log
    assert site.hits == {"/page/1": 1, "/page/2": 1}
    assert last_outcomes(project)["/page/1"] == "failed"


def test_another_version_of_a_callback_runs_it_again(project, site):
    """ITEMGRAPH_CALLBACKS={"more": {"version": "2"}} makes all its results stale."""
    settings = 'ITEMGRAPH_DEFAULT_TTL = "never"\n'
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            for n in range(3):
                yield scrapy.Request(f"{SITE}/page/more/{n}", self.more)
            yield scrapy.Request(SITE + "/page/other", self.other)

        def more(self, response):
            pass

        def other(self, response):
            pass
    """
    project.write(spider, settings)
    project.crawl()

    project.write(spider, settings + 'ITEMGRAPH_CALLBACKS = {"more": {"version": "2"}}')
    run = project.crawl()
    last = project.crawl()

    assert run.stats["reason"] == last.stats["reason"] == "finished", run.log
    assert site.hits == {
        "/page/1": 3,
        **{f"/page/more/{n}": 2 for n in range(3)},
        "/page/other": 1,
    }


def test_a_start_request_that_failed_is_tried_again_by_the_next_run(project, site):
    """A failure holds it for that run only; once it succeeds the failure is handled."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/flaky/2"]

        def parse(self, response):
            yield {"url": response.url}
    """)

    first = project.crawl()
    failed = project.rows("SELECT count(*) FROM failures WHERE handled_at IS NULL")
    second = project.crawl()

    assert first.stats["reason"] == second.stats["reason"] == "finished", second.log
    assert failed == [(1,)]
    assert second.stats["item_scraped_count"] == 1
    assert project.request_outcomes() == {"/flaky/2": ["failed", "ok"]}
    assert project.rows("SELECT count(*) FROM failures WHERE handled_at IS NULL") == [(0,)]


def test_unfiltered_children_run_again_with_their_parent(project, site):
    """A dont_filter request is fetched as often as the page that yields it, and never more."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more, dont_filter=True)
            yield scrapy.Request(SITE + "/page/3", self.more)

        def more(self, response):
            if response.url.endswith("/3"):
                yield scrapy.Request(SITE + "/page/4", self.more, dont_filter=True)
    """,
        'ITEMGRAPH_DEFAULT_TTL = "never"',
    )

    runs = [project.crawl() for _ in range(2)]

    assert [run.stats["reason"] for run in runs] == ["finished"] * 2, runs[1].log
    assert site.hits == {"/page/1": 2, "/page/2": 2, "/page/3": 1, "/page/4": 1}


# Several processes


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_share_a_frontier(project, site, tmp_path, count):
    """Each page is fetched once, by whichever process, and all of them end."""
    spider = TREE.replace("< 40", "< 150").replace("/page/", "/slow/0.05/")
    projects = []
    for n in range(count):
        directory = tmp_path / f"worker {n}"
        directory.mkdir()
        projects.append(Project(directory, project.url, site.url))
        projects[-1].write(spider, "CONCURRENT_REQUESTS = 2")

    processes = [one.start("crawl", "s") for one in projects]
    runs = [one.finish(process, 120) for one, process in zip(projects, processes, strict=True)]

    assert {run.stats["reason"] for run in runs} == {"finished"}, runs[0].log
    assert site.hits == {f"/slow/0.05/{n}": 1 for n in range(150)}
    assert sum(run.stats.get("itemgraph/committed", 0) for run in runs) == 150
    assert project.claimed() == 0


HELP = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/gate/first", self.first, priority=1)
        for n in range(10):
            yield scrapy.Request(f"{SITE}/page/more/{n}", self.more)

    def first(self, response):
        for n in range(10):
            yield scrapy.Request(f"{SITE}/gate/late", self.late, dont_filter=True)

    def more(self, response):
        pass

    def late(self, response):
        self.logger.info("LATE RUNS")
"""


def test_a_late_joiner_helps_and_does_not_end_early(project, other, site):
    """It does what waits, stays while another works, and claims callbacks that it has not met."""
    for one in (project, other):
        one.write(HELP, "CONCURRENT_REQUESTS = 1\nITEMGRAPH_CLAIM_BATCH = 1")
    busy = project.start("crawl", "s")
    assert site.reached["/gate/first"].wait(120), project.log()

    helper = other.start("crawl", "s")
    until(lambda: sum("more" in path for path in list(site.hits)) >= 8, other.log)
    site.opened["/gate/first"].set()
    until(
        lambda: project.rows("SELECT count(*) >= 10 FROM items WHERE name LIKE 'REQ:%:%:%'")[0][0]
    )
    until(lambda: project.rows("SELECT count(*) FROM work WHERE token IS NOT NULL")[0][0] >= 2)
    until(lambda: helper.poll() is not None or is_met(other), other.log)
    site.opened["/gate/late"].set()
    runs = [project.finish(busy), other.finish(helper)]

    assert {run.stats["reason"] for run in runs} == {"finished"}, runs[1].log
    assert runs[1].log.count("LATE RUNS") > 0, runs[1].log
    assert sum(run.log.count("LATE RUNS") for run in runs) == 10
    assert site.hits["/page/0"] == site.hits["/gated/first"] == 1
    assert set(last_outcomes(project).values()) == {"ok"}


def is_met(project):
    """Tell whether both workers have claimed work of the callback `late`."""
    return (
        project.rows(
            "SELECT count(DISTINCT w.worker_id) FROM work w JOIN tasks t ON t.id = w.task_id "
            "WHERE t.name = 'late' AND w.token IS NOT NULL"
        )[0][0]
        == 2
    )


def test_who_is_left_takes_over_from_the_killed(project, other, site):
    """Kill -9 of one of two: the other does its pages without waiting for a lease."""
    for one in (project, other):
        one.write(HELP, "CONCURRENT_REQUESTS = 1\nITEMGRAPH_LEASE = 3600")
    busy = project.start("crawl", "s")
    assert site.reached["/gate/first"].wait(120), project.log()
    helper = other.start("crawl", "s")
    until(lambda: "Spider opened" in other.log(), other.log)

    kill(busy)
    site.opened["/gate/first"].set()
    site.opened["/gate/late"].set()
    run = other.finish(helper)

    assert run.stats["reason"] == "finished", run.log
    assert run.log.count("LATE RUNS") == 10
    assert site.hits["/page/0"] == 1
    assert site.hits["/gated/late"] == 10
    assert set(last_outcomes(project).values()) == {"ok"}
    assert project.claimed() == 0


# Much, and hardships


@pytest.mark.crawls("""
import asyncio

from scrapy_itemgraph.worker import worker as workers


class S(scrapy.Spider):
    name = "s"

    async def start(self):
        worker = workers.of(self.crawler)
        most = 0
        for n in range(5000):
            yield scrapy.Request(f"{SITE}/page/{n}")
            most = max(most, worker.parts.outbox.pending)
        self.logger.info(f"MOST {most}.")
        closing = self.crawler.engine.close_spider_async(reason="enough")
        self.closing = asyncio.ensure_future(closing)

    def parse(self, response):
        pass
""")
def test_many_start_requests_do_not_pile_up_in_memory(run, project):
    """start() waits while a thousand of its requests are not committed yet; none is lost."""
    most = int(re.search(r"MOST (\d+)\.", run.log)[1])
    assert run.stats["reason"] == "enough", run.log[-5000:]
    assert most <= 1100
    assert project.rows("SELECT count(*) FROM items") == [(5000,)]
    assert project.claimed() == 0


def test_a_crawl_outlasts_an_outage_of_the_database(tmp_path, site):
    """The server is killed in mid-crawl and comes back: the crawl goes on, and nothing is lost."""
    with servers.unwatched(tmp_path / "server") as server:
        project = Project(tmp_path, server.url, site.url)
        project.write(GATES, "CONCURRENT_REQUESTS = 4")
        process = project.start("crawl", "s")
        for n in range(4):
            assert site.reached[f"/gate/{n}"].wait(60), project.log()

        (pid_file,) = Path(tmp_path).rglob("postmaster.pid")
        postmaster = psutil.Process(int(pid_file.read_text().split()[0]))
        os.kill(postmaster.pid, signal.SIGQUIT)
        for n in range(4):
            site.opened[f"/gate/{n}"].set()
        project.wait_for("The crawl waits for it")
        EmbeddedServer.start(tmp_path / "server").close()
        run = project.finish(process, 120)
        hits = dict(site.hits)
        again = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 24
    assert "The database answers again" in run.log
    assert set(hits.values()) == {1}
    assert set(site.hits.values()) == {2}
    assert again.stats["itemgraph/claimed"] == len(hits)
