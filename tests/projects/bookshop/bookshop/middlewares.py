"""Middlewares as other people write them."""

from __future__ import annotations

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from bookshop.notes import write


class Mirror:
    """Sends requests for the old shop to its mirror, as a new Request."""

    def process_request(self, request):
        if "/old/" in request.url:
            return request.replace(url=request.url.replace("/old/", "/page/mirrored/"))
        return None


class Exceptions:
    """Notes each download that is said to have failed."""

    def process_exception(self, request, exception):
        write("middleware", "process_exception", error=type(exception).__name__, url=request.url)


class Shelf:
    """Answers without a download, and refuses what is secret."""

    def process_request(self, request):
        if "/shelf/" in request.url:
            return HtmlResponse(request.url, body=b"<h1>from the shelf</h1>", request=request)
        if "/secret/" in request.url:
            raise IgnoreRequest("secret")
        return None


class Reader:
    """Reads a page again when it came out empty, and replaces or refuses some responses."""

    def process_response(self, request, response):
        if "/again/" in request.url and not request.meta.get("again"):
            return request.replace(dont_filter=True, meta={**request.meta, "again": True})
        if "/stale/" in request.url:
            return response.replace(body=b"<h1>refreshed</h1>")
        if "/bad/" in request.url:
            raise IgnoreRequest("bad")
        return response

    def process_exception(self, request, exception):
        write("middleware", "process_exception", error=type(exception).__name__)
        if request.meta.get("rescue"):
            return request.replace(url=request.meta["rescue"], meta={})
        return None


class Catalogue:
    """Adds a request and an item to what callbacks yield, drops some, and recovers errors."""

    def process_spider_input(self, response):
        if "/unreadable/" in response.url:
            raise ValueError("unreadable")

    async def process_spider_output(self, response, result):
        async for output in result:
            if isinstance(output, Request) and "/boring/" in output.url:
                continue
            if isinstance(output, Request):
                output.meta["catalogued"] = True
            yield output
        if response.meta.get("add"):
            yield Request(response.meta["add"], callback=None, cb_kwargs={"added": True})
            yield {"catalogue": response.url}

    def process_spider_exception(self, response, exception):
        write("middleware", "process_spider_exception", error=type(exception).__name__)
        if isinstance(exception, LookupError):
            return [
                {"recovered": response.url},
                Request(response.urljoin("/page/recovered"), cb_kwargs={"added": True}),
            ]
        return None

    async def process_start(self, start):
        async for output in start:
            yield output
        yield {"catalogue": "of starts"}


class Labels(BaseSpiderMiddleware):
    """Labels requests and items, by the base class that Scrapy offers."""

    def get_processed_request(self, request, response):
        return request.replace(headers={**request.headers, "X-Label": "shop"})

    def get_processed_item(self, item, response):
        return item | {"of": response and response.url}
