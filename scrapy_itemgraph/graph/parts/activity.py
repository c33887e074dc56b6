"""`graph.activity`: what is done in a crawl, by the minute and by worker."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.store import latencies
from scrapy_itemgraph.store.admin import activity, status, totals

if TYPE_CHECKING:
    from datetime import datetime

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.store.latencies import SlotLatencies, TaskLatencies

_AN_HOUR = timedelta(hours=1)


class Activity:
    """Lists what workers did, lately and in all, the workers, and other long work."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def minutes(self, period: timedelta = _AN_HOUR) -> list[activity.TaskMinute]:
        """Return what executions of each task did in each minute of a period up to now."""
        return self._transactions.of_crawl(activity.minutes, period)

    def seconds(self, since: datetime) -> list[activity.SecondOfCrawl]:
        """Return what was done in each second since a moment.

        It looks at the last 10,000 attempts of the database, and as many items of the crawl; where
        these do not go back that far it returns nothing.
        """
        return self._transactions.of_crawl(activity.seconds, since)

    def totals(self) -> list[totals.TaskTotals]:
        """Return all that was done of each task of the crawl since it began, or was restarted."""
        return self._transactions.of_crawl(totals.totals)

    def latencies(self) -> list[TaskLatencies]:
        """Return in how many seconds the requests of each task were answered, where that is kept.

        It is so with ITEMGRAPH_KEEP_PAGES, since the crawl began or was restarted.
        """
        return self._transactions.of_crawl(latencies.of_tasks)

    def slot_latencies(self) -> list[SlotLatencies]:
        """Return the same of the 100 busiest slots, of all crawls, that answered in an hour."""
        return self._transactions.call(latencies.of_slots)

    def requests(self, period: timedelta = _AN_HOUR) -> list[activity.LimitMinute]:
        """Return how many requests started under each limit in each minute, of all crawls."""
        return self._transactions.call(partial(activity.requests, period=period))

    def workers(self, *, stopped: int = 20) -> list[activity.WorkerState]:
        """Return the crawl's workers: all that have not stopped, and the last that have."""
        return self._transactions.of_crawl(activity.workers, stopped=stopped)

    def going_on(self) -> dict[str, Any]:
        """Return long work of any process, as `sweeps`, `under_way` and `old_snapshot`."""
        return self._transactions.of_crawl(status.going_on)

    def announce(self, what: str, done: int, total: int | None = None) -> None:
        """Let `status` show how far long work has come, in the transactions of the next calls."""
        self._transactions.announce(what, done, total)
