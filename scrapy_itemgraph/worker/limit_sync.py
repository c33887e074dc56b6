"""Keeps what this process has of limits as the database has it, and learns delays."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.model.types import SlotFeedback
from scrapy_itemgraph.throttle import feedback, local_slots
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker.worker import either

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_itemgraph.throttle.limiter import Lane
    from scrapy_itemgraph.worker.worker import Worker

logger = logs.logger(__name__)

# Work is not given back for a block that is over so soon, in seconds.
_SHORT = 5.0
# A slot whose delay changes lets nothing start before the database has answered, or for so long.
_UNTIL_SETTLED = 1.0


class LimitSync:
    """Tells and asks the database about limits, when there is something to tell or ask."""

    def __init__(self, worker: Worker, has_news: Callable[[], None]) -> None:
        self._worker = worker
        self._has_news = has_news
        self._need = asyncio.Event()
        worker.gate.on_need = self._need.set
        worker.gate.on_request = self._asked
        worker.gate.on_response = self._answered
        worker.on_robots = self._robots
        self._unsaved: list[SlotFeedback] = []
        self._crawl_delays: dict[str, float] = {}  # of hosts, and what they made of other slots
        settings = worker.crawler.settings
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"]

    async def run(self) -> None:
        """Keep limits until told to stop."""
        while True:
            self._need.clear()
            await self._settle()
            await self._pause()

    async def _settle(self) -> None:
        worker = self._worker
        async with worker.settling:
            await self._teach()
            unknown = worker.limiters.unidentified
            if unknown:
                names = [name for _, name in unknown]
                worker.limiters.identify(await worker.graph.limiting.number_slots(names))
            uses = worker.limiters.uses(worker.unbegun())
            asked_at = time.monotonic()
            grants = await worker.graph.limiting.renew(uses)
            worker.limiters.take(grants.values(), asked_at, asked=uses)
        for one in list(worker.limiters):
            if one.blocked_until - asked_at > _SHORT:
                worker.on_blocked(one)
        worker.gate.pump()

    async def save(self) -> None:
        """Save what was learned just before the end."""
        async with self._worker.settling:
            await self._teach()

    async def _teach(self) -> None:
        answers = list(self._unsaved)
        if answers:
            await self._worker.graph.limiting.save_feedback(answers)
            del self._unsaved[: len(answers)]

    # What sites answer

    def _asked(self, request: Request) -> None:
        """Have a slot that a spider names keep the delay that a host in it asks for."""
        host = urlparse_cached(request).hostname or ""
        slot = local_slots.slot_in_use(request)
        delay = self._crawl_delays.get(host, 0.0)
        limiter = self._worker.limiters.slot(slot)
        if limiter is None or slot == host:
            return
        if delay > max(self._crawl_delays.get(slot, 0.0), limiter.floor):
            self._crawl_delays[slot] = delay
            self._heed(SlotFeedback(slot=slot, crawl_delay=delay))

    def _answered(self, request: Request, response: Response, lane: Lane) -> None:
        """Learn from a response: how slow the site is, and whether it wants to be left alone."""
        latency = request.meta.get("download_latency")
        for one in lane:
            if one.is_throttled and one.throttle is not None and latency is not None:
                one.throttle = self._worker.throttle.adjusted(
                    one.throttle, latency, response.status
                )
        longest = self._worker.settings.max_retry_after
        answer = feedback.of_answer(request, response, longest)
        if answer is not None:
            self._heed(answer)

    def _robots(self, request: Request, response: Response) -> None:
        """Take up the delay that a robots.txt asks for."""
        agent = self._agent or (request.headers.get("User-Agent") or b"").decode("latin-1")
        longest = self._worker.settings.max_retry_after
        answer = feedback.of_robots(request, response, agent, longest)
        if answer is not None and self._worker.settings.learn_delays:
            self._crawl_delays[answer.slot] = answer.crawl_delay or 0.0
            self._heed(answer)

    def _heed(self, answer: SlotFeedback) -> None:
        """Keep at once to what a site asked for, and have it saved for all."""
        self._unsaved.append(answer)
        limiter = self._worker.limiters.slot(answer.slot)
        assert limiter is not None
        now = time.monotonic()
        if answer.blocked_for is not None:
            logger.info(
                "%s asks to be left alone for %s",
                answer.slot,
                wording.format_period(answer.blocked_for),
                extra={"action": "blocked"},
            )
            limiter.block(now + answer.blocked_for)
            self._worker.crawler.stats.inc_value("itemgraph/blocked")
            if answer.blocked_for > _SHORT:
                self._worker.on_blocked(limiter)
        elif answer.crawl_delay:
            limiter.block(now + _UNTIL_SETTLED)
        self._need.set()

    async def _pause(self) -> None:
        """Wait until something is needed here, somebody tells this worker, or it is time."""
        worker = self._worker
        longest = worker.limiters.next_settling(worker.unbegun())
        others = await either(self._need, worker.graph.wait_for_own_news(longest))
        if not others.cancelled() and others.result():
            self._has_news()
