"""Lanes: the limits that a request keeps to, its slot's and those of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.graph.worker_limits import WorkerLimits
    from scrapy_itemgraph.throttle.limiter import Lane
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.executions.execution import Leg


@dataclass(slots=True, eq=False, repr=False)
class Lanes:
    """Finds the limiters of requests; `first_delay`, in seconds, begins a task's AutoThrottle."""

    limiters: Limiters
    declared: WorkerLimits
    first_delay: float

    def of(self, slot: str, leg: Leg | None) -> Lane:
        """Return the limiters of a request in `slot`; without a leg or a claim it is a stray."""
        is_claimed = leg is not None and leg.execution.claim is not None
        numbers = (
            leg.execution.limits if leg is not None and is_claimed else self.declared.of_strays
        )
        named = []
        for number in numbers:
            limit = self.declared.declared[number]
            first_delay = self.first_delay if limit.throttles else None
            key = limit.kind, limit.name
            named.append(self.limiters.declare(number, key, limit.terms, first_delay=first_delay))
        of_slot = self.limiters.slot(slot)
        return tuple(named) if of_slot is None else (of_slot, *named)
