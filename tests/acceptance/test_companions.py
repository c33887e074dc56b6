"""Other extensions for Scrapy beside ours: each does what it does by Scrapy's own scheduler."""

from __future__ import annotations

from collections import Counter

import pytest
import sites
from companions import Books, Companion


@pytest.fixture
def site():
    """Serve a shop of the test's own."""
    with sites.site(Books) as one:
        yield one


@pytest.fixture
def companion(tmp_path, database, site):
    """Return a maker of projects on the test's own database and site."""
    return lambda spider, settings="", **modules: Companion(
        tmp_path, database, site, spider, settings, **modules
    )


# scrapy-poet

POET = {"scrapy_poet.Addon": 300}
PAGES = """
import attrs
from web_poet import ItemPage, WebPage, field, handle_urls
from web_poet.exceptions import Retry


@attrs.define
class Book:
    title: str
    price: str


class ListPage(WebPage):
    @field
    def links(self):
        return [self.urljoin(href) for href in self.css("a::attr(href)").getall()]


@handle_urls("")
class BookPage(WebPage[Book]):
    @field
    def title(self):
        return self.css("h1::text").get()

    @field
    def price(self):
        return self.css("p::text").get()


class WholePage(BookPage):
    async def to_item(self):
        if self.css(".half"):
            raise Retry
        return await super().to_item()
"""
POET_SPIDER = """
from attrs import asdict
from scrapy_poet import DummyResponse, callback_for
from web_poet import HttpClient, PageParams

from proj.pages import Book, BookPage, ListPage, WholePage


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]
    parse_page = callback_for(BookPage)
    parse_item = callback_for(Book)
    parse_whole = callback_for(WholePage)

    async def start(self):
        yield scrapy.Request(SITE + "/", self.parse, dont_filter=True)

    def parse(self, response, page: ListPage):
        for rank, url in enumerate(page.links):
            shop = {"shop": f"shop {rank}"}
            yield scrapy.Request(
                url, self.parse_book, cb_kwargs={"rank": rank}, meta={"page_params": shop}
            )
        yield scrapy.Request(SITE + "/book/7", self.parse_page)
        yield scrapy.Request(SITE + "/book/8", self.parse_item)
        yield scrapy.Request(SITE + "/half/9", self.parse_whole)
        yield scrapy.Request(SITE + "/page/none", self.parse_nothing)

    async def parse_book(
        self, response: DummyResponse, rank, page: BookPage, http: HttpClient, params: PageParams
    ):
        extra = await http.get(f"{SITE}/page/extra/{rank}")
        item = asdict(await page.to_item())
        yield {**item, "rank": rank, "extra": len(extra.text), "shop": params["shop"]}

    def parse_nothing(self, response: DummyResponse):
        yield {"not": "downloaded"}
"""
POET_SETTINGS = 'SCRAPY_POET_DISCOVER = ["proj.pages"]'


def test_poet_injects_the_same(companion):
    """Page objects, clients and parameters reach callbacks, beside the cb_kwargs of a request."""
    pytest.importorskip("scrapy_poet")
    project = companion(POET_SPIDER, POET_SETTINGS, pages=PAGES)

    stock, ours = project.stock(addons=POET), project.ours(addons=POET)

    assert len(stock.items) == 8, stock.log
    assert (ours.items, ours.asked) == (stock.items, stock.asked), ours.log
    assert ours.common() == stock.common()
    assert ours.stats["itemgraph/held"] == 1, ours.log  # the retried page has its page object
    assert {k: v for k, v in stock.stats.items() if "poet" in k} == {
        k: v for k, v in ours.stats.items() if "poet" in k
    }


def test_poet_survives_a_kill(companion):
    """After kill -9 stored requests get their page objects anew."""
    pytest.importorskip("scrapy_poet")
    project = companion(POET_SPIDER, POET_SETTINGS, pages=PAGES)

    asked, rest = project.killed("/book/3", addons=POET, committed=3)

    assert asked["/"] == 1
    assert len(rest.items) == 6, rest.log
    assert rest.asked == {
        f"/{path}": 1
        for path in ("book/3", "book/4", "book/7", "book/8", "page/extra/2", "page/extra/3")
    } | {"/half/9": 2}


# spidermon

MONITORS = """
from spidermon import Monitor, MonitorSuite, monitors
from spidermon.contrib.scrapy.monitors import ErrorCountMonitor, FinishReasonMonitor
from spidermon.contrib.scrapy.monitors import ItemCountMonitor


@monitors.name("Downloads")
class DownloadMonitor(Monitor):
    @monitors.name("Few pages")
    def test_few_pages(self):
        self.assertLess(self.data.stats["downloader/response_count"], 3)


class Closing(MonitorSuite):
    monitors = [ItemCountMonitor, FinishReasonMonitor, ErrorCountMonitor, DownloadMonitor]
"""
SPIDERMON_SETTINGS = """
SPIDERMON_ENABLED = True
EXTENSIONS = {"proj.stats.DumpStats": 1000, "spidermon.contrib.scrapy.extensions.Spidermon": 500}
ITEM_PIPELINES = {"spidermon.contrib.scrapy.pipelines.ItemValidationPipeline": 800}
SPIDERMON_SPIDER_CLOSE_MONITORS = ["proj.monitors.Closing"]
SPIDERMON_MIN_ITEMS = 3
SPIDERMON_ADD_FIELD_COVERAGE = True
SPIDERMON_VALIDATION_SCHEMAS = {dict: {"type": "object", "required": ["title", "price"]}}
SPIDERMON_VALIDATION_DROP_ITEMS_WITH_ERRORS = True
"""
BOOKS_SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]

    def parse(self, response):
        yield from response.follow_all(css="a", callback=self.parse_book)

    def parse_book(self, response):
        item = {"title": response.css("h1::text").get(), "price": response.css("p::text").get()}
        if item["title"] == "Book 2":
            del item["price"]
        yield item
"""


def _verdicts(log):
    """Return what the monitors said, a line each."""
    lines = [line.partition("[Spidermon] ")[2] for line in log.splitlines()]
    return [line for line in lines if line and " in 0." not in line]


def test_spidermon_watches_the_same(companion):
    """Monitors over the stats pass and fail, and items are validated, as by stock Scrapy."""
    pytest.importorskip("spidermon")
    project = companion(BOOKS_SPIDER, SPIDERMON_SETTINGS, monitors=MONITORS)

    stock, ours = project.stock(), project.ours()

    assert len(stock.items) == 3, stock.log
    assert (ours.items, ours.asked) == (stock.items, stock.asked), ours.log
    assert ours.common() == stock.common()
    assert {k: v for k, v in stock.stats.items() if "spidermon" in k} == {
        k: v for k, v in ours.stats.items() if "spidermon" in k
    }
    assert _verdicts(ours.log) == _verdicts(stock.log)
    assert any("Few pages... FAIL" in line for line in _verdicts(stock.log)), stock.log


# scrapy-zyte-smartproxy

PROXY_SETTINGS = """
import os
DOWNLOADER_MIDDLEWARES = {"scrapy_zyte_smartproxy.ZyteSmartProxyMiddleware": 610}
ZYTE_SMARTPROXY_ENABLED = True
ZYTE_SMARTPROXY_APIKEY = "secret"
ZYTE_SMARTPROXY_URL = os.environ["SITE"]
ZYTE_SMARTPROXY_BACKOFF_STEP = 0.01
"""
PROXY_SPIDER = BOOKS_SPIDER.replace('SITE + "/"', '"http://books.example/"')


def test_smartproxy_is_asked_the_same(companion, site):
    """Its header is sent, and a ban is retried."""
    pytest.importorskip("scrapy_zyte_smartproxy")
    project = companion(PROXY_SPIDER, PROXY_SETTINGS)
    crawls = []

    for way in (project.stock, project.ours):
        site.asked.clear()
        site.banned["/book/2"] = 1
        crawls.append((way(), [dict(one) for one in site.asked]))
    (stock, asked), (ours, own_asked) = crawls

    assert len(stock.items) == 4, stock.log
    assert stock.asked["/book/2"] == 2
    assert stock.stats["zyte_smartproxy/response/banned"] == 1
    assert (ours.items, ours.asked) == (stock.items, stock.asked), ours.log
    assert ours.common() == stock.common()
    assert {k: v for k, v in stock.stats.items() if "smartproxy" in k} == {
        k: v for k, v in ours.stats.items() if "smartproxy" in k
    }
    assert all("proxy-authorization" in one for one in asked)
    assert sorted(map(str, own_asked)) == sorted(map(str, asked))


# HttpCache and AutoThrottle, Scrapy's own


@pytest.mark.parametrize("storage", ["Filesystem", "Dbm"])
def test_httpcache_serves_the_second_crawl(companion, storage):
    """What the first crawl fetched, another crawl of ours takes from the cache."""
    settings = f"""
    HTTPCACHE_ENABLED = True
    HTTPCACHE_STORAGE = "scrapy.extensions.httpcache.{storage}CacheStorage"
    """
    project = companion(BOOKS_SPIDER, settings)

    first = project.ours()
    second = project.ours("-s", "ITEMGRAPH_CRAWL=other")

    assert len(first.items) == 4, first.log
    assert second.items == first.items, second.log
    assert (sum(first.asked.values()), sum(second.asked.values())) == (5, 0)
    assert second.stats["httpcache/hit"] == 5


THROTTLE_SETTINGS = """
AUTOTHROTTLE_ENABLED = True
AUTOTHROTTLE_DEBUG = True
AUTOTHROTTLE_START_DELAY = 0.01
AUTOTHROTTLE_TARGET_CONCURRENCY = 2
CONCURRENT_REQUESTS = 4
"""


def _delays(log):
    return [
        float(line.partition("delay:")[2].partition("ms")[0])
        for line in log.splitlines()
        if "conc:" in line
    ]


def test_autothrottle_adapts_the_delay(companion):
    """Each response is taken into account, and a slow site makes the delay longer."""
    spider = BOOKS_SPIDER.replace('css="a"', 'urls=[f"/slow/0.2/{n}" for n in range(6)]')
    project = companion(spider, THROTTLE_SETTINGS)

    stock, ours = project.stock(), project.ours()

    assert len(_delays(stock.log)) == len(_delays(ours.log)) == 7, ours.log
    assert max(_delays(ours.log)) > 50, ours.log
