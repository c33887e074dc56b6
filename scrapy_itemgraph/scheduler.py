"""The scheduler: claimed work and its follow-ups, from memory. What fills it is in `crawl`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_itemgraph import crawl as crawls
from scrapy_itemgraph import translation
from scrapy_itemgraph.buffers import Buffer, Slots
from scrapy_itemgraph.executions import Leg, LegState
from scrapy_itemgraph.outputs import Errback, Outputs
from scrapy_itemgraph.translation import LEG

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter
    from twisted.internet.defer import Deferred

    from scrapy_itemgraph.crawl import Crawl

logger = logging.getLogger(__name__)


class Scheduler(BaseScheduler):
    """Hands out claimed requests; nothing here waits for the database."""

    def __init__(self, crawl: Crawl, dupefilter: BaseDupeFilter) -> None:
        self._crawl = crawl
        self._strays = Strays(crawl, dupefilter)
        self._outputs = Outputs(crawl)
        self._fingerprint = crawl.crawler.request_fingerprinter.fingerprint
        self._follow_ups: Buffer[Request] = Buffer()
        self._claimed: Buffer[Request] = Buffer()
        self._running: set[Leg] = set()
        settings = crawl.crawler.settings
        default = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        by_slot = settings.getdict("DOWNLOAD_SLOTS")
        self._slots = Slots(lambda slot: int(by_slot.get(slot, {}).get("concurrency", default)))
        crawl.on_fetched = self._fetched

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler of a crawler."""
        dupefilter_class = load_object(crawler.settings["DUPEFILTER_CLASS"])
        return cls(crawls.of(crawler), build_from_crawler(dupefilter_class, crawler))

    def open(self, spider: Spider) -> Deferred[None]:  # noqa: ARG002 - Scrapy's signature
        """Open the graph."""
        self._strays.dupefilter.open()
        return deferred_from_coro(self._crawl.open())

    def close(self, reason: str) -> Deferred[None]:
        """Commit what ended, release the rest."""
        self._strays.dupefilter.close(reason)
        return deferred_from_coro(self._crawl.close(reason))

    def has_pending_requests(self) -> bool:
        """Tell whether requests wait in memory, or more may come from the graph."""
        if self._crawl.failure is not None:
            return False
        return bool(self._follow_ups or self._claimed) or not self._crawl.is_over

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request: claimed work, a follow-up, a redirect, a retry, or a stray one."""
        leg = self._leg_of(request)
        if leg is None:
            leg = self._strays.leg_for(request)
        elif self._is_seen(leg, request):
            return False
        if leg is None:
            return False
        self._fetched(leg)
        if leg.execution.is_doomed:
            leg.close()
            return False
        is_claim = leg.is_own and leg.state is LegState.OFFERED and leg.execution.claim is not None
        leg.state = LegState.QUEUED
        queue = self._claimed if is_claim else self._follow_ups
        queue.push(
            translation.slot_of(request), request, priority=0 if is_claim else request.priority
        )
        self._crawl.unhanded = len(self._claimed)
        return True

    def next_request(self) -> Request | None:
        """Return a request whose slot has room; what an execution goes on with comes first."""
        while True:
            popped = self._follow_ups.pop(self._slots.has_room)
            if popped is None:
                popped = self._claimed.pop(self._slots.has_room)
                self._crawl.unhanded = len(self._claimed)
                self._crawl.wake()
            if popped is None:
                return None
            slot, request = popped
            leg: Leg = request.meta[LEG]
            if not leg.is_open or leg.execution.is_doomed:
                leg.close()
                continue
            self._hand_out(request, leg, slot)
            return request

    def _hand_out(self, request: Request, leg: Leg, slot: str) -> None:
        leg.state = LegState.RUNNING
        leg.request = request
        leg.fetch = None
        leg.on_close = self._fetched
        self._running.add(leg)
        if slot:
            self._slots.take(slot)
            leg.occupies = slot
        request.errback = Errback(self._outputs, leg, translation.unwrapped(request.errback))

    def _fetched(self, leg: Leg) -> None:
        """Give back the leg's place in its slot; a request that it led to was refused if unseen."""
        self._running.discard(leg)
        if leg.occupies:
            self._slots.free(leg.occupies)
            leg.occupies = ""

    def _leg_of(self, request: Request) -> Leg | None:
        """Return the leg that a request belongs to; a copy that leaked belongs to none."""
        leg = request.meta.get(LEG)
        if isinstance(leg, Leg) and (
            leg.state is LegState.OFFERED
            or (leg.state is LegState.RUNNING and _is_outcome(leg, request))
        ):
            return leg
        for running in self._running:
            if running.fetch is not None and _is_outcome(running, request):
                request.meta[LEG] = running
                return running
        return None

    def _is_seen(self, leg: Leg, request: Request) -> bool:
        """Filter follow-ups among the requests of their execution, but never the work's own."""
        if leg.execution.claim is None:
            return self._strays.is_seen(request)
        seen = leg.execution.seen
        fingerprint = self._fingerprint(request)
        if fingerprint in seen and not (request.dont_filter or leg.is_own):
            return True
        seen.add(fingerprint)
        return False


class Strays:
    """Requests outside any task's execution: they run from memory, and are not durable yet."""

    def __init__(self, crawl: Crawl, dupefilter: BaseDupeFilter) -> None:
        self.dupefilter = dupefilter
        self._crawl = crawl
        self._has_warned = False

    def is_seen(self, request: Request) -> bool:
        """Filter a request by its fingerprint, as Scrapy's own scheduler does."""
        if request.dont_filter or not self.dupefilter.request_seen(request):
            return False
        self.dupefilter.log(request, self._crawl.spider)
        return True

    def leg_for(self, request: Request) -> Leg | None:
        """Open an execution without a claim for a request, unless it is a duplicate."""
        if self.is_seen(request):
            return None
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s belongs to no task's execution: such requests are kept in memory only and are "
                "lost when the process ends",
                request,
                extra={"action": "not_durable"},
            )
        request.errback = translation.unwrapped(request.errback)
        request.callback = translation.unwrapped(request.callback)
        leg = self._crawl.begin(url=request.url).open_leg(is_own=True)
        request.meta[LEG] = leg
        return leg


def _is_outcome(leg: Leg, request: Request) -> bool:
    """Tell whether `request` is what the leg's fetch led to: a redirect, a retry."""
    fetch: Any = leg.fetch
    if fetch is None:
        return True
    return bool(
        fetch.done()
        and not fetch.cancelled()
        and fetch.exception() is None
        and fetch.result() is request
    )
