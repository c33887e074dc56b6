"""Pruning in a crawl: one worker at a time deletes what nobody needs, a step in a transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.store import pruning
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.settings import Settings

logger = logs.logger(__name__)


class WorkerPruning:
    """Prunes the whole database, and of queues those of one crawl."""

    def __init__(self, transactions: Transactions, crawl_id: int, settings: Settings) -> None:
        self._call = transactions.call
        self._crawl_id = crawl_id
        self._keeps = settings.scraped_items.keep_items

    async def step(self) -> bool:
        """Delete at most a step of each table; return whether there is more of one."""
        pruned = {rule.table: await self._call(pruning.prune, rule) for rule in pruning.RULES}
        pruned["cookies"] += await self._call(pruning.prune_surplus)
        pruned["queues"] = await self._call(pruning.prune_queues, self._crawl_id)
        if isinstance(self._keeps, timedelta):
            pruned["journal"] = await self._call(pruning.prune_journal, self._crawl_id, self._keeps)
        found = ", ".join(f"{number} {table}" for table, number in pruned.items() if number)
        if found:
            logger.debug("Pruned %s", found, extra={"action": "pruned"})
        return any(number >= pruning.STEP for number in pruned.values())
