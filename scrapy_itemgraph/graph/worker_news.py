"""News for a worker: work that came free in its crawl, and what concerns it alone."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from scrapy_itemgraph.store import notify

if TYPE_CHECKING:
    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.graph.worker_upkeep import WorkerUpkeep


class WorkerNews:
    """What the session of a worker hears."""

    def __init__(self, process: OwnProcess, crawl_id: int, upkeep: WorkerUpkeep) -> None:
        self._of_crawl = process.session.subscribe(notify.of_crawl(crawl_id))
        self._own = process.own_news()
        self._upkeep = upkeep

    async def wait(self) -> None:
        """Wait for news of the crawl.

        News are for all, and often for few: of many workers each is woken now and then only.
        """
        while await self._of_crawl.wait(math.inf):
            if random.random() * self._upkeep.crowd < 1:
                return

    async def wait_for_own(self, timeout: float) -> bool:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news for this very worker, `timeout` seconds at most; whether there were."""
        return await self._own.wait(timeout)
