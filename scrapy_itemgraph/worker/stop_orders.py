"""Has this process stop where people, or its runner, want that: paused, aborted, cancelled.

What has not begun is given back at once, what is under way comes to its end, and the spider closes
for the reason that was given. However a process was started, it obeys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.jobs import StopOrder
    from scrapy_itemgraph.worker.crawl_end import CrawlEnd
    from scrapy_itemgraph.worker.downloads.delay_gate import Gate
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions

logger = logs.logger(__name__)

_POLL, _SHORT_POLL = 5.0, 1.0  # seconds; the short one behind a pooler, where nobody is told
_LAST_START = 0.5  # seconds after the order in which what is under way may send a request


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class StopOrders:
    """Asks whether this process is to stop, and stops it."""

    graph: WorkerGraph
    active: ActiveExecutions
    gate: Gate
    end: CrawlEnd

    async def run(self) -> None:
        """Look whenever there is news, until told to stop."""
        while not await self.look():
            is_told = self.graph.process.session.has_session
            await self.graph.job.wait(_POLL if is_told else _SHORT_POLL)

    async def look(self) -> bool:
        """Stop if that is wanted; tell whether it is."""
        order = await self.graph.job.look()
        if order is not None:
            self._obey(order)
        return order is not None

    def _obey(self, order: StopOrder) -> None:
        logger.info(
            "%s. This process gives back what it has not begun, and ends",
            order.sentence,
            extra={"action": order.reason},
        )
        self.active.stop()
        self.gate.close(last_start_in=_LAST_START)
        self.end.stop(order.reason)
