"""Takes work from the graph as it is needed."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.tools.async_tools import either

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.claims.claim_pace import ClaimPace
    from scrapy_itemgraph.worker.claims.hand_out import HandOut
    from scrapy_itemgraph.worker.claims.no_work_left import NoWorkLeft
    from scrapy_itemgraph.worker.claims.suspects import Suspects
    from scrapy_itemgraph.worker.downloads.delay_gate import Gate
    from scrapy_itemgraph.worker.downloads.downloader_slots import DownloaderSlots
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests

_SOON = 0.005  # seconds at least between two claims
_MOST_HELD_UP = 500  # executions beside the usual at most, while blocked slots hold them up


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Claimer:
    """Keeps the scheduler's buffer of claimed work from running dry.

    `news` is set by others when there may be work where there was none, and cleared here alone.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    ready: ReadyRequests
    outbox: Outbox
    limiters: Limiters
    slots: DownloaderSlots
    gate: Gate
    crawler: Crawler
    pace: ClaimPace
    suspects: Suspects
    hand_out: HandOut
    no_work_left: NoWorkLeft
    news: asyncio.Event
    _is_dry: bool = False
    _again_at: float = math.inf  # a moment of time.monotonic
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Look again, if there is something to claim, or the end is near."""
        if self.ready.is_holding or self.active.is_quiet or (not self._rest() and self._room() > 0):
            self._wake.set()

    async def listen(self) -> None:
        """Look again whenever there may be work where there was none, until told to stop."""
        while True:
            await self.news.wait()
            self.news.clear()
            self._is_dry = False
            self.wake()

    async def watch_room(self) -> None:
        """Look again whenever an execution ended, until told to stop."""
        while True:
            await self.active.room.wait()
            self.active.room.clear()
            self.wake()

    async def run(self) -> None:
        """Claim until told to stop."""
        while True:
            self._wake.clear()
            if await self._claim_suspect() or await self._claim():
                continue
            timeout = await self.no_work_left.look(
                is_dry=self._is_dry, has_claimed=bool(self.hand_out.begun)
            )
            if timeout is None:
                self._is_dry = False
                continue
            again_in = max(_SOON, self._again_at - time.monotonic())
            await self._pause(min(timeout, again_in, self._rest() or math.inf))
            if self._again_at <= time.monotonic():
                self._again_at = math.inf

    @property
    def is_dry(self) -> bool:
        """Whether no work was found, as far as is known."""
        return self._is_dry

    # Claims

    def _room(self) -> int:
        batch, unhanded = self.pace.batch, len(self.ready)
        if self._is_dry or unhanded > self.pace.enough or not self._is_running:
            return 0
        if self.ready.is_holding:
            return 0
        if any(work.claim is not None and work.claim.is_alone for work in self.active.working):
            return 0
        held = len(self.active.working) + self.outbox.excess
        if self.gate.held_up:  # pages in hand may be waiting for something of a blocked slot
            scraping = sum(execution.is_scraping for execution in self.active.working)
            held -= min(scraping, _MOST_HELD_UP)
        gone = min(unhanded, self.pace.meanwhile)  # before the answer is there
        most = self.crawler.settings.getint("CONCURRENT_REQUESTS") + batch
        return min(batch - unhanded, most - held) + gone

    def _rest(self) -> float:
        """Return in how many seconds to claim again; 0 for at once."""
        return self.pace.due_in(len(self.ready), time.monotonic())

    @property
    def _is_running(self) -> bool:
        engine = self.crawler.engine
        return engine is not None and engine.running and not self.active.is_stopping

    async def _claim(self) -> bool:
        room = self._room()
        if room <= 0 or self._rest():
            return False
        self._again_at = math.inf
        claims = await self._take(room)
        self._is_dry = not claims
        ran_dry = not self.ready and len(claims) == room
        await self._start(claims)
        self.pace.claimed(
            len(self.ready),
            self.ready.handed_out,
            time.monotonic(),
            ran_dry=ran_dry,
            crowd=self.graph.upkeep.crowd,
        )
        if not claims and self.active.is_quiet:
            self.graph.upkeep.suspects_wait = True  # if not, it is soon known
            return await self._claim_suspect()
        return bool(claims)

    async def _claim_suspect(self) -> bool:
        """Claim one piece of work that must run alone, if it is its turn; whether there was one."""
        if not self.suspects.may_claim(is_dry=self._is_dry, is_running=self._is_running):
            return False
        claims = await self._take(1, alone=True)
        await self._start(claims)
        self.suspects.claimed(has_found=bool(claims))
        return bool(claims)

    async def _start(self, claims: Sequence[Claim]) -> None:
        """Begin the executions of new claims, and see to the limits that they want."""
        await self.hand_out.start(claims)
        if self.active.is_stopping:  # since it was claimed
            self.active.release_unbegun()
        unbegun = self.active.unbegun()
        if self.limiters.lacks(unbegun):
            self.limiters.wanted.set()
        self._look_again(self.limiters.soonest_room(unbegun))

    async def _take(self, most: int, *, alone: bool = False) -> Sequence[Claim]:
        """Claim what the limits in hand, and those that can be had, let start soon."""
        async with self.limiters.lock:
            limiters = self.limiters
            asked_at, unbegun = time.monotonic(), self.active.unbegun()
            # As of now: with the answer a limit may have room that the claim passed over.
            soonest = limiters.soonest_room(unbegun)
            # Beside what runs alone nothing starts, whatever waits.
            budget = ClaimBudget(
                most=most,
                alone=alone,
                rooms=limiters.rooms({} if alone else unbegun),
                shared=limiters.shared,
                slot_terms=self.slots.all_terms(),
                in_flight=self.ready.begin_claim(),
            )
            try:
                result = await self.graph.claims.claim(budget)
            except BaseException:
                self.ready.end_claim()
                raise
            limiters.take(result.grants, asked_at)
            self.pace.answered(time.monotonic() - asked_at)
        self._look_again(asked_at + soonest - time.monotonic())
        if result.again_in is not None:
            self._look_again(result.again_in)
        return result.claims

    def _look_again(self, seconds: float) -> None:
        """Look again after so many seconds at the latest."""
        self._again_at = min(self._again_at, time.monotonic() + seconds)

    async def _pause(self, longest: float) -> None:
        """Wait until there is something to look at: our own doing, a NOTIFY, or the time."""
        others = await either(self._wake, self.graph.news.wait(longest))
        if not others.cancelled():
            others.result()
            self._is_dry = False
