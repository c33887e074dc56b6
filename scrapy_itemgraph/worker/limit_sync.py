"""Keeps what this process has of limits as the database has it, and saves what sites answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.throttle.feedback import SHORT_BLOCK
from scrapy_itemgraph.worker.worker import either

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.worker.worker import Worker


class LimitSync:
    """Tells and asks the database about limits, when there is something to tell or ask."""

    def __init__(self, worker: Worker, has_news: Callable[[], None]) -> None:
        self._worker = worker
        self._has_news = has_news

    async def run(self) -> None:
        """Keep limits until told to stop."""
        while True:
            self._worker.limiters.wanted.clear()
            await self._settle()
            await self._pause()

    async def _settle(self) -> None:
        worker = self._worker
        async with worker.settling:
            await self._save_feedback()
            unknown = worker.limiters.unidentified
            if unknown:
                names = [name for _, name in unknown]
                worker.limiters.identify(await worker.graph.limiting.number_slots(names))
            uses = worker.limiters.uses(worker.unbegun())
            asked_at = time.monotonic()
            grants = await worker.graph.limiting.renew(uses)
            worker.limiters.take(grants.values(), asked_at, asked=uses)
        for one in list(worker.limiters):
            if one.blocked_until - asked_at > SHORT_BLOCK:
                worker.on_blocked(one)
        worker.gate.pump()

    async def save(self) -> None:
        """Save what was learned just before the end."""
        async with self._worker.settling:
            await self._save_feedback()

    async def _save_feedback(self) -> None:
        answers = list(self._worker.feedback.unsaved)
        if answers:
            await self._worker.graph.limiting.save_feedback(answers)
            del self._worker.feedback.unsaved[: len(answers)]

    async def _pause(self) -> None:
        """Wait until something is needed here, somebody tells this worker, or it is time."""
        worker = self._worker
        longest = worker.limiters.next_settling(worker.unbegun())
        others = await either(worker.limiters.wanted, worker.graph.wait_for_own_news(longest))
        if not others.cancelled() and others.result():
            self._has_news()
