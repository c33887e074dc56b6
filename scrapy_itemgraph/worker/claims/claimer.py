"""Takes work from the graph as it is needed."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.tools.async_tools import happens

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


class WorkNews(asyncio.Event):
    """Set when there may be work where there was none; `count` is how often that was.

    An answer of the database is about the count at the time of its question.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def set(self) -> None:
        """Tell that there may be work."""
        self.count += 1
        super().set()


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Claimer:
    """Keeps the scheduler's buffer of claimed work from running dry.

    Others set `news` when there may be work; only the claimer clears it.
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
    news: WorkNews
    _dry_at: int = -1  # `news.count` at the time of the last question that found no work
    _look_at: float = math.inf  # when to look again without news, by time.monotonic
    _found_at: float | None = None  # time.monotonic of the last answer that had work
    _waits_for_limits: bool = False  # as of the last answer
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
            self.wake()

    async def hear(self) -> None:
        """Pass on news of other processes, until told to stop."""
        while True:
            await self.graph.news.wait()
            self.news.set()

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
            if self._look_at <= time.monotonic():
                self._dry_at, self._look_at = -1, math.inf
            if await self._claim_suspect() or await self._claim():
                continue
            look_in = await self.no_work_left.look(
                lambda: self.is_dry,
                found_at=self._found_at,
                waits_for_limits=self._waits_for_limits,
            )
            if look_in is None:
                self._dry_at = -1
                continue
            self._look_again(look_in)
            await happens(
                self._wake, min(self._look_at - time.monotonic(), self._rest() or math.inf)
            )

    @property
    def is_dry(self) -> bool:
        """Whether the last question found no work, and there has been no news since."""
        return self._dry_at == self.news.count

    # Claims

    def _room(self) -> int:
        batch, unhanded = self.pace.batch, len(self.ready)
        if self.is_dry or unhanded > self.pace.enough or not self._is_running:
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
        self._look_at, asked_at = math.inf, self.news.count
        claims = await self._take(room)
        if not claims:
            self._dry_at = asked_at
        ran_dry = not (self.ready or self.hand_out.making) and len(claims) == room
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
        if not self.suspects.may_claim(is_dry=self.is_dry, is_running=self._is_running):
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
                rooms=limiters.rooms({} if alone else unbegun, self.pace.takes),
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
        self._waits_for_limits = soonest < math.inf or result.again_in is not None
        self._look_again(asked_at + soonest - time.monotonic())
        if result.again_in is not None:
            self._look_again(result.again_in)
        if result.claims:
            self._found_at = time.monotonic()
        return result.claims

    def _look_again(self, seconds: float) -> None:
        """Look again after so many seconds at the latest, whatever happens until then."""
        self._look_at = min(self._look_at, time.monotonic() + max(seconds, _SOON))
