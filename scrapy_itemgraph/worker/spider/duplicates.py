"""What is said and counted of requests that are duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter


class Duplicates:
    """Tells of duplicates what Scrapy tells of them."""

    def __init__(self, crawler: Crawler, dupefilter: BaseDupeFilter) -> None:
        self._crawler = crawler
        self._dupefilter = dupefilter

    def filtered(self, request: Request) -> None:
        """Log a request that is not taken, for it is known."""
        assert self._crawler.spider is not None
        self._dupefilter.log(request, self._crawler.spider)

    def uncount(self) -> None:
        """Count one request less as enqueued."""
        self._crawler.stats.inc_value("scheduler/enqueued", -1)

    def dropped(self, request: Request) -> None:
        """Say that a request that was taken turned out to be a duplicate."""
        self.uncount()
        self.filtered(request)
        self._crawler.signals.send_catch_log(
            signals.request_dropped, request=request, spider=self._crawler.spider
        )
