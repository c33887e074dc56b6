"""What stands beside tasks in one spider: plain callbacks, start(), spider_idle handlers."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.edge, pytest.mark.tracebacks("ValueError: midway")]


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1", SITE + "/page/1"]

    def parse(self, response):
        yield {"url": response.url}
        for n in range(2, 6):
            yield response.follow(f"/page/{n}", self.parse_more)
            yield response.follow(f"/page/{n}", self.parse_more)

    def parse_more(self, response, depth=0):
        yield {"url": response.url}
        yield response.follow("/page/2", self.parse_more)
        yield response.follow("/redirect?to=/page/3", self.parse_more)
        yield response.follow("/status/404", self.parse_more)
        yield response.follow("/status/503", self.parse_more)
        raise ValueError("midway")
""")
def test_a_spider_without_tasks_crawls_as_ever(run, site):
    """Items, follow-ups, duplicates, dont_filter and errors behave as with Scrapy's scheduler."""
    assert run.code == 0, run.log
    assert run.stats["reason"] == "finished"
    assert run.stats["item_scraped_count"] == 6
    assert site.hits["/page/1"] == 2
    assert site.hits["/page/2"] == site.hits["/page/5"] == site.hits["/status/404"] == 1
    assert site.hits["/status/503"] == 2
    assert run.stats["spider_exceptions/ValueError"] == 4
    assert "itemgraph/legs_forgotten" not in run.stats


@pytest.mark.tracebacks("ValueError: midway")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield seed("FROM-START")
        yield {"from": "start"}
        yield scrapy.Request(SITE + "/page/start", self.plain)

    def plain(self, response):
        yield seed("PLAIN")
        yield UpdateData({"seen": True})
        raise ValueError("midway")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
""")
def test_plain_callbacks_make_work(run, project):
    """Operations of a plain callback are committed, also those before an error."""
    assert run.code == 0, run.log
    assert project.outcomes() == {"FROM-START": ["ok"], "PLAIN": ["ok"]}
    assert project.request_outcomes() == {"/page/start": ["failed"]}
    (page,) = [one for one in project.data().values() if one["url"].endswith("/page/start")]
    assert page["seen"] is True
    assert run.stats["item_scraped_count"] == 1


@pytest.mark.tracebacks("outside a task's execution id= is needed")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield seed("PAGE")
        yield UpdateData({"x": 1})

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
""")
def test_start_has_to_name_the_item_of_an_operation(run, project):
    """An operation of start() without an id is an error that says so, and loses nothing else."""
    assert "UpdateData: outside a task's execution id= is needed" in run.log
    assert project.outcomes() == {"PAGE": ["ok"]}


@pytest.mark.tracebacks("ValueError: of no concern to the task")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
        yield scrapy.Request(SITE + "/page/plain", self.plain)

    def plain(self, response):
        yield scrapy.Request(SITE + "/status/404", self.plain)
        yield scrapy.Request(SITE + "/page/further", self.further)

    def further(self, response):
        raise ValueError("of no concern to the task")
""")
def test_a_request_of_a_plain_callback_is_work_of_its_own(run, project, site):
    """A CrawlSpider whose callback is a task does not swallow the site into one transaction."""
    assert project.outcomes() == {"PAGE": ["ok"]}, run.log
    assert project.request_outcomes() == {"/status/404": ["failed"], "/page/further": ["failed"]}
    assert site.hits["/page/further"] == 1


@pytest.mark.tracebacks("a Request to the task 'parse'")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page"]

    def seeds(self):
        yield seed("PAGE", "/page/seeded")

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"done": True})
""")
def test_a_request_to_a_task_is_refused_with_the_way_out(run, project, site):
    """A start request whose callback is a task is an error that names CreateItem."""
    assert "yield CreateItem(id=" in run.log
    assert project.outcomes() == {"PAGE": ["ok"]}
    assert site.hits["/page"] == 0
    assert run.stats["elapsed_time_seconds"] < 15


@pytest.mark.crawls("""
    class S(scrapy.Spider):
        name = "s"

        @classmethod
        def from_crawler(cls, crawler, *args, **kwargs):
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.idle, signal=scrapy.signals.spider_idle)
            return spider

        def idle(self):
            if not hasattr(self, "was_idle"):
                self.was_idle = True
                self.crawler.engine.crawl(scrapy.Request(SITE + "/page/late", self.late))

        def late(self, response):
            yield seed("LATE")

        @task(tags=["page"])
        def parse_page(self, response, item):
            yield UpdateData({"done": True})
    """)
def test_work_that_a_spider_idle_handler_adds_is_done(run, project):
    """What a handler of spider_idle yields after the end runs, and so does the work it makes."""
    assert run.code == 0
    assert project.outcomes() == {"LATE": ["ok"]}, run.log
    assert project.request_outcomes() == {"/page/late": ["ok"]}
