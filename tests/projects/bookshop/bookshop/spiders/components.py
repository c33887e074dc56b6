"""Other people's middlewares, pipelines and items."""

# ruff: noqa: RUF012

from __future__ import annotations

import os

import scrapy
from scrapy.http import Request

from bookshop.items import Author, Book, Pamphlet, Publisher
from bookshop.notes import note

SITE = os.environ["SITE"]


class DownloaderMiddlewares(scrapy.Spider):
    """Middlewares that replace requests, answer themselves, refuse, repeat and rescue."""

    name = "downloader_middlewares"
    start_urls = [f"{SITE}/page/1", f"{SITE}/shelf/start"]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {
            "bookshop.middlewares.Mirror": 100,
            "bookshop.middlewares.Shelf": 350,
            "bookshop.middlewares.Reader": 800,
        },
        "RETRY_TIMES": 1,
    }

    def parse(self, response):
        note("parse", response)
        if "/shelf/" in response.url:
            return
        for path in ("/old/1", "/shelf/1", "/secret/1", "/again/1", "/stale/1", "/bad/1"):
            yield response.follow(path, self.parse_more, cb_kwargs={"path": path})
            again = f"{path}?errback"
            yield response.follow(
                again, self.parse_more, errback=self.failed, cb_kwargs={"path": again}
            )
        rescue = {"rescue": f"{SITE}/page/rescued"}
        yield Request("http://127.0.0.1:1/", self.parse_more, meta=rescue, cb_kwargs={"path": ""})

    def parse_more(self, response, path):
        note("parse_more", response, path=path)
        yield {"path": path}

    def failed(self, failure):
        note("failed", failure)


class SpiderMiddlewares(scrapy.Spider):
    """A middleware that adds to, takes from and recovers what callbacks yield."""

    name = "spider_middlewares"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {
        "SPIDER_MIDDLEWARES": {
            "bookshop.middlewares.Catalogue": 543,
            "bookshop.middlewares.Labels": 50,
        }
    }

    def parse(self, response, added=False):
        note("parse", response, added=added)
        if added:
            return
        yield response.follow("/boring/1", self.parse_more)
        meta = {"add": f"{SITE}/page/added"}
        yield response.follow("/page/2", self.parse_more, meta=meta)
        yield response.follow("/page/lookup", self.parse_lookup)
        yield response.follow("/page/value", self.parse_value)
        yield response.follow("/unreadable/1", self.parse_more)
        yield response.follow("/unreadable/2", self.parse_more, errback=self.failed)

    def parse_more(self, response):
        note("parse_more", response)
        yield {"more": response.url}

    def parse_lookup(self, response):
        yield {"before": "the error"}
        raise LookupError

    def parse_value(self, response):
        yield {"before": "the error"}
        raise ValueError

    def failed(self, failure):
        note("failed", failure)
        yield {"failed": True}


class Pipelines(scrapy.Spider):
    """Pipelines that change items, drop them, fail, and return others; and a feed."""

    name = "pipelines"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {
        "ITEM_PIPELINES": {
            "bookshop.pipelines.Prices": 100,
            "bookshop.pipelines.Dropper": 200,
            "bookshop.pipelines.Covers": 250,
            "bookshop.pipelines.Binder": 300,
            "bookshop.pipelines.Inventory": 400,
        },
        "FEEDS": {"feed.jsonl": {"format": "jsonlines"}},
    }

    def parse(self, response):
        note("parse", response)
        for n in range(5):
            yield {"title": f"book {n}"}
        yield response.follow("/page/2", self.parse_more)

    def parse_more(self, response):
        note("parse_more", response)
        yield {"title": "another 3"}
        yield response.follow("/page/3", self.parse_last)

    def parse_last(self, response):
        note("parse_last", response)
        yield {"title": "last"}


class Items(scrapy.Spider):
    """Items as dicts, scrapy.Item, dataclasses and attrs classes, and what is none."""

    name = "items"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {
        "ITEM_PIPELINES": {"bookshop.pipelines.Inventory": 1},
        "FEEDS": {"feed.csv": {"format": "csv", "fields": ["title", "name"]}},
    }

    def parse(self, response):
        note("parse", response)
        yield Book(title="Bücher", url=response.url)
        yield Author("Ann", [Book(title="inner")])
        yield Publisher("Pub")
        yield {"title": b"bytes", "nested": {"a": (1, {2})}}


class OddItems(scrapy.Spider):
    """Items of a class that only the project's own pipelines know."""

    name = "odd_items"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {"ITEM_PIPELINES": {"bookshop.pipelines.Inventory": 1}}

    def parse(self, response):
        note("parse", response)
        yield Pamphlet()
        yield response.follow("/page/2", self.parse_more)

    def parse_more(self, response):
        note("parse_more", response)
        return Pamphlet()


class Files(scrapy.Spider):
    """A FilesPipeline that stores what items point to."""

    name = "files"
    start_urls = [f"{SITE}/page/1", f"{SITE}/page/2"]
    custom_settings = {
        "ITEM_PIPELINES": {
            "bookshop.pipelines.Downloads": 1,
            "bookshop.pipelines.Inventory": 2,
        },
        "FILES_STORE": "store",
        "CONCURRENT_REQUESTS": 1,
    }

    def parse(self, response):
        note("parse", response)
        yield {"file_urls": [f"{SITE}/file/a", f"{SITE}/file/b{response.url[-1]}"]}
        yield {"file_urls": [f"{SITE}/status/404?{response.url[-1]}"]}
