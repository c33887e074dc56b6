"""The queue that the scheduler pops from: executions' follow-ups, and what `ReadyRequests` has."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.downloads import request_slots
from scrapy_itemgraph.worker.executions.execution import LegState
from scrapy_itemgraph.worker.executions.lane_queues import LaneQueues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.downloads.lanes import Lanes
    from scrapy_itemgraph.worker.executions.execution import Leg
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests


@dataclass(slots=True, eq=False, repr=False)
class EngineRequests:
    """Claimed requests and follow-ups that wait until their limits let them start."""

    crawler: Crawler
    lanes: Lanes
    limiters: Limiters
    ready: ReadyRequests
    _follow_ups: LaneQueues[Lane, tuple[Request, Leg]] = field(default_factory=LaneQueues)
    _timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._follow_ups) + len(self.ready)

    def __iter__(self) -> Iterator[Request]:
        """Go over the requests that have not started, in no order."""
        return iter([*(request for request, _ in self._follow_ups), *self.ready])

    # In

    def expect(self, leg: Leg, slot: str) -> None:
        """Have a leg count as queued whose request is being made."""
        leg.state = LegState.QUEUED
        leg.lane = self.lanes.of(slot, leg)

    def push_claimed(self, request: Request, leg: Leg) -> None:
        """Add a claim's own request."""
        self._queue(leg, request)
        self.ready.push(request, leg)
        self.wake_engine()

    def push_follow_up(self, request: Request, leg: Leg) -> None:
        """Add a request with which an execution goes on."""
        self._queue(leg, request)
        self._follow_ups.push(leg.lane, (request, leg), priority=request.priority)
        if not all(limiter.units for limiter in leg.lane):
            self.limiters.wanted.set()

    def _queue(self, leg: Leg, request: Request) -> None:
        self.expect(leg, request_slots.slot_of(request))
        leg.has_started = False

    # Out

    def pop_follow_up(self, now: float) -> tuple[Request, Leg] | None:
        """Take the next follow-up that its limits let start by `now` (`time.monotonic()`)."""
        return self._follow_ups.pop(lambda lane: _admits(lane, now))

    def pop_claimed(self, now: float) -> tuple[Request, Leg] | None:
        """Take the next claimed request that its limits let start by `now`."""
        return self.ready.pop(lambda lane: _admits(lane, now))

    def look_again(self, now: float) -> None:
        """Have the engine ask again when the next request that waits here may start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lanes = {*self._follow_ups.lanes, *self.ready.lanes} - {()}
        moments = (max(limiter.admits_at() for limiter in lane) for lane in lanes)
        soonest = min(moments, default=math.inf)
        if now < soonest < math.inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(soonest - now, self.limits_changed)

    def wake_engine(self) -> None:
        """Have the engine ask at once."""
        scrapy_internals.wake_engine(self.crawler)

    def limits_changed(self) -> None:
        """Have the engine ask at once, if anything waits."""
        if self:
            self.wake_engine()

    def give_back(self, limiter: Limiter) -> None:
        """Give back the work that waits for a limit whose turn will not come soon."""
        for request, leg in (
            *self.ready.drop(lambda lane: limiter in lane),
            *self._follow_ups.drop(lambda lane: limiter in lane),
        ):
            if leg.execution.claim is None:  # there is nowhere to give it back to
                self._follow_ups.push(leg.lane, (request, leg), priority=request.priority)
            else:
                leg.give_back(leg.lane)
                leg.close()


def _admits(lane: Lane, now: float) -> bool:
    return all(limiter.admits(now) for limiter in lane)
