"""Keeps what this process has of limits as the database has it, and saves what sites answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools.async_tools import either
from scrapy_itemgraph.worker.downloads.site_feedback import SHORT_BLOCK

if TYPE_CHECKING:
    import asyncio

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.downloads.delay_gate import Gate
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.downloads.site_feedback import SiteFeedback
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions


@dataclass(slots=True, eq=False, repr=False)
class LimitSync:
    """Tells and asks the database about limits, when there is something to tell or ask.

    Limits are taken and given up under the lock of the limiters; `news` is set when more may be
    claimed.
    """

    graph: WorkerGraph
    limiters: Limiters
    active: ActiveExecutions
    queue: EngineRequests
    gate: Gate
    feedback: SiteFeedback
    news: asyncio.Event

    async def run(self) -> None:
        """Keep limits until told to stop."""
        while True:
            self.limiters.wanted.clear()
            await self._settle()
            await self._pause()

    async def _settle(self) -> None:
        limiters = self.limiters
        async with self.limiters.lock:
            await self._save_feedback()
            unknown = limiters.unidentified
            if unknown:
                names = [name for _, name in unknown]
                limiters.identify(await self.graph.limits.number_slots(names))
            uses = limiters.uses(self.active.unbegun())
            asked_at = time.monotonic()
            grants = await self.graph.limits.renew(uses)
            limiters.take(grants.values(), asked_at, asked=uses)
        for limiter in list(limiters):
            if limiter.blocked_until - asked_at > SHORT_BLOCK:
                self.queue.give_back(limiter)
                self.gate.put_off(limiter)
        self.gate.pump()

    async def save(self) -> None:
        """Save what was learned just before the end."""
        async with self.limiters.lock:
            await self._save_feedback()

    async def _save_feedback(self) -> None:
        answers = list(self.feedback.unsaved)
        if answers:
            await self.graph.limits.save_feedback(answers)
            del self.feedback.unsaved[: len(answers)]

    async def _pause(self) -> None:
        """Wait until something is needed here, somebody tells this worker, or it is time."""
        longest = self.limiters.next_renewal(self.active.unbegun())
        others = await either(self.limiters.wanted, self.graph.news.wait_for_own(longest))
        if not others.cancelled() and others.result():
            self.news.set()
            self.graph.job.hear()
