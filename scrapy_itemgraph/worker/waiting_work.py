"""How much work waits, for who asks the scheduler: `len(scheduler)`, `scheduler.dqs`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import WorkerGraph

_EVERY = 1.0  # seconds between two counts


@dataclass(slots=True, eq=False, repr=False)
class WaitingWork:
    """Counts what waits in the database, up to 100,000, for as long as somebody asks.

    `len()` answers at once with what was counted last, and has it counted anew.
    """

    graph: WorkerGraph
    _counted: int = 0
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        self._asked.set()
        return self._counted

    async def run(self) -> None:
        """Count until told to stop."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._counted = await self.graph.reads.count_waiting()
            await asyncio.sleep(_EVERY)
