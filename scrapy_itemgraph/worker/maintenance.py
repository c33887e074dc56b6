"""What a worker does for its crawl every second or so, beside its own work."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.progress import Progress
from scrapy_itemgraph.worker.executions.execution import LegState

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Leg
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync
    from scrapy_itemgraph.worker.spider_start import SpiderStart

logger = logs.logger(__name__)

_LOOK_OUT = 0.15  # seconds between two looks for the dead, of who has nothing to do
# A crawl that many workers share is kept up by all of them, so each may do it more rarely.
_LONGEST = 10.0  # seconds between two rounds, or looks
_SWEEP_EVERY = 10.0  # seconds
_TELL_EVERY = 5.0  # seconds
# Of a worker that waits for work (ITEMGRAPH_IDLE), in seconds: between two rounds where nothing
# falls due earlier, the same where others may die, and between two looks at `spider.state`.
_WAITING, _WAITING_WITH_OTHERS, _STATE_OF_WAITING = 5.0, 2.0, 10.0
_SOON = 0.2  # seconds at least between two rounds of such a worker


@dataclass(slots=True, eq=False, repr=False)
class Maintenance:
    """Takes over from the dead, stages what fell due, and finds legs that nobody has.

    `start` says when `start()` has nothing more, and whether it raised; `news` is set when work
    came free. `waits`: ITEMGRAPH_IDLE is "wait".
    """

    graph: WorkerGraph
    active: ActiveExecutions
    crawler: Crawler
    sessions: SessionSync
    tallies: Tallies
    start: SpiderStart
    news: asyncio.Event
    waits: bool = False
    _was_waiting: bool = False  # at the last round
    _state_at: float = -math.inf
    _missed: set[Leg] = field(default_factory=set)
    _sweeping: Progress | None = None
    _staging: Progress | None = None
    _staged: int = 0
    _tell_at: float = -math.inf

    async def run(self) -> None:
        """Run until told to stop."""
        swept = time.monotonic()
        while True:
            if self._has_just_started:
                await self.graph.run.mark_started()
            has_more = await self._keep_up()
            if self.graph.depths.are_tracked:
                has_more = await self.graph.depths.relax() or has_more
            await self._say_how_far()
            if has_more:
                self.news.set()
                await asyncio.sleep(0)
                continue
            if await self.graph.callbacks.learn():
                self.news.set()
            if not self._is_waiting or time.monotonic() >= self._state_at:
                self._state_at = time.monotonic() + _STATE_OF_WAITING
                await self.sessions.refresh_state()
            if time.monotonic() - swept > _SWEEP_EVERY:
                swept = time.monotonic()
                self._sweep()
            await self.graph.duties.do_due()
            self.graph.notices.begin_if_due()
            await self._rest()

    async def _keep_up(self) -> bool:
        """Keep the crawl up, and tell every few seconds what the worker did; if there is more."""
        if time.monotonic() < self._tell_at:
            return await self.graph.upkeep.keep_up()
        self._tell_at = time.monotonic() + self._between(_TELL_EVERY)
        has_more = await self.graph.upkeep.keep_up(self.tallies.take())
        self.tallies.was_told()
        return has_more

    async def _say_how_far(self) -> None:
        """Log how far a long sweep is, and what fell due, now and then."""
        graph = self.graph
        if graph.upkeep.staged == self._staged:
            self._staging = None
        else:
            self._staging = self._staging or Progress("Staging what fell due", "items", _log)
            self._staging.reach(self._staging.done + graph.upkeep.staged - self._staged)
            self._staged = graph.upkeep.staged
        if not graph.upkeep.is_sweeping:
            if self._sweeping is not None and self._sweeping.has_said:
                _log("All items have what changed of the tasks")
            self._sweeping = None
            return
        if self._sweeping is None:
            self._sweeping = Progress("", "items", _log)
        if self._sweeping.is_due:
            for one in (await graph.reads.sweeps())[:1]:
                what = f"Bringing {one.change} to the items"
                if self._sweeping.what != what:
                    self._sweeping.what = what
                    self._sweeping.start_at(one.swept)
                self._sweeping.reach(one.swept, total=one.total)

    async def _rest(self) -> None:
        """Wait for the next round; who has nothing to do looks out for the dead all the time."""
        until = time.monotonic() + self._period()
        while (left := until - time.monotonic()) > 0 and not self._has_just_started:
            await asyncio.sleep(min(left, self._between(_LOOK_OUT)))
            if self._was_waiting and not self._is_waiting:
                return
            may_die = self.graph.upkeep.others_work or not self._was_waiting
            if self.active.is_quiet and may_die and await self.graph.upkeep.take_over():
                self.news.set()
            if self._was_waiting or not self.graph.depths.are_tracked:
                continue
            if await self.graph.depths.relax():
                self.news.set()

    @property
    def _is_waiting(self) -> bool:
        """Whether this worker has nothing to do, and waits for work without end."""
        return self.waits and self.start.has_ended and self.active.is_quiet

    def _period(self) -> float:
        """Return how long to wait for the next round.

        Of workers that wait the oldest keeps the crawl up. The others do so once after their last
        work, whose results may fall due soon, and seldom from then on.
        """
        upkeep, was_waiting = self.graph.upkeep, self._was_waiting
        self._was_waiting = self._is_waiting
        if not self._was_waiting:
            return self._between(upkeep.round_period)
        if was_waiting and not upkeep.is_first:
            return self._between(_WAITING)
        longest = self._between(_WAITING if upkeep.workers == 1 else _WAITING_WITH_OTHERS)
        return min(longest, max(_SOON, upkeep.next_due))

    @property
    def _has_just_started(self) -> bool:
        has_started = self.start.has_ended and self.start.error is None
        return has_started and not self.graph.run.is_start_told

    def _between(self, seconds: float) -> float:
        """Return how long to wait, where one of few workers waits so many seconds."""
        return min(seconds * self.graph.upkeep.crowd, _LONGEST)

    def _sweep(self) -> None:
        """Close legs whose request the engine no longer has; twice missed is forgotten."""
        engine = self.crawler.engine
        assert engine is not None
        scraping = engine.scraper.slot
        if scraping is None:
            return
        known = engine.downloader.active | scraping.active | {entry[1] for entry in scraping.queue}
        missed = {
            leg
            for execution in self.active.executions
            for leg in execution.legs
            if leg.state is LegState.RUNNING and leg.request not in known
        }
        forgotten, self._missed = missed & self._missed, missed
        for leg in forgotten:
            self.crawler.stats.inc_value("itemgraph/legs_forgotten")
            lost = ItemGraphError("Scrapy dropped the request without telling anyone")
            self.active.fail(leg.execution, lost, kind="forgotten", url=leg.request.url)
            leg.close()


def _log(line: str) -> None:
    logger.info("%s", line, extra={"action": "progress"})
