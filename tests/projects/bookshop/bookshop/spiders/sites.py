"""What stands between a spider and a web site: redirects, retries, robots.txt, limits, caches."""

# ruff: noqa: RUF012

from __future__ import annotations

import os
from urllib.parse import quote

import scrapy
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import Request

from bookshop.notes import note

SITE = os.environ["SITE"]
ELSEWHERE = SITE.replace("127.0.0.1", "localhost")


class Redirects(scrapy.Spider):
    """Redirects of every kind, to new pages, to seen ones and to other hosts.

    Of those that lead back to their own page Scrapy follows unfiltered ones alone.
    """

    name = "redirects"
    start_urls = [f"{SITE}/page/seen"]

    def parse(self, response):
        note("parse", response)
        yield response.follow("/page/known", self.parse_more)
        for status in (301, 302, 303, 307, 308):
            to = f"/moved/{status}?to=/page/{status}"
            yield response.follow(to, self.parse_more, cb_kwargs={"n": status})
            yield response.follow(
                f"/moved/{status}?to=/echo/{status}", self.parse_more, method="POST", body="b"
            )
        for to in ("/page/known", "/page/known", "/page/seen"):
            yield response.follow(f"/redirect?to={to}", self.parse_more, errback=self.failed)
        yield response.follow("/redirect?to=/redirect?to=/page/chain", self.parse_more)
        yield response.follow("/refresh?to=/page/refreshed", self.parse_more)
        yield response.follow("/wall/2", self.parse_more, dont_filter=True, meta={"cookiejar": 2})
        loop = {"max_retry_times": 1, "redirect_times": 18}
        yield response.follow(
            "/loop?unfiltered", self.parse_more, dont_filter=True, errback=self.failed, meta=loop
        )
        yield response.follow(f"/redirect?to={quote(ELSEWHERE)}/page/far", self.parse_more)
        meta = {"dont_redirect": True, "handle_httpstatus_list": [302]}
        yield response.follow("/redirect?to=/page/not", self.parse_more, meta=meta)
        yield response.follow("/redirect?to=/status/404", self.parse_more, errback=self.failed)

    def parse_more(self, response, n=None):
        note("parse_more", response, n=n)
        yield {"url": response.url}

    def failed(self, failure):
        note("failed", failure)


class Retries(scrapy.Spider):
    """Pages that come at the second try, or never, and retries that a callback asks for."""

    name = "retries"
    start_urls = [f"{SITE}/flaky/1/a", f"{SITE}/flaky/9/b", f"{SITE}/empty/1", f"{SITE}/empty/9"]

    def parse(self, response):
        note("parse", response)
        if not response.text:
            again = get_retry_request(response.request, spider=self, reason="empty")
            if again:
                yield again
            return
        yield {"text": response.text}
        if "/flaky/1" not in response.url:
            return
        yield response.follow("/flaky/2/c", self.parse, cb_kwargs={}, errback=self.failed)
        yield response.follow("/flaky/9/d", errback=self.failed, meta={"max_retry_times": 1})
        yield response.follow("/flaky/9/e", errback=self.failed, meta={"dont_retry": True})
        yield response.follow("/status/429", errback=self.failed)

    def failed(self, failure):
        note("failed", failure)
        if "/e" in failure.request.url:
            yield failure.request.replace(url=f"{SITE}/page/instead", dont_filter=True)


class Robots(scrapy.Spider):
    """ROBOTSTXT_OBEY: what is forbidden goes to the errback."""

    name = "robots"
    start_urls = [f"{SITE}/page/1", f"{SITE}/private/start"]
    custom_settings = {"ROBOTSTXT_OBEY": True}

    def parse(self, response):
        note("parse", response)
        for path in ("/private/1", "/page/2", "/redirect?to=/private/2"):
            yield response.follow(path, self.parse_more, errback=self.failed)
        meta = {"dont_obey_robotstxt": True}
        yield response.follow("/private/3", self.parse_more, meta=meta)

    def parse_more(self, response):
        note("parse_more", response)

    def failed(self, failure):
        note("failed", failure)


class Depth(scrapy.Spider):
    """DEPTH_PRIORITY, stats of depth, and a referrer policy."""

    name = "depth"
    start_urls = [f"{SITE}/tree"]
    custom_settings = {
        "DEPTH_PRIORITY": 1,
        "DEPTH_STATS_VERBOSE": True,
        "REFERRER_POLICY": "origin",
    }

    def parse(self, response):
        note("parse", response)
        for link in response.css("a::attr(href)").getall():
            policy = {"referrer_policy": "unsafe-url"} if link.endswith("3") else {}
            yield response.follow(link, meta=policy, priority=len(link))


class Offsite(scrapy.Spider):
    """allowed_domains, redirects off the site, and requests that may leave it."""

    name = "offsite"
    allowed_domains = ["127.0.0.1"]
    start_urls = [f"{SITE}/page/1", f"{ELSEWHERE}/page/start"]

    def parse(self, response):
        note("parse", response)
        if "start" in response.url:
            return
        for n in (1, 2):
            yield Request(f"{ELSEWHERE}/page/{n}", self.parse_more, errback=self.failed)
        yield Request(f"{ELSEWHERE}/page/free", self.parse_more, dont_filter=True)
        yield Request(f"{ELSEWHERE}/page/may", self.parse_more, meta={"allow_offsite": True})
        to = quote(f"{ELSEWHERE}/page/redirected")
        yield response.follow(f"/redirect?to={to}", self.parse_more, errback=self.failed)

    def parse_more(self, response):
        note("parse_more", response)

    def failed(self, failure):
        note("failed", failure)


class Limits(scrapy.Spider):
    """URLLENGTH_LIMIT, DOWNLOAD_MAXSIZE, CONCURRENT_ITEMS and HTTPERROR_ALLOWED_CODES."""

    name = "limits"
    start_urls = [f"{SITE}/page/1"]
    handle_httpstatus_list = [410]
    custom_settings = {
        "URLLENGTH_LIMIT": 100,
        "DOWNLOAD_MAXSIZE": 2000,
        "CONCURRENT_ITEMS": 1,
        "HTTPERROR_ALLOWED_CODES": [404],
        "REDIRECT_ENABLED": False,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "CONCURRENT_REQUESTS": 1,
    }

    def parse(self, response):
        note("parse", response)
        for path in ("/page/" + "x" * 100, "/status/404", "/status/410", "/status/403"):
            yield response.follow(path, self.parse_more)
        for path in ("/redirect?to=/page/2", "/status/503", "/cookie?a=1"):
            yield response.follow(path, self.parse_more, errback=self.failed)
        yield response.follow("/links?to=" + "y" * 1500, self.parse_more, errback=self.failed)
        for n in range(30):
            yield {"n": n}

    def parse_more(self, response):
        note("parse_more", response)

    def failed(self, failure):
        note("failed", failure)


class Cached(scrapy.Spider):
    """HTTPCACHE_ENABLED: what was fetched before comes from the cache, with a flag."""

    name = "cached"
    start_urls = [f"{SITE}/page/1"]
    custom_settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "cache"}

    def parse(self, response, n=0):
        note("parse", response, n=n)
        if n < 2:
            yield response.follow("/page/1", dont_filter=True, cb_kwargs={"n": n + 1})
            yield response.follow(f"/page/2?{n}", cb_kwargs={"n": 9}, meta={"dont_cache": True})


class Throttled(scrapy.Spider):
    """AUTOTHROTTLE, DOWNLOAD_SLOTS and a download slot of a request's own."""

    name = "throttled"
    start_urls = [f"{SITE}/tree/1"]
    custom_settings = {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 0.02,
        "AUTOTHROTTLE_MAX_DELAY": 0.05,
        "DOWNLOAD_SLOTS": {"own": {"concurrency": 1, "delay": 0.02, "randomize_delay": False}},
    }

    def parse(self, response):
        note("parse", response)
        yield from response.follow_all(css="a")
        for n in range(3):
            yield response.follow(f"/page/{n}", self.parse_leaf, meta={"download_slot": "own"})

    def parse_leaf(self, response):
        note("parse_leaf", response)
