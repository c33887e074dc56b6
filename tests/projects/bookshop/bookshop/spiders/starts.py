"""How a crawl starts, and how it is told what to do."""

# ruff: noqa: RUF012

from __future__ import annotations

import os

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Request

from bookshop.items import Book
from bookshop.notes import note, write

SITE = os.environ["SITE"]


class StartUrls(scrapy.Spider):
    """The tree of pages from start_urls, one of them given twice, which pages link back to."""

    name = "start_urls"
    start_urls = [f"{SITE}/tree", f"{SITE}/tree", f"{SITE}/page/alone"]

    def parse(self, response):
        note("parse", response)
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


class Start(scrapy.Spider):
    """Requests and items from start(), filtered and unfiltered, some of them twice."""

    name = "start"

    async def start(self):
        yield {"from": "start"}
        for _ in range(2):
            yield Request(f"{SITE}/page/filtered", self.parse_more, cb_kwargs={"by": "start"})
            yield Request(f"{SITE}/page/unfiltered", dont_filter=True)
        yield Book(title="from start", url=SITE)
        for n in range(3):
            yield Request(f"{SITE}/page/{n}", self.parse_more, dont_filter=n == 1, priority=n)

    def parse(self, response):
        note("parse", response)
        yield Request(f"{SITE}/page/filtered", self.parse_more)
        yield Request(f"{SITE}/page/leaf", self.parse_more, dont_filter=True)

    def parse_more(self, response, by=None):
        note("parse_more", response, by=by)
        return {"by": by, "url": response.url}


class BrokenStart(scrapy.Spider):
    """A start() that fails after its first request."""

    name = "broken_start"

    async def start(self):
        yield Request(f"{SITE}/page/1")
        raise ValueError("no more")

    def parse(self, response):
        note("parse", response)
        yield response.follow("/page/2")


class ClosingStart(scrapy.Spider):
    """A start() that closes the spider after its requests."""

    name = "closing_start"

    async def start(self):
        for n in range(5):
            yield Request(f"{SITE}/page/{n}", cb_kwargs={"n": n})
        raise CloseSpider("enough")

    def parse(self, response, n):
        note("parse", response, n=n)
        yield {"n": n}


class Bare(scrapy.Spider):
    """A from_crawler() of its own, by which the spider has neither crawler nor settings."""

    name = "bare"
    start_urls = ["http://127.0.0.1:9/nobody", f"{SITE}/page/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        return cls()

    def parse(self, response):
        """Be never called: Scrapy reads the spider's settings before."""


class Arguments(scrapy.Spider):
    """Spider arguments, from_crawler and custom_settings."""

    name = "arguments"
    custom_settings = {"DEFAULT_REQUEST_HEADERS": {"Accept-Language": "de"}, "USER_AGENT": "own"}

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.agent = crawler.settings["USER_AGENT"]
        crawler.signals.connect(spider.spider_opened, signals.spider_opened)
        return spider

    def __init__(self, category, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [f"{SITE}/page/{category}"]

    def spider_opened(self):
        self.opened = True

    def parse(self, response):
        note("parse", response, agent=self.agent, pages=self.pages, opened=self.opened)
        self.crawler.stats.inc_value("item_scraped_count/own")
        if self.crawler.stats.get_value("item_scraped_count/own") <= int(self.pages):
            yield Request(response.url + "/more", self.parse)

    def closed(self, reason):
        write("spider", "closed", reason=reason)


class Idle(scrapy.Spider):
    """A handler of spider_idle that adds requests, twice, and keeps the spider open."""

    name = "idle"
    start_urls = [f"{SITE}/page/first"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.rounds = 0
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        if self.rounds < 2:
            self.rounds += 1
            url = f"{SITE}/page/late/{self.rounds}"
            for _ in range(2):
                self.crawler.engine.crawl(Request(url, self.parse_late, cb_kwargs={"n": 1}))
            raise DontCloseSpider

    def parse(self, response):
        note("parse", response)

    def parse_late(self, response, n):
        note("parse_late", response, n=n)
        yield {"late": n}
        yield response.follow("/page/first", self.parse)


class Lazy(scrapy.Spider):
    """A start() that waits until the scheduler is empty, as Scrapy's documentation has it."""

    name = "lazy"

    async def start(self):
        for n in range(3):
            await self.crawler.signals.wait_for(signals.scheduler_empty)
            yield Request(f"{SITE}/page/{n}", cb_kwargs={"n": n})

    def parse(self, response, n):
        note("parse", response, n=n)
        if n < 2:
            yield response.follow(f"/page/{n}/more", cb_kwargs={"n": 9})


class Signals(scrapy.Spider):
    """Handlers of signals that make requests, of what was scraped and of what failed."""

    name = "signals"
    start_urls = [f"{SITE}/page/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.item_scraped, signals.item_scraped)
        crawler.signals.connect(spider.spider_error, signals.spider_error)
        return spider

    def item_scraped(self, item, response):
        url = response.urljoin(item["next"])
        self.crawler.engine.crawl(Request(url, self.parse_next, cb_kwargs={"item": item}))

    async def spider_error(self, failure, response):
        self.crawler.engine.crawl(Request(response.url + "/again", self.parse_next))

    def parse(self, response):
        note("parse", response)
        yield {"next": "/page/2"}
        yield {"next": "/page/3"}
        raise ValueError("after the items")

    def parse_next(self, response, item=None):
        note("parse_next", response, item=item)


class Stopping(scrapy.Spider):
    """A callback that closes the spider by the engine, with a reason."""

    name = "stopping"
    start_urls = [f"{SITE}/page/1"]

    async def parse(self, response):
        note("parse", response)
        yield {"last": True}
        self.crawler.engine.close_spider(self, "found it")


class Closing(scrapy.Spider):
    """CloseSpider raised by a callback, after an item."""

    name = "closing"
    start_urls = [f"{SITE}/page/1"]

    def parse(self, response):
        note("parse", response)
        yield {"last": True}
        raise CloseSpider("enough")


class Counted(scrapy.Spider):
    """A crawl that an extension closes, by CLOSESPIDER_ITEMCOUNT."""

    name = "counted"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {"CLOSESPIDER_ITEMCOUNT": 2, "CLOSESPIDER_ERRORCOUNT": 3}

    def parse(self, response):
        note("parse", response)
        yield {"one": 1}
        yield {"two": 2}
