"""What a worker does for its crawl every second, beside its own work."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.progress import Progress
from scrapy_itemgraph.worker.executions.executions import LegState

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.worker.executions.executions import Leg
    from scrapy_itemgraph.worker.worker import Worker

logger = logs.logger(__name__)

_EVERY = 1.0
_LOOK_OUT = 0.15
_SWEEP_EVERY = 10.0
_PRUNE_EVERY = 600.0


class Maintenance:
    """Takes over from the dead, stages what fell due, and finds legs that nobody has."""

    def __init__(self, worker: Worker, has_news: Callable[[], None]) -> None:
        self._worker = worker
        self._has_news = has_news
        self._missed: set[Leg] = set()
        self._sweeping: Progress | None = None
        self._staging: Progress | None = None
        self._staged = 0

    async def run(self) -> None:
        """Run until told to stop."""
        swept = time.monotonic()
        pruned = -math.inf
        is_marked = False
        while True:
            if self._worker.has_started and not is_marked:
                is_marked = True
                await self._worker.graph.mark_started()
            has_more = await self._worker.graph.tend()
            await self._say_how_far()
            if has_more:
                self._has_news()
                await asyncio.sleep(0)
                continue
            if await self._worker.graph.learn_callbacks():
                self._has_news()
            await self._worker.refresh_state()
            if time.monotonic() - swept > _SWEEP_EVERY:
                swept = time.monotonic()
                self._sweep()
            is_due = time.monotonic() - pruned > _PRUNE_EVERY
            if is_due and not await self._worker.graph.pruning.step():
                pruned = time.monotonic()
            await self._rest()

    async def _say_how_far(self) -> None:
        """Log how far a long sweep is, and what fell due, now and then."""
        graph = self._worker.graph
        if graph.staged == self._staged:
            self._staging = None
        else:
            self._staging = self._staging or Progress("Staging what fell due", "items", _log)
            self._staging.reach(self._staging.done + graph.staged - self._staged)
            self._staged = graph.staged
        if not graph.is_sweeping:
            if self._sweeping is not None and self._sweeping.has_said:
                _log("All items have what changed of the tasks")
            self._sweeping = None
            return
        if self._sweeping is None:
            self._sweeping = Progress("", "items", _log)
        if self._sweeping.is_due:
            for one in (await graph.sweeps())[:1]:
                what = f"Bringing {one.change} to the items"
                if self._sweeping.what != what:
                    self._sweeping.what = what
                    self._sweeping.start_at(one.swept)
                self._sweeping.reach(one.swept, total=one.total)

    async def _rest(self) -> None:
        """Wait for the next round; who has nothing to do looks out for the dead all the time."""
        until = time.monotonic() + _EVERY
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_OUT))
            if self._worker.is_quiet and await self._worker.graph.take_over():
                self._has_news()

    def _sweep(self) -> None:
        """Close legs whose request the engine no longer has; twice missed is forgotten."""
        worker = self._worker
        engine = worker.crawler.engine
        scraping = engine.scraper.slot
        if scraping is None:
            return
        known = engine.downloader.active | scraping.active | {entry[1] for entry in scraping.queue}
        missed = {
            leg
            for execution in worker.executions
            for leg in execution.legs
            if leg.state is LegState.RUNNING and leg.request not in known
        }
        forgotten, self._missed = missed & self._missed, missed
        for leg in forgotten:
            worker.crawler.stats.inc_value("itemgraph/legs_forgotten")
            lost = ItemGraphError("Scrapy dropped the request without telling anyone")
            leg.execution.fail(
                worker.error_of(leg.execution, lost, kind="forgotten", url=leg.request.url)
            )
            leg.close()


def _log(line: str) -> None:
    logger.info("%s", line, extra={"action": "progress"})
