"""Runs that their spider closes are over; what they leave does not come first in the next one."""

from __future__ import annotations

import json

import pytest
from support.projects import until
from support.sites import Site

DAILY = 9  # posts of a day
ONE_AT_A_TIME = "CONCURRENT_REQUESTS = 1\n"


class Blog(Site):
    """A site of posts, the newest first, ten on a page; `day` says how many there are."""

    day = 1

    def answer(self, target):
        status, headers, body = super().answer(target)
        if not target.startswith("/list/"):
            return status, headers, body
        page = int(target.rpartition("/")[2])
        newest = 30 + DAILY * (self.day - 1)
        posts = list(range(newest, 0, -1))[10 * (page - 1) : 10 * page]
        links = [f'<a class="post" href="/page/{number}">post</a>' for number in posts]
        if posts and posts[-1] > 1:
            links.append(f'<a class="next" href="/list/{page + 1}">next</a>')
        return status, headers, f"<html><body>{''.join(links)}</body></html>".encode()


@pytest.fixture(scope="module")
def site_kind():
    """Return a site of posts."""
    return Blog


def runs(project):
    """Return (number, reason, is_closed) of each run."""
    return project.rows("SELECT number, reason, is_closed FROM runs ORDER BY number")


def left(project):
    """Return the paths of the pages that are left."""
    rows = project.rows(
        "SELECT i.data->>'url' FROM results r JOIN items i ON i.id = r.item_id "
        "WHERE r.hold = 'left' ORDER BY 1"
    )
    return [url.removeprefix(project.site_url) for (url,) in rows]


# scrapy#4106

STARTS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        for key in range(12):
            yield scrapy.Request(f"{SITE}/page/{key}", cb_kwargs={"key": key})

    def parse(self, response, key):
        yield {"key": key}
        if key == 4:
            raise CloseSpider("enough")
"""


def test_a_page_that_closes_the_spider_is_done_and_closes_no_later_start_at_once(project, site):
    """Twelve start pages, closed at the fifth: each start is a new run, and page 4 never first.

    What `start()` yields is stored in one commit or several: so one more start or a few get all.
    """
    project.write(STARTS, ONE_AT_A_TIME)

    first = project.crawl()
    assert {f"/page/{n}" for n in range(5)} <= set(site.hits)
    assert len(site.hits) < 8  # what was under way ends
    every = {f"/page/{n}" for n in range(12)}
    assert set(left(project)) == every - set(site.hits)
    starts = [first, project.crawl()]
    while set(site.hits) != every and len(starts) < 6:
        starts.append(project.crawl())
    assert set(site.hits) == every
    site.hits.clear()
    starts.append(project.crawl())

    assert set(site.hits) >= {f"/page/{n}" for n in range(5)}
    assert {run.stats["reason"] for run in starts} == {"enough"}
    assert runs(project) == [(n, "enough", True) for n in range(1, len(starts) + 1)]
    assert set(project.request_outcomes()["/page/4"]) == {"ok"}
    assert "so run 1 is over: the next start begins a new run" in first.log


def test_a_project_may_have_the_next_start_go_on(project, site):
    """With ITEMGRAPH_CLOSE_ENDS_RUN = False the next start fetches the pages after that one."""
    project.write(STARTS, ONE_AT_A_TIME + "ITEMGRAPH_CLOSE_ENDS_RUN = False\n")

    first = project.crawl()
    second = project.crawl()

    assert site.hits == {f"/page/{n}": 1 for n in range(12)}
    assert (first.stats["reason"], second.stats["reason"]) == ("enough", "finished")
    assert runs(project) == [(1, "finished", False)]
    assert "the next start goes on with what run 1 has left" in first.log


# scrapy#3756

DAYS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/list/1"]

    def parse(self, response):
        for place, link in enumerate(response.css("a.post")):
            yield response.follow(link, self.post, priority=-place)
        for link in response.css("a.next"):
            yield response.follow(link, self.parse, priority=-1000)

    def post(self, response):
        with open("known.txt", "a+") as file:
            file.seek(0)
            if response.url in file.read().split():
                raise CloseSpider("known")
            file.write(response.url + "\\n")
        yield {"url": response.url}
"""


def test_a_daily_run_that_stops_at_a_known_post_gets_each_day_s_posts(project, site):
    """Newest first, stop at the first known post: nine new posts on each of four days."""
    project.write(DAYS, ONE_AT_A_TIME)
    assert project.crawl().stats["item_scraped_count"] == 30

    for site.day in (2, 3, 4):
        site.hits.clear()
        run = project.crawl()

        assert run.stats["reason"] == "known", run.log
        assert run.stats["item_scraped_count"] == DAILY
        assert next(iter(site.hits)) == "/list/1"
        assert "/list/4" not in site.hits
        assert left(project)
        assert runs(project)[-1] == (site.day, "known", True)
    status = json.loads(project.scrapy("itemgraph", "status", "--json").output)
    assert sum(task["left"] for task in status["tasks"]) == len(left(project))


def test_what_is_left_is_fetched_when_a_link_leads_to_it_or_a_person_frees_it(project, site):
    """Also in a run of incremental pages; and by `pages unleave`, which names each."""
    project.write(STARTS, ONE_AT_A_TIME)
    project.crawl()
    assert "/page/11" in left(project)

    freed = project.scrapy("itemgraph", "pages", "unleave", f"{site.url}/page/11")
    assert freed.code == 0, freed.log
    assert "/page/11" not in left(project)
    run = project.crawl("-s", "ITEMGRAPH_DEFAULT_TTL=never")
    assert left(project) == []
    if "left: " in run.log:  # page 4 came before what was stored a commit later
        run = project.crawl("-s", "ITEMGRAPH_DEFAULT_TTL=never")

    assert set(site.hits) == {f"/page/{n}" for n in range(12)}, run.log


# Who closes it

BY = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/status/404"]
    handle_httpstatus_list = []

    async def start(self):
        failing = HOW == "errback"
        url = "/status/404" if failing else "/page/1"
        yield scrapy.Request(SITE + url, errback=self.failed)
        for n in range(2, 9):
            yield scrapy.Request(f"{SITE}/page/{n}", priority=-n)

    async def parse(self, response):
        yield {"how": HOW}
        if HOW == "method":
            self.stop()
        if HOW == "deprecated":
            self.crawler.engine.close_spider(self, "enough")

    def stop(self):
        engine = self.crawler.engine
        self.closing = asyncio.ensure_future(engine.close_spider_async(reason="enough"))

    def failed(self, failure):
        raise CloseSpider("enough")
"""
PARTS = """
import asyncio

from scrapy import signals


def close(crawler):
    return asyncio.ensure_future(crawler.engine.close_spider_async(reason="enough"))


class Part:
    def __init__(self, crawler):
        self.crawler = crawler
        if crawler.settings["HOW"] == "extension":
            crawler.signals.connect(self.scraped, signal=signals.item_scraped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def scraped(self, item):
        self.closing = close(self.crawler)

    def process_item(self, item):
        if self.crawler.settings["HOW"] == "pipeline":
            self.closing = close(self.crawler)
        return item
"""


@pytest.mark.parametrize(
    ("how", "is_over"),
    [
        ("method", True),
        ("deprecated", True),
        ("errback", True),
        ("pipeline", True),
        ("extension", False),
    ],
)
def test_who_closes_the_spider_decides_and_not_the_reason(project, site, how, is_over):
    """The spider's own code and pipelines end the run; an extension, as a limit, leaves it open."""
    settings = f"""
    HOW = {how!r}
    CONCURRENT_REQUESTS = 1
    ITEM_PIPELINES = {{"proj.parts.Part": 300}}
    EXTENSIONS = {{"proj.stats.DumpStats": 0, "proj.parts.Part": 1}}
    """
    project.write(f"HOW = {how!r}\n{BY}", settings, parts=PARTS)

    run = project.crawl()

    assert run.stats["reason"] == "enough", run.log
    assert runs(project) == [(1, "enough", is_over)]
    assert bool(left(project)) is is_over
    if how == "errback":
        assert project.request_outcomes()["/status/404"] == ["failed"]


@pytest.mark.tracebacks("CloseSpider")
def test_a_pipeline_that_raises_close_spider_fails_its_page_and_closes_nothing(project, site):
    """As with Scrapy alone, where it is an error like any other: the crawl goes on."""
    parts = """
    from scrapy.exceptions import CloseSpider


    class Part:
        def process_item(self, item):
            if item["key"] == 1:
                raise CloseSpider("enough")
            return item
    """
    starts = STARTS.replace("if key == 4", "if key == 40")
    project.write(starts, 'ITEM_PIPELINES = {"proj.parts.Part": 300}\n', parts=parts)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert project.request_outcomes()["/page/1"] == ["failed"]
    assert len(site.hits) == 12


# Tasks, and several processes

TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for n in range(3):
            yield seed(f"PAGE:{n}", path=f"/page/{n}")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
        yield scrapy.Request(f"{SITE}/page/more", self.parse_more)
        raise CloseSpider("enough")

    def parse_more(self, response, item):
        pass
"""


def test_work_of_tasks_waits_for_the_next_start(project, site):
    """The page that closed the spider is done though its request was not asked; others wait."""
    project.write(TASKS, ONE_AT_A_TIME)

    for done in (1, 2, 3):
        project.crawl()
        assert sum("done" in data for data in project.data().values()) == done
        assert left(project) == []
        (work,) = project.rows("SELECT count(*) FROM work WHERE token IS NULL")
        assert work == (3 - done,)
    assert [reason for _, reason, _ in runs(project)] == ["enough"] * 3
    assert [ends[-1] for ends in project.outcomes().values()] == ["ok"] * 3


MANY = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        for n in range(400):
            yield scrapy.Request(f"{SITE}/slow/0.2/{n}")

    def parse(self, response):
        if self.kind == "closes" and os.path.exists("close"):
            raise CloseSpider("enough")
"""


def test_with_several_processes_the_run_ends_for_all(project, site, other):
    """One spider closes itself; the other process stops, and the next start is a new run."""
    settings = "CONCURRENT_REQUESTS = 2\n"
    project.write(MANY, settings)
    other.write(MANY, settings)
    second = other.start("crawl", "s", "-a", "kind=stays")
    until(lambda: len(site.hits) > 2, lambda: other.log(second))
    first = project.start("crawl", "s", "-a", "kind=closes")
    workers = "SELECT count(DISTINCT worker_id) FROM attempts"
    until(lambda: project.rows(workers) == [(2,)], lambda: project.log(first))

    (project.directory / "close").touch()
    ended = [project.finish(first), other.finish(second)]

    assert [run.stats["reason"] for run in ended] == ["enough"] * 2
    assert "The spider has closed this run (enough)" in ended[1].log
    assert runs(project) == [(1, "enough", True)]
    assert project.rows("SELECT count(*) FROM work") == [(0,)]
    assert project.rows("SELECT count(*) FROM sweeps") == [(0,)]
    assert len(left(project)) + len(project.request_outcomes()) >= 400
