"""Callbacks that run for long, and requests of theirs that wait for their end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution

logger = logs.logger(__name__)

LONG = 30.0  # seconds of a running callback
_EVERY = 5.0  # seconds between two looks


@dataclass(slots=True, eq=False, repr=False)
class WaitingRequests:
    """Warns of callbacks that may be waiting for requests that they have yielded themselves.

    What a callback yields is committed when it ends. One that waits for one of its requests waits
    for ever.
    """

    active: ActiveExecutions
    _since: dict[Execution, float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)  # names of callbacks

    async def run(self) -> None:
        """Look until told to stop."""
        while True:
            await asyncio.sleep(_EVERY)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Look at what runs, and say once of each callback that its requests wait."""
        waiting = [
            one
            for one in self.active.working
            if one.claim is not None and not one.is_of_task and one.discovered and one.is_scraping
        ]
        self._since = {one: self._since.get(one, now) for one in waiting}
        for one, since in self._since.items():
            if now - since >= LONG and one.claim is not None and one.claim.task not in self._said:
                self._said.add(one.claim.task)
                logger.warning(
                    "%s has run for at least %.0f seconds, and %d requests that it has yielded "
                    "wait for its end: they are committed with it. If it waits for one of them, "
                    "it waits for ever: use `await self.crawler.engine.download_async(request)`, "
                    "or go on in the callback of that request",
                    one.where,
                    now - since,
                    len(one.discovered),
                    extra={"action": "requests_wait"},
                )
