"""Other extensions for Scrapy beside ours: each does what it does by Scrapy's own scheduler.

`make test-companions` installs them; what is not installed is skipped.
"""

from __future__ import annotations

import shutil

import pytest
from support import sites
from support.companions import OURS, Books, Companion
from support.projects import IS_REACTORLESS


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


def needs(package):
    """Skip the test where a companion is not installed."""
    pytest.importorskip(package, reason=f"{package} is not installed; make test-companions does it")


def stats_of(crawl, *words):
    """Return the stats of a companion."""
    return {name: n for name, n in crawl.stats.items() if any(word in name for word in words)}


def assert_same(stock, ours):
    """Items, pages and Scrapy's own stats are those of stock Scrapy."""
    assert (ours.items, ours.asked) == (stock.items, stock.asked), ours.log
    assert ours.common() == stock.common()


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
    needs("scrapy_poet")
    project = companion(POET_SPIDER, POET_SETTINGS, pages=PAGES)

    stock, ours = project.stock(addons=POET), project.ours(addons=POET)

    assert len(stock.items) == 8, stock.log
    assert_same(stock, ours)
    assert ours.stats["itemgraph/held"] == 1, ours.log  # the retried page has its page object
    assert stats_of(ours, "poet") == stats_of(stock, "poet")


def test_poet_survives_a_kill(companion):
    """After kill -9 stored requests get their page objects anew."""
    needs("scrapy_poet")
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
SPIDERMON_MAX_ERRORS = 0
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


def verdicts(log):
    """Return what the monitors said, a line each."""
    lines = [line.partition("[Spidermon] ")[2] for line in log.splitlines()]
    return [line for line in lines if line and " in 0." not in line]


def test_spidermon_watches_the_same(companion):
    """Monitors over the stats pass and fail, and items are validated, as by stock Scrapy."""
    needs("spidermon")
    project = companion(BOOKS_SPIDER, SPIDERMON_SETTINGS, monitors=MONITORS)

    stock, ours = project.stock(), project.ours()

    assert len(stock.items) == 3, stock.log
    assert_same(stock, ours)
    assert stats_of(ours, "spidermon") == stats_of(stock, "spidermon")
    assert verdicts(ours.log) == verdicts(stock.log)
    assert any("Few pages... FAIL" in line for line in verdicts(stock.log)), stock.log


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
    needs("scrapy_zyte_smartproxy")
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
    assert_same(stock, ours)
    assert stats_of(ours, "smartproxy") == stats_of(stock, "smartproxy")
    assert all("proxy-authorization" in one for one in asked)
    assert sorted(map(str, own_asked)) == sorted(map(str, asked))


def test_smartproxy_survives_a_kill(companion, site):
    """After kill -9 stored requests go by the proxy again; they are stored without its key."""
    needs("scrapy_zyte_smartproxy")
    project = companion(PROXY_SPIDER, PROXY_SETTINGS)

    _, rest = project.killed("/book/3", committed=3)
    stored = project.project("killed", OURS).rows("SELECT data::text FROM items")

    assert len(rest.items) == 2, rest.log
    assert rest.asked == {"/book/3": 1, "/book/4": 1}
    assert len(stored) == 5
    assert not any("proxy" in row[0].lower() for row in stored)
    assert all("proxy-authorization" in one for one in site.asked)


# scrapy-redis


def test_another_scheduler_is_refused(companion):
    """SCHEDULER of scrapy-redis stops the start with a line that says what to remove."""
    needs("scrapy_redis")
    project = companion(BOOKS_SPIDER, 'SCHEDULER = "scrapy_redis.scheduler.Scheduler"')

    run = project.project("refused", OURS).crawl()

    assert run.code == 1
    assert "SCHEDULER is 'scrapy_redis.scheduler.Scheduler'" in run.log


# scrapy-playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER_SETTINGS = f"""
DOWNLOAD_HANDLERS = {{"http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}}
PLAYWRIGHT_LAUNCH_OPTIONS = {{"executable_path": {CHROMIUM!r}, "args": ["--no-sandbox"]}}
"""
BROWSER_SPIDER = """
from scrapy_playwright.page import PageMethod


class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/script/1", meta={"playwright": True})

    def parse(self, response):
        def request(path, callback, **meta):
            meta = {"playwright": True, **meta}
            return scrapy.Request(SITE + path, callback, errback=self.failed, meta=meta)

        yield {"title": response.css("h1::text").get()}
        yield request("/script/2", self.clicks, playwright_include_page=True)
        yield request("/script/3", self.reads, playwright_context="other")
        yield request("/status/404", self.clicks, playwright_include_page=True)
        click = [PageMethod("click", "button")]
        yield request("/script/4", self.reads, playwright_page_methods=click)

    def reads(self, response):
        yield {"title": response.css("h1::text").get()}

    async def clicks(self, response):
        page = response.meta["playwright_page"]
        await page.click("button")
        title = await page.inner_text("h1")
        await page.close()
        yield {"title": title}

    async def failed(self, failure):
        await failure.request.meta["playwright_page"].close()
        yield {"title": "failed"}
"""


def needs_a_browser():
    """Skip the test where scrapy-playwright has no browser to drive."""
    needs("scrapy_playwright")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    if IS_REACTORLESS:
        pytest.skip("Scrapy's reactorless mode is not tried with scrapy-playwright")


def test_playwright_renders_the_same(companion):
    """Pages, page methods and contexts are as by stock Scrapy; a page method is carried."""
    needs_a_browser()
    project = companion(BROWSER_SPIDER, BROWSER_SETTINGS)

    stock, ours = project.stock(), project.ours()

    titles = ["Book 1", "Book 2, clicked", "Book 3", "Book 4, clicked", "failed"]
    assert stock.items == [f'{{"title": "{title}"}}' for title in titles], stock.log
    assert_same(stock, ours)
    for name in ("page_count", "context_count", "request_count"):
        assert ours.stats[f"playwright/{name}"] == stock.stats[f"playwright/{name}"]
    assert ours.stats["itemgraph/held"] == 1


def test_playwright_survives_a_kill(companion):
    """After kill -9 stored requests are rendered by a new browser."""
    needs_a_browser()
    project = companion(BROWSER_SPIDER, BROWSER_SETTINGS)

    asked, rest = project.killed("/script/3", committed=2)

    assert asked["/script/1"] == 1
    assert rest.asked == {"/script/3": 1, "/status/404": 1}
    assert len(rest.items) == 2, rest.log


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


def delays(log):
    """Return the delays that AutoThrottle chose, in milliseconds."""
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

    assert len(delays(stock.log)) == len(delays(ours.log)) == 7, ours.log
    assert max(delays(ours.log)) > 50, ours.log
