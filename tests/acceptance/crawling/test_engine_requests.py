"""Requests as middlewares, signals and callbacks see them, and responses that name another one."""

from __future__ import annotations

import json

import pytest


def scraped(project):
    """Return the items of a crawl's feed."""
    lines = (project.directory / "items.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


FRESH = """
from scrapy.http import HtmlResponse


class Unblocker:
    def process_request(self, request):
        if "rendered" in request.url:
            return HtmlResponse(request.url, body=b"<p>rendered</p>", request=HOW)

    def process_response(self, request, response):
        return response.replace(request=HOW)


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {Unblocker: 543},
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    }

    def parse(self, response):
        yield {"url": response.url}
        if response.url.endswith("/page/0"):
            for n in range(1, 40):
                yield scrapy.Request(SITE + f"/page/{n}")
                yield scrapy.Request(SITE + f"/rendered/{n}")
            yield scrapy.Request(SITE + "/status/404", errback=self.missed)

    def missed(self, failure):
        yield {"missed": failure.value.response.status}
"""


@pytest.mark.edge
@pytest.mark.parametrize(
    "how", ["scrapy.Request(request.url)", "request.replace(meta={})", "request.copy()"]
)
def test_a_response_that_names_another_request_is_its_page_s(project, how):
    """Of middlewares that render, unblock or replay no page is forgotten, and none failed."""
    project.write(FRESH.replace("HOW", how))

    run = project.crawl("-O", "items.jsonl")

    items = scraped(project)
    assert run.stats["reason"] == "finished", run.log
    assert sum("missed" in item for item in items) == 1
    assert len({item.get("url") for item in items}) == len(items) == 80
    assert project.rows("SELECT count(*) FROM failures") == [(1,)]  # the page that is missing
    assert "itemgraph/legs_forgotten" not in run.stats
    assert project.claimed() == 0


ONLOOKERS = """
import json
import pickle

from scrapy import signals


class Onlooker:
    def __init__(self, crawler):
        self.crawler = crawler
        for name in ("request_scheduled", "request_reached_downloader", "response_received",
                     "request_left_downloader"):
            crawler.signals.connect(getattr(self, name), signal=getattr(signals, name))

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def look(self, where, request):
        self.crawler.stats.inc_value(f"seen/{where}")
        ours = {name for name in request.meta if "itemgraph" in name}
        if ours - {"_itemgraph_no_download"} or "nothing" not in request.url and ours:
            self.complain(where, request, ours)
        if (request.errback is not None) != ("errback" in request.url):
            self.complain(where, request, request.errback)
        try:
            json.dumps(request.meta)
            pickle.dumps(request.meta)
            request.to_dict(spider=self.crawler.spider)
        except Exception as error:
            self.complain(where, request, error)

    def complain(self, *what):
        self.crawler.stats.inc_value(f"complaint/{what}")

    def request_scheduled(self, request, spider):
        self.look("scheduled", request)

    def request_reached_downloader(self, request, spider):
        self.look("reached", request)

    def request_left_downloader(self, request, spider):
        self.look("left", request)

    def response_received(self, response, request, spider):
        self.look("received", request)

    def process_request(self, request):
        self.look("process_request", request)

    def process_response(self, request, response):
        self.look("process_response", request)
        return response

    def process_exception(self, request, exception):
        self.look("process_exception", request)

    def process_spider_input(self, response):
        self.look("spider_input", response.request)

    def process_spider_exception(self, response, exception):
        self.look("spider_exception", response.request)


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {Onlooker: ORDER},
        "SPIDER_MIDDLEWARES": {Onlooker: ORDER},
    }

    def seeds(self):
        yield seed("one", "/page/one?errback=0")
        yield CreateItem("nothing", tags=["nothing"])

    @task(tags=["page"], request="page_request")
    def page(self, response, item):
        yield scrapy.Request(SITE + "/page/two", self.more)

    def page_request(self, item):
        return scrapy.Request(item.data["url"], errback=self.missed)

    def more(self, response, item):
        yield item.data

    @task(tags=["nothing"], download=False)
    def nothing(self, response, item):
        yield {"response": response}

    def parse(self, response):
        yield scrapy.Request(SITE + "/redirect?errback=1&to=/page/3?errback=2", self.parse_page,
                             errback=self.missed)
        yield scrapy.Request(SITE + "/status/404?errback=3", self.parse_page, errback=self.missed)
        yield scrapy.Request(SITE + "/status/503", self.parse_page)
        yield scrapy.Request(SITE + "/page/4", self.parse_page, cb_kwargs={"broken": True})
        yield scrapy.Request("http://127.0.0.1:1/?errback=4", self.parse_page, errback=self.missed)

    def parse_page(self, response, broken=False):
        yield {"url": response.url, "part": 1 / (not broken)}

    def missed(self, failure):
        yield {"missed": failure.request.url, "by": failure.request.errback.__name__}
"""


@pytest.mark.edge
@pytest.mark.tracebacks("ZeroDivisionError")
@pytest.mark.parametrize("order", [-10, 543, 2000])
def test_nothing_of_ours_shows_on_a_request(project, order):
    """Of plain callbacks and tasks: its meta can be stored, and its errback is its own or none."""
    project.write(ONLOOKERS.replace("ORDER", str(order)))

    run = project.crawl("-O", "items.jsonl")

    assert run.stats["reason"] == "finished", run.log
    assert [name for name in run.stats if name.startswith("complaint/")] == []
    assert {item["by"] for item in scraped(project) if "missed" in item} == {"missed"}
    seen = {name.removeprefix("seen/") for name in run.stats if name.startswith("seen/")}
    assert len(seen) == 9, seen


CHANGING = """
class S(scrapy.Spider):
    name = "s"
    custom_settings = {"RETRY_ENABLED": False}

    async def start(self):
        yield scrapy.Request("http://127.0.0.1:1/", self.parse, errback=self.first)

    def parse(self, response):
        pass

    def first(self, failure):
        request = failure.request
        request.errback = self.second
        request.dont_filter = True
        return [request]

    def second(self, failure):
        self.crawler.stats.inc_value("second")
"""


@pytest.mark.crawls(CHANGING)
def test_an_errback_may_change_the_request_s_errback(run):
    """What it yields has the one that it set."""
    assert run.stats["second"] == 1, run.log
    assert run.stats["downloader/request_count"] == 2


SHARED = """
class S(scrapy.Spider):
    name = "s"
    shared = scrapy.Request(SITE + "/page/shared", dont_filter=True)

    def seeds(self):
        for name in "ABC":
            yield seed(name)

    @task(tags=["page"], request="the_request")
    def page(self, response, item):
        yield UpdateData({"done": True})

    def the_request(self, item):
        return self.shared
"""


@pytest.mark.crawls(SHARED)
def test_one_request_object_may_serve_several_items(run, project):
    """Each item gets a request of its own, though request= returns the same one."""
    assert run.stats["reason"] == "finished", run.log
    assert [data["done"] for data in project.data().values()] == [True] * 3
    assert "itemgraph/legs_forgotten" not in run.stats
