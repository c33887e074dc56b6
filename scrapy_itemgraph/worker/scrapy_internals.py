"""What Scrapy keeps to itself and we need: its private names, and methods whose place we take.

They stand here alone, a function for each, with the versions of Scrapy that it was tried with.
`tests/acceptance/crawling/test_scrapy_assumptions.py` tries each on a real crawl.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.extensions import feedexport
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware
from scrapy.spiders import CrawlSpider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from http.cookiejar import Cookie
    from types import FrameType
    from typing import IO

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import RFPDupeFilter
    from scrapy.extensions.feedexport import BlockingFeedStorage, FeedSlot
    from scrapy.http import Response, TextResponse
    from scrapy.http.cookies import CookieJar
    from scrapy.spiders import Rule

_STARTS = {"crawl", "crawl_async"}  # methods of Crawler, which forget what they were called with

# The crawler and its engine


def given_arguments(crawler: Crawler) -> dict[str, Any] | None:
    """Return what a crawl under way was started with, positional arguments by their place from 1.

    To be called by what `Crawler.crawl` or `crawl_async` calls; None where neither does. It reads
    the locals of these methods: 2.14 to 2.19.
    """
    frame = sys._getframe(1)
    while frame is not None:
        here = frame.f_locals if frame.f_code.co_name in _STARTS else {}
        if here.get("self") is crawler and "kwargs" in here:
            places = {str(place): value for place, value in enumerate(here.get("args", ()), 1)}
            return {**places, **here["kwargs"]}
        frame = frame.f_back  # type: ignore[assignment]
    return None


def is_of_process() -> bool:
    """Tell whether a `CrawlerProcess` starts the crawl, whose Deferred nobody handles as a rule.

    To be called by what its `crawl` calls. It reads the locals of that: 2.14 to 2.19.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), CrawlerProcess):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def make_engine_by(crawler: Crawler, make: Callable[[], Any]) -> None:
    """Have a crawl make its engine by `make`: `Crawler._create_engine`, 2.14 to 2.19."""
    crawler._create_engine = make  # type: ignore[method-assign]


def take_depth_limit(crawler: Crawler) -> bool:
    """Have Scrapy's depth middleware drop nothing; tell whether the project has it.

    `SpiderMiddlewareManager.middlewares` and `DepthMiddleware.maxdepth`: 2.14 to 2.19.
    """
    assert crawler.engine is not None
    found = [
        one
        for one in crawler.engine.scraper.spidermw.middlewares
        if isinstance(one, DepthMiddleware)
    ]
    for one in found:
        one.maxdepth = 0
    return bool(found)


def tell_of_long_links(crawler: Crawler, left_out: Callable[[], None]) -> None:
    """Have `left_out()` called for each request that is longer than URLLENGTH_LIMIT.

    `UrlLengthMiddleware.get_processed_request`, which returns None of these: 2.14 to 2.19.
    """
    middleware = crawler.get_spider_middleware(UrlLengthMiddleware)
    if middleware is None:  # the project has switched it off
        return
    process = middleware.get_processed_request

    def told(request: Request, response: Response | None) -> Request | None:
        processed = process(request, response)
        if processed is None:
            left_out()
        return processed

    middleware.get_processed_request = told  # type: ignore[method-assign]


def wake_engine(crawler: Crawler) -> None:
    """Have the engine ask the scheduler again; without it Scrapy looks every five seconds.

    Scrapy's only public call that does this, `engine.crawl`, would announce a request twice.
    `ExecutionEngine._slot`, None before the spider is open and after it was closed: 2.14 to 2.19.
    """
    slot = getattr(crawler.engine, "_slot", None)
    if slot is not None:
        slot.nextcall.schedule()


def emptied_fingerprints(dupefilter: RFPDupeFilter) -> set[str | bytes]:
    """Empty the set in which a duplicates filter keeps what it has seen, and return it.

    `RFPDupeFilter.fingerprints`, of text, or `_fingerprints`, of bytes: 2.14 to 2.19. A project may
    have put something else in its place, which is left as it is.
    """
    kept = vars(dupefilter)
    found = kept.get("_fingerprints", kept.get("fingerprints"))
    if not isinstance(found, set):
        return set()
    found.clear()
    return found


# Methods of the engine's parts. Each is looked up whenever it is called, with the engine's own
# request, and what takes its place gets the method first.


def around_fetches(engine: Any, around: Callable[..., Awaitable[Response | Request]]) -> None:
    """Have `around(method, download, request)` awaited for each pass through the middlewares.

    `DownloaderMiddlewareManager.download_async`, in an asyncio task of its own: 2.14 to 2.19.
    """
    owner = engine.downloader.middleware
    owner.download_async = partial(around, owner.download_async)


def around_scrapes(engine: Any, around: Callable[..., Awaitable[Any]]) -> None:
    """Have `around(method, scrape, response, request)` awaited for each response.

    `SpiderMiddlewareManager.scrape_response_async`, in an asyncio task of its own that ends after
    the callback and all scraped items: 2.14 to 2.19.
    """
    owner = engine.scraper.spidermw
    owner.scrape_response_async = partial(around, owner.scrape_response_async)


def around_spider_calls(engine: Any, around: Callable[..., Awaitable[Any]]) -> None:
    """Have `around(method, response_or_failure, request)` awaited for each callback and errback.

    `Scraper.call_spider_async`; a download that failed comes by no other hook: 2.14 to 2.19.
    """
    owner = engine.scraper
    owner.call_spider_async = partial(around, owner.call_spider_async)


def before_closing(engine: Any, begins: Callable[[str, FrameType | None], None]) -> None:
    """Have `begins(reason, caller)` called before the spider is closed, with the caller's frame.

    `ExecutionEngine.close_spider_async`, which everybody calls, Scrapy too: 2.14 to 2.19.
    """
    close = engine.close_spider_async

    def close_spider_async(*, reason: str = "cancelled") -> Any:
        own = inspect.currentframe()
        begins(reason, None if own is None else own.f_back)
        return close(reason=reason)

    engine.close_spider_async = close_spider_async


def cancel_start(engine: Any) -> None:
    """Have `start()` stop, as it does at a shutdown, unless it is what runs just now.

    `ExecutionEngine._start_request_processing_awaitable`: 2.14 to 2.19.
    """
    running = getattr(engine, "_start_request_processing_awaitable", None)
    if running is not None and running is not asyncio.current_task():
        running.cancel()


def process_outputs_by(
    engine: Any, process: Callable[[Any, Request, Any], Awaitable[None]]
) -> None:
    """Have `process(outputs, request, response_or_failure)` awaited for what a callback yields.

    `Scraper.handle_spider_output_async`: 2.14 to 2.19.
    """
    engine.scraper.handle_spider_output_async = process


def around_downloads(downloader: Any, around: Callable[..., Awaitable[Response]]) -> None:
    """Have `around(method, request)` awaited for each download that goes to a handler.

    `DownloadHandlers.download_request_async`, behind the downloader's slots: 2.14 to 2.19.
    """
    owner = downloader.handlers
    owner.download_request_async = partial(around, owner.download_request_async)


def limit_active_by(downloader: Any, held_up: Callable[[], int]) -> None:
    """Have as many of the downloader's requests not count as active as `held_up` returns.

    `Downloader.needs_backout`, which the engine asks before it takes a request: 2.14 to 2.19.
    """
    needs_backout = downloader.needs_backout

    def is_full() -> bool:
        active = len(downloader.active) - held_up()
        return bool(needs_backout()) and active >= downloader.total_concurrency

    downloader.needs_backout = is_full


def around_closing(engine: Any, around: Callable[..., Awaitable[None]]) -> None:
    """Have `around(method, reason=...)` called as soon as somebody closes the spider.

    `ExecutionEngine.close_spider_async`, through which Scrapy closes every spider, whatever for.
    It is called at once, and awaited later: 2.14 to 2.19.
    """
    engine.close_spider_async = partial(around, engine.close_spider_async)


# The downloader


def default_delay(downloader: Any, spider: Spider | None) -> float | None:
    """Return the delay of new slots, which AutoThrottle sets; None where nobody has said one.

    `Downloader._delay` from 2.18 on; before, AutoThrottle sets `download_delay` of the spider.
    """
    delay: float | None = getattr(downloader, "_delay", None)
    return getattr(spider, "download_delay", None) if delay is None else delay


def default_jitter(downloader: Any) -> float | None:
    """Return the jitter of new slots; None before 2.18, which has no `Downloader._jitter`."""
    jitter: float | None = getattr(downloader, "_jitter", None)
    return jitter


def connection_pool(handlers: Any, scheme: str) -> Any:
    """Return what the download handler of a scheme has its connections from; None if nothing.

    `DownloadHandlers._get_handler`, and `_pool` of the HTTP/1.1 handler, Twisted's, and of the
    HTTP/2 handler: 2.14 to 2.19.
    """
    handler_of = getattr(handlers, "_get_handler", None)
    return getattr(handler_of(scheme), "_pool", None) if handler_of is not None else None


def reactor_of(pool: Any) -> Any:
    """Return the reactor of Twisted's connection pool; without one it must not be imported.

    `HTTPConnectionPool._reactor` of Twisted, as Scrapy 2.14 to 2.19 makes it.
    """
    return pool._reactor


# Cookies and responses


def cookies_of(jar: CookieJar | None) -> Mapping[str, dict[str, dict[str, Cookie]]]:
    """Return a jar's cookies by domain, path and name: `CookieJar._cookies`, 2.14 to 2.19.

    What is public goes over the cookies of all domains.
    """
    return {} if jar is None else jar._cookies


def has_selector(response: TextResponse) -> bool:
    """Tell whether a response keeps a selector: `TextResponse._cached_selector`, 2.14 to 2.19."""
    return response._cached_selector is not None


def drop_selector(response: TextResponse) -> None:
    """Have a response keep no selector; it makes another when it is asked for one."""
    response._cached_selector = None


# Spiders


def default_callback(spider: Spider) -> Any:
    """Return the callback of requests that name none: `Spider._parse`, 2.14 to 2.19.

    It is `parse` unless the spider's class, such as `CrawlSpider`, goes another way.
    """
    default = spider._parse
    is_stock = getattr(default, "__func__", None) is Spider._parse
    return spider.parse if is_stock else default


def rules_of(spider: Spider | type[Spider]) -> Sequence[Rule]:
    """Return the rules of a `CrawlSpider`, compiled as it was made: `_rules`, 2.14 to 2.19.

    A class alone, and another spider, has none.
    """
    rules: Sequence[Rule] = getattr(spider, "_rules", ())
    return rules


RULES_CALLBACK = "_callback"
"""The name of the method that calls the rules' callbacks: `CrawlSpider._callback`, 2.14 to 2.19."""


def is_of_rules(spider: Spider, callback: Any) -> bool:
    """Tell whether a callback is the method that calls the rules' callbacks, overridden or not."""
    if not isinstance(spider, CrawlSpider):
        return False
    own: Any = getattr(spider, RULES_CALLBACK, None)
    return own is not None and bool(callback == own)


def is_rules_callback(function: Any) -> bool:
    """Tell whether a function calls the rules' callbacks: `CrawlSpider._callback`, 2.14 to 2.19."""
    return function is CrawlSpider._callback


def is_rules_errback(function: Any) -> bool:
    """Tell whether a function calls the rules' errbacks: `CrawlSpider._errback`, 2.14 to 2.19."""
    return function is CrawlSpider._errback


# `scrapy parse`


def parsed_callback(request: Request) -> Any:
    """Return the callback, or its name, that `scrapy parse` put aside; None of other requests.

    It stands in the request's meta as `_callback`: 2.14 to 2.19.
    """
    return request.meta.get("_callback")


def around_parsed(command: Any, around: Callable[..., Any]) -> None:
    """Have `around(method, command, outputs, opts, depth, ...)` called, in the class of a command.

    `_get_items_and_requests` of `scrapy parse`, before any middleware: 2.14 to 2.19.
    """
    method = command._get_items_and_requests

    def sorted_by(self: Any, outputs: Any, opts: Any, depth: int, *rest: Any) -> Any:
        return around(method, self, outputs, opts, depth, *rest)

    command._get_items_and_requests = sorted_by


# Feed exports


def store_file(storage: BlockingFeedStorage, file: IO[bytes]) -> None:
    """Store a file here and now: what `store` runs in a thread, which takes an event loop.

    `BlockingFeedStorage._store_in_thread`: 2.14 to 2.19.
    """
    storage._store_in_thread(file)


def fill_uri(template: str, params: dict[str, Any]) -> str:
    """Return the URI that a feed's template makes of parameters.

    `feedexport.apply_uri_params` from 2.15 on; before, the operator `%`.
    """
    apply = getattr(feedexport, "apply_uri_params", None)
    return str(template % params if apply is None else apply(template, params))


class OpenFeedExporter(feedexport.FeedExporter):
    """Scrapy's feed exporter with public names for private methods: 2.14 to 2.19.

    Scrapy calls `start_batch`, `end_batch` and `uri_params` in the place of `_start_new_batch`,
    `_close_slot` and `_get_uri_params`.
    """

    def start_batch(self, *args: Any, **options: Any) -> FeedSlot:
        """Return the slot of a batch, whose storage is made and not opened."""
        return super()._start_new_batch(*args, **options)

    def end_batch(self, slot: FeedSlot, spider: Spider) -> Coroutine[Any, Any, None]:
        """Store what a slot has, if it is to be stored."""
        return super()._close_slot(slot, spider)

    def storage_of(self, uri: str, options: dict[str, Any]) -> Any:
        """Return a new storage for a URI."""
        return self._get_storage(uri, options)

    def uri_params(self, spider: Spider, function: Any, before: Any) -> dict[str, Any]:
        """Return what fills a URI's template, of the batch after the slot `before`."""
        return super()._get_uri_params(spider, function, before)

    def _get_uri_params(self, spider: Spider, function: Any, slot: Any = None) -> dict[str, Any]:
        return self.uri_params(spider, function, slot)

    def _start_new_batch(self, *args: Any, **options: Any) -> FeedSlot:
        return self.start_batch(*args, **options)

    def _close_slot(self, slot: FeedSlot, spider: Spider) -> Coroutine[Any, Any, None]:
        return self.end_batch(slot, spider)
