"""Has this process keep to other rules as soon as they are in force.

What it has claimed and not begun is given back, so that its next claim has it with the new rules.
What is under way keeps to its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class RuleChanges:
    """Waits for other rules; `news` is set when there may be work where there was none."""

    graph: WorkerGraph
    active: ActiveExecutions
    news: asyncio.Event

    async def run(self) -> None:
        """Look whenever others are in force, until told to stop."""
        while True:
            await self.graph.rules.wait_for_others()
            self.active.release_unbegun()
            self.news.set()
