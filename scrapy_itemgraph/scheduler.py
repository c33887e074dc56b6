"""The scheduler: hands out claimed work and its follow-ups, from memory; takes in what is new."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.defer import deferred_from_coro

from scrapy_itemgraph.throttle import local_slots
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker import worker as workers
from scrapy_itemgraph.worker.claimer import Claimer
from scrapy_itemgraph.worker.executions.buffers import Buffer
from scrapy_itemgraph.worker.executions.executions import LEG, Leg, LegState
from scrapy_itemgraph.worker.limit_sync import LimitSync
from scrapy_itemgraph.worker.maintenance import Maintenance
from scrapy_itemgraph.worker.spider import request_builder
from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
from scrapy_itemgraph.worker.spider.logins import Logins
from scrapy_itemgraph.worker.spider.redirects import Redirects
from scrapy_itemgraph.worker.spider.request_ids import Identities
from scrapy_itemgraph.worker.spider.spider_output import Errback, SpiderOutput

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.worker.worker import Worker


logger = logs.logger(__name__)


class Scheduler(BaseScheduler):
    """Hands out claimed requests; nothing here waits for the database."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._stats = worker.crawler.stats
        self._outputs = SpiderOutput(worker)
        self._follow_ups: Buffer[Lane, Request] = Buffer()
        self._claimed = worker.handing
        self._running: set[Leg] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fingerprint = worker.crawler.request_fingerprinter.fingerprint
        identities = Identities(worker.crawler)
        self._dupefilter = identities.dupefilter
        self._enqueuer = Enqueuer(worker, identities)
        self._redirects = Redirects(worker, identities, self._push_follow_up, self._enqueuer.drop)
        self._enqueuer.carry = self._redirects.carry
        self._claimer = Claimer(worker, lambda: len(self._claimed), self._push_claimed)
        self._limit_sync = LimitSync(worker, self._claimer.has_news)
        self._maintenance = Maintenance(worker, self._claimer.has_news)
        self._logins = Logins(worker, lambda: [*self._follow_ups, *self._claimed])
        worker.on_fetched = self._fetched
        worker.on_count = lambda: len(self._running)
        worker.handing.on_ready = self._wake_engine
        worker.on_news = self._claimer.has_news
        worker.on_blocked = self._give_back
        worker.on_closing = self._limit_sync.save

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler of a crawler."""
        return cls(workers.of(crawler))

    def open(self, spider: Spider) -> Deferred[None]:  # noqa: ARG002 - Scrapy's signature
        """Open the graph."""
        self._dupefilter.open()
        parts = (
            self._claimer,
            self._limit_sync,
            self._maintenance,
            self._redirects,
            self._logins,
        )
        duties = [part.run for part in parts]
        return deferred_from_coro(self._worker.open(*duties))

    def close(self, reason: str) -> Deferred[None]:
        """Commit what ended, release the rest."""
        try:
            self._dupefilter.close(reason)
        finally:
            closing = deferred_from_coro(self._worker.close(reason))
        return closing

    def has_pending_requests(self) -> bool:
        """Tell whether requests wait in memory, or more may come from the graph."""
        if self._worker.failure is not None:
            return False
        return bool(self._follow_ups or self._claimed) or not self._worker.is_over

    def enqueue_request(self, request: Request) -> bool:
        """Take in a request: claimed work, a follow-up, a redirect, a retry, or new work."""
        try:
            is_taken = self._enqueue(request)
        except Exception as error:
            leg = request.meta.get(LEG)
            if not isinstance(leg, Leg) or not leg.is_open:
                raise
            if leg.state is LegState.OFFERED and leg.is_own:
                raise  # whoever hands it out knows what to do
            # What Scrapy would make of it is a line in the log, and a leg that nobody closes.
            logger.exception("%s: cannot take %s", leg.execution.where, request)
            leg.execution.fail(self._worker.error_of(leg.execution, error, url=request.url))
            leg.close()
            return False
        if is_taken:
            self._stats.inc_value("scheduler/enqueued")
        return is_taken

    def _enqueue(self, request: Request) -> bool:
        leg = self._leg_of(request)
        if leg is None or leg.is_discovery:
            request.callback = request_builder.unwrapped(request.callback)
            request.errback = request_builder.unwrapped(request.errback)
            return self._enqueuer.enqueue(request, leg)
        self._fetched(leg)
        if local_slots.has_stale_slot(request):
            del request.meta["download_slot"]
        execution = leg.execution
        if execution.is_doomed:
            leg.close()
            return False
        if execution.claim is not None and not execution.is_of_task:
            return self._redirects.follow(request, leg)
        if self._is_seen(leg, request):
            return False
        if leg.is_own and leg.state is LegState.OFFERED:
            self._push_claimed(request, leg)
        else:
            self._push_follow_up(request, leg)
        return True

    def next_request(self) -> Request | None:
        """Return a request that may start about now; what an execution goes on with goes first."""
        now = time.monotonic()

        def admits(lane: Lane) -> bool:
            return all(one.admits(now) for one in lane)

        while True:
            popped = self._follow_ups.pop(admits)
            if popped is None and not self._logins.is_under_way:
                popped = self._claimed.pop(admits)
                self._claimer.wake()
            if popped is None:
                self._look_again(now)
                return None
            leg: Leg = popped.meta[LEG]
            if not leg.is_open or leg.execution.is_doomed:
                leg.close()
                continue
            self._hand_out(popped, leg)
            return popped

    def _look_again(self, now: float) -> None:
        """Have the engine ask again when the next request that waits here may start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lanes = {*self._follow_ups.lanes, *self._claimed.lanes} - {()}
        soonest = min((max(one.admits_at() for one in lane) for lane in lanes), default=math.inf)
        if now < soonest < math.inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(soonest - now, self._wake_engine)

    def _wake_engine(self) -> None:
        if self._follow_ups or self._claimed:
            request_builder.wake_engine(self._worker.crawler)

    def _push_claimed(self, request: Request, leg: Leg) -> None:
        self._queue(leg, request)
        self._claimed.push(request, leg)
        request_builder.wake_engine(self._worker.crawler)

    def _push_follow_up(self, request: Request, leg: Leg) -> None:
        self._queue(leg, request)
        request.meta[LEG] = leg
        self._follow_ups.push(leg.lane, request, priority=request.priority)
        if not all(one.units for one in leg.lane):
            self._worker.limiters.wanted.set()

    def _queue(self, leg: Leg, request: Request) -> None:
        leg.state = LegState.QUEUED
        leg.has_started = False
        leg.lane = self._worker.gate.lane(local_slots.slot_of(request), leg)

    def _give_back(self, limiter: Limiter) -> None:
        """Give back the work that waits for a limit whose turn will not come soon."""
        for request in (
            *self._claimed.drop(lambda lane: limiter in lane),
            *self._follow_ups.drop(lambda lane: limiter in lane),
        ):
            leg: Leg = request.meta[LEG]
            if leg.execution.claim is None:  # there is nowhere to give it back to
                self._follow_ups.push(leg.lane, request, priority=request.priority)
            else:
                leg.give_back(leg.lane)
                leg.close()
        self._worker.gate.put_off(limiter)

    def _hand_out(self, request: Request, leg: Leg) -> None:
        leg.state = LegState.RUNNING
        leg.request = request
        leg.fetch = None
        leg.on_close = self._fetched
        self._logins.begin(leg)
        self._running.add(leg)
        self._worker.gate.occupy(leg)
        request.errback = Errback(self._outputs, leg, request_builder.unwrapped(request.errback))
        self._stats.inc_value("scheduler/dequeued")

    def _fetched(self, leg: Leg) -> None:
        """Give back the leg's place in its slot; a request that it led to was refused if unseen."""
        self._running.discard(leg)
        self._worker.gate.leave(leg)

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
        seen = leg.execution.seen
        fingerprint = self._fingerprint(request)
        if fingerprint in seen and not (request.dont_filter or leg.is_own):
            return True
        seen.add(fingerprint)
        return False


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
