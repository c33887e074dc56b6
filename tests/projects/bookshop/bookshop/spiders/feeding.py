"""Spiders that have more pages whenever they are idle: of a file, or of a message broker."""

# ruff: noqa: RUF012

from __future__ import annotations

import asyncio
import os
import time

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Request

from bookshop.notes import note, write

SITE = os.environ["SITE"]
LONG = 5.5  # seconds after the first idle moment
FILE = "/page/1 /page/2\n/page/3 /page/4 /page/5\n/page/6 /page/1\n"


class Feeding(scrapy.Spider):
    """What such spiders have in common: `more` is asked whenever the spider is idle."""

    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"bookshop.middlewares.Exceptions": 100}}

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.was_idle = False
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        if not self.was_idle:
            self.was_idle = True
            self.late = asyncio.Event()
            asyncio.get_running_loop().call_later(LONG, self.late.set)
        self.more()

    def crawl(self, path, callback, **kwargs):
        self.crawler.engine.crawl(Request(SITE + path, callback, cb_kwargs=kwargs))

    def closed(self, reason):
        write("spider", "closed", reason=reason)


class Batches(Feeding):
    """Batches of pages from a file, the next one when one is done; callbacks take their time."""

    name = "batches"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lines = iter(FILE.splitlines())

    async def start(self):
        yield Request(f"{SITE}/page/first", self.parse_slowly, cb_kwargs={"n": 0})

    def more(self):
        paths = next(self.lines, "").split()
        for n, path in enumerate(paths):
            self.crawl(path, self.parse_at_once if n else self.parse_slowly, n=n)
        if paths:
            raise DontCloseSpider

    async def parse_slowly(self, response, n):
        note("parse_slowly", response, n=n)
        if self.was_idle:
            await self.late.wait()
        for number in range(20):
            await asyncio.sleep(0.02)
            yield {"url": response.url, "number": number}
        yield response.follow("/page/first", self.parse_at_once, cb_kwargs={"n": -1})
        yield response.follow(f"/page/below/{n}", self.parse_at_once, cb_kwargs={"n": -1})

    def parse_at_once(self, response, n):
        note("parse_at_once", response, n=n)
        for number in range(20):
            time.sleep(0.02)
            yield {"url": response.url, "number": number}


class Broker(Feeding):
    """Messages that come now and then, in no step with idle moments; the last one ends it."""

    name = "broker"
    start_urls = [f"{SITE}/page/first"]
    messages = None

    def more(self):
        if self.messages is None:
            self.messages = asyncio.ensure_future(self.receive())
        if not self.messages.done():
            raise DontCloseSpider

    async def receive(self):
        for n in range(4):
            await asyncio.sleep(0.5)
            self.crawl(f"/page/{n}", self.parse_message, n=n)
        await self.late.wait()
        self.crawl("/page/last", self.parse_message, n="last")

    def parse(self, response):
        note("parse", response)

    async def parse_message(self, response, n):
        note("parse_message", response, n=n)
        yield {"message": n}
        await asyncio.sleep(0.1)
        yield {"message": n}


class SlowStart(Batches):
    """A start() that waits several times until nothing is left to do, and then idle moments."""

    name = "slow_start"

    async def start(self):
        async for one in super().start():
            yield one
        for n in range(3):
            await self.crawler.signals.wait_for(signals.scheduler_empty)
            await asyncio.sleep(0.2)
            yield Request(f"{SITE}/page/slow/{n}", self.parse_at_once, cb_kwargs={"n": n})


class IdleReason(Feeding):
    """A handler that has one more page, and then gives a reason of its own to close."""

    name = "idle_reason"
    start_urls = [f"{SITE}/page/first"]
    has_fed = False

    def more(self):
        if not self.has_fed:
            self.has_fed = True
            self.crawl("/page/more", self.parse)
            raise DontCloseSpider
        raise CloseSpider("all messages read")

    def parse(self, response):
        note("parse", response)
