"""Callbacks and errbacks of every kind, and what they are given."""

# ruff: noqa: RUF012

from __future__ import annotations

import datetime as dt
import functools
import os
import threading
from dataclasses import dataclass

import scrapy
from scrapy.http import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.spidermiddlewares.httperror import HttpError

from bookshop.items import Author, Book, Publisher
from bookshop.notes import note

SITE = os.environ["SITE"]


@dataclass(frozen=True)
class Edition:
    year: int
    name: str = "first"


def parse_outside(response, spider_name):
    """Stand outside of any class."""
    note("parse_outside", response, spider_name=spider_name)
    yield {"outside": spider_name}


class Helper:
    """An object of a page-object kind, with a callback of its own."""

    def parse(self, response):
        note("Helper.parse", response)
        return {"helper": True}


class Kinds(scrapy.Spider):
    """Callbacks that are generators, coroutines, lists, nothing, lambdas, partials, and so on."""

    name = "kinds"
    start_urls = [f"{SITE}/page/start"]

    def parse(self, response):
        note("parse", response)
        kinds = ("generator", "async_generator", "coroutine", "list", "none", "item", "request")
        for kind in (*kinds, "static", "cls"):
            yield response.follow(f"/page/{kind}", getattr(self, f"parse_{kind}"))
        word = "closure"
        yield response.follow("/page/lambda", lambda response: self.parse_more(response, word))
        yield response.follow("/page/partial", functools.partial(self.parse_more, by="partial"))
        yield response.follow("/page/outside", functools.partial(parse_outside, spider_name="k"))
        yield response.follow("/page/helper", Helper().parse)
        yield response.follow("/page/nested", lambda response: self.nest(response, 3))
        yield response.follow("/page/lambda", lambda response: self.parse_more(response, "twice"))
        yield response.follow("/status/404", self.parse_more, errback=lambda f: [self.rescue(f)])

    def parse_generator(self, response):
        note("parse_generator", response)
        yield {"kind": "generator"}
        yield None
        yield response.follow("/page/generator/child", self.parse_more)

    async def parse_async_generator(self, response):
        note("parse_async_generator", response)
        yield {"kind": "async generator"}
        yield response.follow("/page/async_generator/child", self.parse_more)

    async def parse_coroutine(self, response):
        note("parse_coroutine", response)
        return [{"kind": "coroutine"}, response.follow("/page/coroutine/child", self.parse_more)]

    def parse_list(self, response):
        note("parse_list", response)
        return [{"kind": "list"}, response.follow("/page/list/child", self.parse_more)]

    def parse_none(self, response):
        note("parse_none", response)

    def parse_item(self, response):
        note("parse_item", response)
        return {"kind": "item"}

    def parse_request(self, response):
        note("parse_request", response)
        return response.follow("/page/request/child", self.parse_more)

    @staticmethod
    def parse_static(response):
        note("parse_static", response)
        yield {"kind": "static"}

    @classmethod
    def parse_cls(cls, response):
        note("parse_cls", response, name=cls.name)
        yield {"kind": "cls"}

    def parse_more(self, response, by="nobody"):
        note("parse_more", response, by=by)
        yield {"by": by}

    def nest(self, response, depth):
        note("nest", response, depth=depth)
        if depth:
            yield response.follow(
                f"/page/nested/{depth}", lambda response: self.nest(response, depth - 1)
            )

    def rescue(self, failure):
        note("rescue", failure)
        return Request(f"{SITE}/page/rescued", self.parse_more)


class Errbacks(scrapy.Spider):
    """Errors of downloads and of callbacks, with and without an errback."""

    name = "errbacks"
    custom_settings = {"RETRY_TIMES": 1}

    async def start(self):
        for path in ("/status/404", "/status/503", "/page/1"):
            url = SITE + path
            yield Request(url, self.parse_page, errback=self.failed, cb_kwargs={"n": 1})
            yield Request(url + "?quiet", self.parse_page)
        for query in ("", "?quiet"):
            errback = None if query else self.failed
            yield Request(f"http://127.0.0.1:1/{query}", self.parse_page, errback=errback)
            yield Request(f"{SITE}/page/raises{query}", self.parse_raises, errback=errback)
        yield Request(f"{SITE}/page/midway", self.parse_midway, errback=self.failed)
        yield Request(f"{SITE}/page/signature", self.parse_page, cb_kwargs={"unknown": 1})
        yield Request(f"{SITE}/status/410", self.parse_page, errback=self.fails)
        yield Request(f"{SITE}/status/500?a", self.parse_page, meta={"dont_retry": True})
        yield Request(f"{SITE}/status/404?b", self.parse_page, errback=self.failed_later)
        meta = {"handle_httpstatus_list": [404]}
        yield Request(f"{SITE}/status/404?handled", self.parse_page, meta=meta)
        meta = {"handle_httpstatus_all": True}
        yield Request(f"{SITE}/status/418?handled", self.parse_page, meta=meta)

    def parse_page(self, response, n=0):
        note("parse_page", response, n=n)
        yield {"status": response.status}

    def parse_raises(self, response):
        note("parse_raises", response)
        raise KeyError("at once")

    def parse_midway(self, response):
        note("parse_midway", response)
        yield {"before": "the error"}
        yield response.follow("/page/before", self.parse_page)
        raise ValueError("midway")

    def failed(self, failure):
        note("failed", failure, is_http=bool(failure.check(HttpError)))
        yield {"failed": failure.type.__name__}
        again = f"{SITE}/page/after?{failure.type.__name__}"
        yield Request(again, self.parse_page, cb_kwargs=failure.request.cb_kwargs)

    async def failed_later(self, failure):
        note("failed_later", failure)
        yield Request(f"{SITE}/page/later", self.parse_page)

    def fails(self, failure):
        note("fails", failure)
        raise LookupError("in the errback")


class Values(scrapy.Spider):
    """What is passed on by cb_kwargs and meta."""

    name = "values"
    start_urls = [f"{SITE}/page/start"]

    def parse(self, response):
        note("parse", response)
        values = {
            "bytes": b"\x00\xff",
            "date": dt.date(2024, 2, 29),
            "datetime": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
            "set": {1, 2},
            "tuple": (1, ("a", None)),
            "float": 0.1,
            "large": 10**30,
            "text": "Bücher \U0001f4da",
            "keys": {1: "one", (1, 2): "pair", None: "none"},
            "nested": [{"a": [1, {"b": {3}}]}],
        }
        yield response.follow("/page/values", self.parse_values, meta={"values": values})
        yield response.follow("/page/kwargs", self.parse_values, cb_kwargs=values)
        things = {
            "edition": Edition(1920),
            "book": Book(title="a", url="b"),
            "author": Author("Ann", [1]),
            "publisher": Publisher("Pub"),
        }
        yield response.follow("/page/things", self.parse_values, cb_kwargs=things)
        yield response.follow("/page/meta_things", self.parse_values, meta=things)
        alive = {"lock": threading.Lock(), "page": response, "asked": response.request}
        yield response.follow("/page/alive", self.parse_values, cb_kwargs=alive)
        yield response.follow("/page/meta_alive", self.parse_values, meta=alive)
        own = {"item": Author("Ann"), "self_url": response.url}
        yield response.follow("/page/item", self.parse_item, cb_kwargs=own)
        yield response.follow("/page/passed", self.parse_passed, meta={"n": 1, "who": ["me"]})

    def parse_values(self, response, **values):
        note("parse_values", response, **values)

    def parse_item(self, response, item, self_url):
        note("parse_item", response, item=item, self_url=self_url)
        item.books.append(response.url)
        args = {"item": item, "self_url": self_url}
        if len(item.books) < 3:
            yield response.follow(f"/page/item/{len(item.books)}", self.parse_item, cb_kwargs=args)
        else:
            yield item

    def parse_passed(self, response, copied=False):
        note("parse_passed", response, copied=copied)
        n = response.meta["n"]
        if n < 3:
            meta = {**response.meta, "n": n + 1}
            yield Request(f"{SITE}/page/passed/{n}", self.parse_passed, meta=meta)
            url = f"{SITE}/page/replaced/{n}"
            yield response.request.replace(url=url, meta=meta, callback=self.parse_leaf)
            yield Request(f"{SITE}/page/same/{n}", self.parse_leaf, meta=response.meta)
            yield response.request.replace(dont_filter=True, callback=self.parse_leaf)
            response.meta["n"] = 99
            request = response.request.copy()
            yield request.replace(url=f"{SITE}/page/copied/{n}", cb_kwargs={"copied": True})

    def parse_leaf(self, response):
        note("parse_leaf", response)


class Shared(scrapy.Spider):
    """A mutable object in the meta of several requests, changed after they were yielded."""

    name = "shared"
    start_urls = [f"{SITE}/page/start"]

    def parse(self, response):
        basket = ["start"]
        yield response.follow("/page/1", self.parse_more, meta={"basket": basket})
        yield response.follow("/page/2", self.parse_more, cb_kwargs={"basket": basket})
        basket.append("late")

    def parse_more(self, response, basket=None):
        note("parse_more", response, basket=basket)


class SharedBetween(scrapy.Spider):
    """A mutable object in the meta of two requests, changed by the callback of the first."""

    name = "shared_between"
    start_urls = [f"{SITE}/page/start"]
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response):
        basket = []
        yield response.follow("/page/1", self.parse_first, meta={"basket": basket}, priority=9)
        yield response.follow("/page/2", self.parse_second, meta={"basket": basket})

    def parse_first(self, response):
        note("parse_first", response)
        response.meta["basket"].append("of the first")
        yield response.follow("/page/3", self.parse_second, meta=response.meta)

    def parse_second(self, response):
        note("parse_second", response)


class Inline(scrapy.Spider):
    """Requests made and awaited inside a callback."""

    name = "inline"
    start_urls = [f"{SITE}/page/start"]

    async def parse(self, response):
        note("parse", response)
        for path in ("/page/inline", "/page/inline", "/status/404", "/redirect?to=/page/2"):
            request = Request(SITE + path, meta={"mine": path}, callback=NO_CALLBACK)
            inner = await self.crawler.engine.download_async(request)
            note("inline", inner)
            yield {"inline": inner.status}
        yield response.follow("/page/inline", self.parse_more)

    async def parse_more(self, response):
        note("parse_more", response)
        try:
            await self.crawler.engine.download_async(Request("http://127.0.0.1:1/"))
        except Exception as error:
            return {"error": type(error).__name__}
