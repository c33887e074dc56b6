"""What is said and counted of requests that are duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import signals
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.dupefilters import RFPDupeFilter
from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter


class Duplicates:
    """Tells of duplicates what Scrapy tells of them."""

    def __init__(self, crawler: Crawler, dupefilter: BaseDupeFilter) -> None:
        self._crawler = crawler
        self._dupefilter = dupefilter
        self.are_unheard = False
        self._offsite: list[OffsiteMiddleware] = []

    def listen(self) -> None:
        """Look whether any signal of the engine tells somebody of requests or of duplicates.

        Scrapy's offsite filter does not count: of known requests it would let go what it let go
        before, and of others it is asked, see `is_offsite`.
        """
        heard_by = [getattr(one, "__self__", None) for one in self._handlers()]
        self._offsite = [one for one in heard_by if type(one) is OffsiteMiddleware]
        self.are_unheard = len(self._offsite) == len(heard_by)

    def is_offsite(self, request: Request) -> bool:
        """Ask Scrapy's offsite filter, which logs and counts what it does not let go."""
        spider = self._crawler.spider
        assert spider is not None
        try:
            for one in self._offsite:
                one.request_scheduled(request, spider)
        except IgnoreRequest:
            return True
        return False

    @property
    def are_only_counted(self) -> bool:
        """Whether of duplicates nothing is told but how many there are."""
        match self._dupefilter:
            case RFPDupeFilter(debug=False, logdupes=False) as one:
                return type(one).log is RFPDupeFilter.log and self.are_unheard
        return False

    def _handlers(self) -> Iterator[Any]:
        for signal in (signals.request_scheduled, signals.request_dropped):
            yield from dispatcher.liveReceivers(dispatcher.getAllReceivers(self._crawler, signal))

    def count(self) -> None:
        """Count a request that was taken and turned out to be a duplicate."""
        self.uncount()
        self._crawler.stats.inc_value("dupefilter/filtered")

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
