"""Links that are known, filtered next to the callback that yields them.

Of a link that is known already nothing is left but a count. So spider middlewares need not give it
a referer and a depth, where none but Scrapy's own would see it and nobody hears of duplicates.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrapy import Request

from scrapy_itemgraph.worker.executions.execution import LEG
from scrapy_itemgraph.worker.spider.validation import TTL

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.execution import Execution
    from scrapy_itemgraph.worker.spider.duplicates import Duplicates
    from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds

_OWN, _SCRAPYS = "scrapy_itemgraph.", "scrapy."
_MEANINGFUL = (LEG, TTL, "depth_reset")  # in a request's meta: somebody has to look at it


class EarlyFilter:
    """Filters plain links of plain callbacks."""

    def __init__(
        self,
        crawler: Crawler,
        identities: RequestIds,
        duplicates: Duplicates,
        enqueuer: Enqueuer,
        *,
        has_tasks: bool,
    ) -> None:
        self._crawler = crawler
        self._identities = identities
        self._duplicates = duplicates
        self._enqueuer = enqueuer
        self._has_tasks = has_tasks

    def is_open(self, execution: Execution) -> bool:
        """Whether links of an execution are filtered."""
        if execution.is_of_task or execution.is_login:
            return False  # its requests are its own
        return self._are_middlewares_scrapys and self._duplicates.are_only_counted

    @cached_property
    def _are_middlewares_scrapys(self) -> bool:
        settings = self._crawler.settings
        if self._has_tasks:  # a request to a task is an error, known or not
            return False
        if settings.getint("DEPTH_LIMIT") or settings.getbool("DEPTH_STATS_VERBOSE"):
            return False
        middlewares: list[Any] = list(self._crawler.engine.scraper.spidermw.middlewares)
        return all(type(one).__module__.startswith((_OWN, _SCRAPYS)) for one in middlewares)

    def is_known(self, output: Any, execution: Execution) -> bool:
        """Tell whether an output is a link of which nothing but its count is left."""
        if (
            type(output) is not Request
            or output.dont_filter
            or not self._identities.is_plain(output)
        ):
            return False
        if any(name in output.meta for name in _MEANINGFUL):
            return False
        if not self._enqueuer.is_known(self._identities.name(output), execution):
            return False
        execution.count_output()
        return True

    def count(self, number: int, response: Response) -> None:
        """Count the links of a response that were filtered, as Scrapy does."""
        stats = self._crawler.stats
        assert stats is not None
        stats.inc_value("dupefilter/filtered", number)
        stats.max_value("request_depth_max", response.meta.get("depth", 0) + 1)
