"""What follows when a request is at the download gate, starts, or is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.tallies import NO_ANSWER
from scrapy_itemgraph.worker.downloads.request_slots import slot_in_use
from scrapy_itemgraph.worker.downloads.site_feedback import SHORT_BLOCK
from scrapy_itemgraph.worker.executions.execution import leg_of, task_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.page_records import PageRecord
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.downloads.lanes import Lanes
    from scrapy_itemgraph.worker.downloads.site_feedback import SiteFeedback
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Leg


@dataclass(slots=True, eq=False, repr=False)
class DownloadEvents:
    """Answers `delay_gate: Gate` for the executions and requests of this worker.

    With `keeps_pages` it takes note of how pages were answered, and in how many seconds.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    queue: EngineRequests
    lanes: Lanes
    limiters: Limiters
    feedback: SiteFeedback
    stats: StatsCollector
    tallies: Tallies
    keeps_pages: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether the database takes this worker to be alive."""
        return self.graph.process.lives

    leg_of = staticmethod(leg_of)

    def lane(self, slot: str, leg: Leg | None) -> Lane:
        """Return the limits that a request keeps to."""
        return self.lanes.of(slot, leg)

    def more_may_start(self) -> None:
        """Have the engine ask the scheduler, if requests wait there."""
        self.queue.limits_changed()

    def turned_away(self) -> None:
        """Give back all work: what it relies on may have failed for no fault of its own."""
        self.active.release()

    def starting(self, request: Request) -> None:
        """Apply the Crawl-delay of the request's host."""
        self.feedback.starting(request)

    def started(self, lane: Lane) -> None:
        """Count the request for each of its limits."""
        for limiter in lane:
            self.tallies.starts[limiter.key] += 1

    def unanswered(self, request: Request, began: float) -> None:
        """Count a request that got no answer."""
        leg = leg_of(request)
        self.tallies.answered(task_of(leg), NO_ANSWER)
        page = _page_of(leg)
        if page is not None:
            page.unanswered(request.url, time.monotonic() - began)

    def answered(
        self, request: Request, response: Response, lane: Lane, began: float
    ) -> Limiter | None:
        """Count a response, and learn from it; return its slot if that is blocked for long."""
        leg = leg_of(request)
        self.tallies.answered(task_of(leg), str(response.status), len(response.body))
        if self.keeps_pages:
            self._keep(leg, request, response, time.monotonic() - began)
        block = self.feedback.answered(request, response, lane)
        if block is None or block.blocked_for is None:
            return None
        self.stats.inc_value("itemgraph/blocked")
        slot = self.limiters.slot(block.slot)
        if slot is None or block.blocked_for <= SHORT_BLOCK:
            return None
        self.queue.give_back(slot)
        return slot

    def _keep(self, leg: Leg | None, request: Request, response: Response, seconds: float) -> None:
        """Take note of how a request was answered."""
        first_byte = request.meta.get("download_latency")
        waited = seconds if first_byte is None else first_byte
        self.tallies.answered_in(task_of(leg), slot_in_use(request), waited)
        page = _page_of(leg)
        if page is not None:
            size = len(response.body)
            page.answered(
                response.status, response.url, size, first_byte=first_byte, seconds=seconds
            )


def _page_of(leg: Leg | None) -> PageRecord | None:
    """Return what is told of the page that a request asks for, where that is kept."""
    return leg.execution.page if leg is not None and leg.is_own else None
