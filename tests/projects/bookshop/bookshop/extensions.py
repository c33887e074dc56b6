"""Extensions that note the signals of a crawl and its stats."""

from __future__ import annotations

import json
from pathlib import Path

from scrapy import signals

from bookshop.notes import show, write


class SignalNotes:
    """Notes the signals that extensions of the community count by."""

    def __init__(self, crawler):
        for name in ("request_scheduled", "request_dropped", "request_reached_downloader"):
            crawler.signals.connect(self._of_request(name), getattr(signals, name), weak=False)
        for name in ("response_received", "response_downloaded"):
            crawler.signals.connect(self._of_response(name), getattr(signals, name), weak=False)
        crawler.signals.connect(self.item_scraped, signals.item_scraped)
        crawler.signals.connect(self.item_dropped, signals.item_dropped)
        crawler.signals.connect(self.item_error, signals.item_error)
        crawler.signals.connect(self.spider_error, signals.spider_error)
        crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def _of_request(self, name):
        def handler(request, spider):
            write("signal", name, request=f"{request.method} {request.url}")

        return handler

    def _of_response(self, name):
        def handler(response, request, spider):
            write("signal", name, response=f"{response.status} {response.url} of {request.url}")

        return handler

    def item_scraped(self, item, response, spider):
        write("signal", "item_scraped", item=show(item), url=response and response.url)

    def item_dropped(self, item, response, exception, spider):
        write("signal", "item_dropped", item=show(item), error=repr(exception))

    def item_error(self, item, response, spider, failure):
        write("signal", "item_error", item=show(item), error=failure.type.__name__)

    def spider_error(self, failure, response, spider):
        write("signal", "spider_error", error=failure.type.__name__, url=response and response.url)

    def spider_opened(self, spider):
        write("signal", "spider_opened")

    def spider_closed(self, spider, reason):
        write("signal", "spider_closed", reason=reason)


class StatsNotes:
    """Writes the stats of a crawl into a file at its end."""

    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.spider_closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def spider_closed(self, reason):
        stats = self.crawler.stats.get_stats() | {"reason": reason}
        Path("stats.json").write_text(json.dumps(stats, default=str))
