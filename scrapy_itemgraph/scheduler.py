"""The scheduler: hands out claimed work and its follow-ups, from memory; takes in what is new."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.defer import deferred_from_coro

from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker.downloads import request_slots, revalidation
from scrapy_itemgraph.worker.executions.execution import LegState, request_legs
from scrapy_itemgraph.worker.spider.request_ids import RequestIds
from scrapy_itemgraph.worker.worker import WorkerComponent

if TYPE_CHECKING:
    from collections.abc import Sized

    from scrapy import Request, Spider
    from scrapy.dupefilters import BaseDupeFilter
    from twisted.internet.defer import Deferred

    from scrapy_itemgraph.worker.executions.execution import Leg
    from scrapy_itemgraph.worker.worker import Worker


logger = logs.logger(__name__)


class Scheduler(WorkerComponent, BaseScheduler):
    """Hands out claimed requests; nothing here waits for the database."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._stats = worker.crawler.stats
        self._fingerprint = worker.crawler.request_fingerprinter.fingerprint
        self._identities = RequestIds(worker.crawler)
        self._dupefilter = self._identities.dupefilter

    def open(self, spider: Spider) -> Deferred[None]:  # noqa: ARG002 - Scrapy's signature
        """Open the graph."""
        self._dupefilter.open()
        return deferred_from_coro(self._worker.open(self._identities))

    def close(self, reason: str) -> Deferred[None]:
        """Commit what ended, release the rest."""
        try:
            self._dupefilter.close(reason)
        finally:
            closing = deferred_from_coro(self._worker.close(reason))
        return closing

    # What RemoteControl, consoles and agents ask of Scrapy's own scheduler.

    @property
    def df(self) -> BaseDupeFilter:
        """The duplicates filter, which names requests; what it has seen is in the database."""
        return self._dupefilter

    @property
    def mqs(self) -> Sized:
        """The requests that this process has and that have not started."""
        return self._worker.parts.queue if self._worker.is_open else ()

    @property
    def dqs(self) -> Sized:
        """What waits in the database, as it was counted last; asking has it counted anew."""
        return self._worker.parts.waiting_work if self._worker.is_open else ()

    def __len__(self) -> int:
        """Return how many requests wait, here and in the database, as far as that is known."""
        return len(self.mqs) + len(self.dqs)

    def has_pending_requests(self) -> bool:
        """Tell whether requests wait in memory, or more may come from the graph."""
        if self._worker.failure is not None:
            return False
        worker = self._worker
        return not worker.is_open or bool(worker.parts.queue) or not worker.parts.active.is_over

    def enqueue_request(self, request: Request) -> bool:
        """Take in a request: claimed work, a follow-up, a redirect, a retry, or new work."""
        leg = self._leg_of(request)
        try:
            is_taken = self._enqueue(request, leg)
        except Exception as error:
            if leg is None or not leg.is_open or (leg.state is LegState.OFFERED and leg.is_own):
                raise  # whoever hands it out knows what to do
            # What Scrapy would make of it is a line in the log, and a leg that nobody closes.
            logger.exception("%s: cannot take %s", leg.execution.where, request)
            self._worker.parts.active.fail(leg.execution, error, url=request.url)
            leg.close()
            return False
        if is_taken:
            self._stats.inc_value("scheduler/enqueued")
        return is_taken

    def _enqueue(self, request: Request, leg: Leg | None) -> bool:
        if leg is None or leg.is_discovery:
            return self._worker.parts.enqueuer.enqueue(request, leg)
        leg.fetched()
        if request_slots.has_stale_slot(request):
            del request.meta["download_slot"]
        execution = leg.execution
        if execution.is_doomed:
            leg.close()
            return False
        revalidation.withdraw(request, leg)
        if execution.claim is not None and not execution.is_of_task:
            return self._worker.parts.redirects.follow(request, leg)
        if self._is_seen(leg, request):
            return False
        if leg.is_own and leg.state is LegState.OFFERED:
            self._worker.parts.queue.push_claimed(request, leg)
        else:
            self._worker.parts.queue.push_follow_up(request, leg)
        return True

    def next_request(self) -> Request | None:
        """Return a request that may start about now; what an execution goes on with goes first."""
        worker = self._worker
        if not worker.is_open:
            return None
        now = time.monotonic()
        while True:
            popped = worker.parts.queue.pop_follow_up(now)
            if popped is None and not worker.parts.logins.is_under_way:
                popped = worker.parts.queue.pop_claimed(now)
                worker.parts.claimer.wake()
            if popped is None:
                worker.parts.queue.look_again(now)
                return None
            request, leg = popped
            if not leg.is_open or leg.execution.is_doomed:
                leg.close()
                continue
            self._hand_out(request, leg)
            return request

    def _hand_out(self, request: Request, leg: Leg) -> None:
        leg.handed_out(request)
        self._worker.parts.enqueuer.started(leg.execution)
        self._worker.parts.logins.begin(leg)
        self._stats.inc_value("scheduler/dequeued")

    def _leg_of(self, request: Request) -> Leg | None:
        """Return the leg that a request is offered by, or whose fetch led to it; no other's."""
        leg = request_legs.get(request)
        is_its_own = leg is not None and (
            leg.state is LegState.OFFERED or _is_outcome(leg, request)
        )
        return leg if is_its_own else None

    def _is_seen(self, leg: Leg, request: Request) -> bool:
        """Filter follow-ups among the requests of their execution.

        The work's own request is never filtered, nor a redirect back to where it came from.
        """
        seen = leg.execution.seen
        fingerprint = self._fingerprint(request)
        is_let_through = request.dont_filter or leg.is_own or fingerprint in leg.chain
        if fingerprint in seen and not is_let_through:
            return True
        seen.add(fingerprint)
        if not leg.is_own:
            leg.chain = (*leg.chain, fingerprint)
        return False


def _is_outcome(leg: Leg, request: Request) -> bool:
    """Tell whether `request` is what the leg's fetch led to: a redirect, a retry."""
    fetch = leg.fetch
    if leg.state is not LegState.RUNNING or fetch is None or not fetch.done():
        return False
    return not fetch.cancelled() and fetch.exception() is None and fetch.result() is request
