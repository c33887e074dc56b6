"""The end of a run: when nothing is left to do, and what is said while there is nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.spider_start import SpiderStart

logger = logs.logger(__name__)

_POLL = {"close": 1.0, "wait": 5.0}  # seconds without news, by ITEMGRAPH_IDLE
_LOOK_AGAIN = 0.05  # seconds
_OVERLOOKED_AFTER = 5.0  # seconds in which work may be claimed, and claims find none
_LONGEST_POLL = 10.0  # where many workers share the crawl


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class NoWorkLeft:
    """Finds that nothing is left of a run, and sets `over`; `idle` is ITEMGRAPH_IDLE.

    `warn_of_empty_start` is called where there was nothing to do, and `start()` yielded nothing.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    queue: EngineRequests
    start: SpiderStart
    over: asyncio.Event
    idle: str
    warn_of_empty_start: Callable[[], None]
    has_said_idle: bool = False
    _has_warned: bool = False
    _claimable_since: float | None = None  # time.monotonic of the first look that found work

    async def look(
        self, is_dry: Callable[[], bool], *, found_at: float | None, waits_for_limits: bool
    ) -> float | None:
        """Return how many seconds to wait before looking again; None where work came meanwhile.

        `is_dry` tells whether the last question found no work and no news came since, `found_at`
        when a question last found some, `waits_for_limits` that limits may have hidden some from
        the last one.
        """
        active = self.active
        poll = min(_POLL[self.idle] * self.graph.upkeep.crowd, _LONGEST_POLL)
        is_idle = self.start.has_ended and active.is_quiet and is_dry()
        if not is_idle or active.is_over or active.is_stopping:
            return poll
        if await self.graph.callbacks.learn() or not is_dry():
            return None
        remaining = await self.graph.run.remaining()
        if found_at is None and not (self.has_said_idle or remaining.has_some):
            self.has_said_idle = True
            await self._say_why_idle()
        if not (active.is_quiet and is_dry() and self.start.has_ended):
            return poll
        if remaining.is_over:
            # Now Scrapy asks whether the spider may close, and again whenever it has been kept.
            active.is_over = True
            self.over.set()
            self.queue.wake_engine()
            return poll
        if remaining.claimable and not (remaining.claimed or waits_for_limits):
            self._warn_if_overlooked(found_at)
        else:
            self._claimable_since = None
        return poll if remaining.next_retry is None else min(poll, max(remaining.next_retry, 0.05))

    def _warn_if_overlooked(self, found_at: float | None) -> None:
        """Warn, once, where claims have not found for some time what nobody and no limit holds."""
        now = time.monotonic()
        self._claimable_since = max(self._claimable_since or now, found_at or 0.0)
        if now - self._claimable_since >= _OVERLOOKED_AFTER and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Pages that may be fetched have waited for %.0f s, and no claim finds them; the "
                "worker goes on looking. Please report it, with the output of scrapy itemgraph "
                "status and scrapy itemgraph explain",
                _OVERLOOKED_AFTER,
                extra={"action": "overlooked"},
            )

    async def end_run(self) -> None:
        """Note that the run is over, unless others have work of it by now; the spider is closed."""
        run = self.graph.run
        await run.mark_started()
        while not await run.finish():  # others commit just now, which may bring more work
            await asyncio.sleep(_LOOK_AGAIN)
            if not (await run.remaining()).is_over:
                return

    async def _say_why_idle(self) -> None:
        """Say that there is nothing to do, why, and what would change that."""
        logger.info("Nothing to do now", extra={"action": "idle"})
        if not (self.start.has_yielded or self.start.error or self.idle == "wait"):
            self.warn_of_empty_start()
        await log_summary(self.graph)
        logger.info(
            "To run what is fresh: another version= of its task (of a plain callback in "
            "ITEMGRAPH_CALLBACKS), a ttl, scrapy itemgraph expire ID, or for all of it scrapy "
            "itemgraph restart CRAWL; to add work: seeds, or scrapy itemgraph add",
            extra={"action": "idle"},
        )


async def warn_of_fresh_lists(graph: WorkerGraph, incremental: Collection[str] | None) -> None:
    """Warn of a run that found nothing since its lists are fresh for ever, and say what helps.

    `incremental` are the callbacks whose pages stay done from run to run; None: all.
    """
    if graph.run.number < 2 or incremental == []:  # noqa: PLR2004 - the first one has all to find
        return
    found = await graph.reads.fresh_lists(graph.run.number)
    names = [one for one in found if incremental is None or one in incremental]
    if names:
        options = ", ".join(f'"{name}": {{"ttl": "1h"}}' for name in names)
        logger.warning(
            "This run found nothing new: pages of %s yield requests alone, are done, and never "
            "fetched again. Where new links appear on them, give them a time to live: "
            "ITEMGRAPH_CALLBACKS = {%s}. What is done already gets it at the next start and by %s",
            ", ".join(names),
            options,
            "; ".join(f"scrapy itemgraph set-ttl --task {name} --recompute" for name in names),
            extra={"action": "fresh_lists"},
        )


async def log_summary(graph: WorkerGraph) -> None:
    """Log what the crawl has and what is left, and why."""
    for line in (await graph.reads.summary()).lines():
        logger.info("%s", line, extra={"action": "summary"})
