"""Requests of every kind: methods, bodies, forms, cookies, encodings, fingerprints."""

# ruff: noqa: RUF012

from __future__ import annotations

import os

import scrapy
from scrapy.http import FormRequest, JsonRequest, Request

from bookshop.notes import note, show
from bookshop.requests import ShopRequest

SITE = os.environ["SITE"]


class Methods(scrapy.Spider):
    """Methods, bodies, headers, flags, priorities and duplicates that differ in one of them."""

    name = "methods"

    async def start(self):
        echo = f"{SITE}/echo"
        for method in ("GET", "POST", "PUT", "HEAD"):
            yield Request(echo, method=method, body=b"\x00\xffbody")
            yield Request(echo, method=method, body="other")
        yield Request(echo, method="POST", body="other", flags=["a", "b"], priority=7)
        headers = {"X-One": "1", "X-Two": ["2", "zwei"], "Content-Type": "text/plain"}
        yield Request(f"{echo}/headers", headers=headers, flags=["flagged"], priority=-2)
        yield Request(f"{echo}/headers", headers={"X-Other": "1"})
        yield Request(f"{echo}/again", dont_filter=True, encoding="latin-1", body="Bücher")
        yield Request(f"{echo}/again", dont_filter=True)
        yield Request(f"{echo}/query?b=2&a=1#part")
        yield Request(f"{echo}/query?a=1&b=2")
        yield JsonRequest(f"{echo}/json", data={"a": [1, None, "ü"]})
        yield JsonRequest(f"{echo}/json", data={"a": [1, None, "ü"]}, meta={"twice": True})
        yield FormRequest(f"{echo}/form", formdata={"q": "Bücher & mehr", "n": ["1", "2"]})
        yield FormRequest(f"{echo}/form", method="GET", formdata={"q": "1"})

    def parse(self, response):
        note("parse", response)
        if "from" not in response.meta:
            request = response.request
            body = b"after " + request.method.encode() + b" " + request.body
            yield request.replace(body=body, method="POST", meta={"from": request.method})


class OwnRequests(scrapy.Spider):
    """Requests of a class of the project's own."""

    name = "own_requests"

    async def start(self):
        yield ShopRequest(f"{SITE}/page/1", shop="first")

    def parse(self, response):
        note("parse", response, shop=response.request.shop)
        yield response.request.replace(url=f"{SITE}/page/2", callback=self.parse_more)
        yield ShopRequest(f"{SITE}/redirect?to=/page/3", self.parse_more, shop="second")
        yield JsonRequest(f"{SITE}/echo", data={}, callback=self.parse_json)

    def parse_more(self, response):
        note("parse_more", response, shop=response.request.shop)

    def parse_json(self, response):
        note("parse_json", response)
        yield response.request.replace(url=f"{SITE}/echo/2", data={"b": 1})


class Login(scrapy.Spider):
    """A form is filled in, and the session that it starts is used."""

    name = "login"
    start_urls = [f"{SITE}/login"]

    def parse(self, response):
        note("parse", response)
        yield FormRequest.from_response(
            response, formdata={"user": "ann", "pass": "pw"}, callback=self.parse_account
        )

    def parse_account(self, response):
        note("parse_account", response)
        yield {"account": response.css("h1::text").get()}
        yield from response.follow_all(css="a", callback=self.parse_orders)

    def parse_orders(self, response):
        note("parse_orders", response)


class Sessions(scrapy.Spider):
    """Several sessions side by side, and requests that take no part in any."""

    name = "sessions"

    async def start(self):
        for n in (1, 2, "three"):
            yield Request(
                f"{SITE}/cookie?session={n}", meta={"cookiejar": n}, cookies={"own": str(n)}
            )

    def parse(self, response):
        note("parse", response)
        jar = response.meta["cookiejar"]
        for meta in ({"cookiejar": jar}, {"cookiejar": jar, "dont_merge_cookies": True}, {}):
            number = len(meta)
            url = f"{SITE}/echo/{jar}/{number}"
            yield Request(url, self.parse_echo, meta=meta, cb_kwargs={"jar": jar})
        cookies = [{"name": "listed", "value": "1", "path": "/echo", "domain": "127.0.0.1"}]
        url = f"{SITE}/echo/{jar}/own"
        yield Request(url, self.parse_echo, cookies=cookies, meta={"cookiejar": f"{jar}-own"})

    def parse_echo(self, response, jar=None):
        note("parse_echo", response, jar=jar)


class Encodings(scrapy.Spider):
    """Pages in old encodings, with links and forms that are not in ASCII."""

    name = "encodings"
    start_urls = [f"{SITE}/encoded/cp1251", f"{SITE}/encoded/shift_jis", f"{SITE}/zipped"]

    def parse(self, response):
        note("parse", response)
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a", callback=self.parse_more)
        yield Request(
            f"{SITE}/echo/body/{response.encoding}",
            self.parse_more,
            method="POST",
            body=response.css("title::text").get(),
            encoding=response.encoding,
            headers={"X-Word": response.encoding},
        )

    def parse_more(self, response):
        note("parse_more", response)


class Fingerprints(scrapy.Spider):
    """REQUEST_FINGERPRINTER_CLASS: pages that differ in their session are the same."""

    name = "fingerprints"
    start_urls = [f"{SITE}/page/start"]
    custom_settings = {"REQUEST_FINGERPRINTER_CLASS": "bookshop.requests.SessionlessFingerprinter"}

    def parse(self, response):
        note("parse", response)
        for path in ("1?session=a", "1?session=b", "2?session=a", "1", "3?other=a", "3?other=b"):
            yield response.follow(f"/page/{path}", self.parse_more)

    def parse_more(self, response):
        note("parse_more", response)
        yield response.follow("/page/1?session=c", self.parse_more)


class Unfiltered(scrapy.Spider):
    """DUPEFILTER_CLASS = BaseDupeFilter: every request is made."""

    name = "unfiltered"
    start_urls = [f"{SITE}/page/start"]
    custom_settings = {"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"}

    def parse(self, response):
        note("parse", response)
        for n in (1, 1, 2):
            yield response.follow(f"/page/{n}", self.parse_more, cb_kwargs={"left": 2})

    def parse_more(self, response, left):
        note("parse_more", response, left=left)
        if left:
            yield response.follow("/page/1", self.parse_more, cb_kwargs={"left": left - 1})


class OwnFilter(scrapy.Spider):
    """A duplicate filter of the project's own."""

    name = "own_filter"
    start_urls = [f"{SITE}/page/start"]
    custom_settings = {"DUPEFILTER_CLASS": "bookshop.requests.CaselessDupeFilter"}

    def parse(self, response):
        note("parse", response, filter=show(self.crawler.engine is not None))
        for path in ("/page/a", "/page/A", "/page/b"):
            yield response.follow(path, self.parse_more)

    def parse_more(self, response):
        note("parse_more", response)
