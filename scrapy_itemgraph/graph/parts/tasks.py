"""`graph.tasks`: the tasks that the crawl knows, as spiders declared them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.store.admin import crawl_changes, status
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Tasks:
    """Shows tasks, stops and resumes their work, and recomputes when their results expire."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def enable(self, task: str) -> None:
        """Let a task's work be claimed again."""
        self._transactions.of_task(task, partial(stored_tasks.set_enabled, enabled=True))

    def disable(self, task: str) -> None:
        """Leave a task's work unclaimed until it is enabled."""
        self._transactions.of_task(task, partial(stored_tasks.set_enabled, enabled=False))

    def recompute_ttl(self, task: str) -> int:
        """Recompute when a task's results expire, by its present time to live.

        Results whose time to live was set by an operation keep it. Return how many results changed;
        the next run makes the work that follows.
        """
        return self._transactions.of_task(task, crawl_changes.recompute_ttl)

    def list(self) -> list[status.TaskState]:
        """Return every task with what is done, waiting and failed of it."""
        return self._transactions.of_crawl(status.tasks)
