"""Calls about what is being done: by the minute, by whom."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from scrapy_itemgraph.graph.crawl_transactions import Calls
from scrapy_itemgraph.store.admin import activity

_AN_HOUR = timedelta(hours=1)


class ActivityCalls(Calls):
    """Shows what workers did lately, and the workers themselves."""

    def minutes(self, period: timedelta = _AN_HOUR) -> list[activity.TaskMinute]:
        """Return what executions of each task did in each minute of a period up to now."""
        return self._of_crawl(activity.minutes, period)

    def requests(self, period: timedelta = _AN_HOUR) -> list[activity.LimitMinute]:
        """Return how many requests started under each limit in each minute, of all crawls."""
        return self._call(partial(activity.requests, period=period))

    def workers(self, *, stopped: int = 20) -> list[activity.WorkerState]:
        """Return the crawl's workers: all that have not stopped, and the last that have."""
        return self._of_crawl(activity.workers, stopped=stopped)
