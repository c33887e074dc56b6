"""The extension: listens to what reaches no middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import CloseSpider

from scrapy_itemgraph.tools import gc_tuning, logs
from scrapy_itemgraph.worker import worker as workers
from scrapy_itemgraph.worker.executions.execution import current_leg

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from twisted.python.failure import Failure

    from scrapy_itemgraph.worker.worker import Worker

logger = logs.logger(__name__)


class ItemGraphExtension:
    """Fails executions whose item broke a pipeline, and tunes the process while the crawl runs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._has_tuned = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the extension of a crawler."""
        worker = workers.of(crawler)
        extension = cls(worker)
        crawler.signals.connect(extension.item_error, signal=signals.item_error)
        if worker.settings.run.tune_gc:
            crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.engine_stopped, signal=signals.engine_stopped)
        return extension

    def item_error(self, failure: Failure) -> None:
        """Fail the execution that scraped the item."""
        leg = current_leg.get()
        if leg is not None and failure.value is not None:
            outputs = self._worker.parts.spider_output
            # Scrapy closes no spider for a pipeline that raises CloseSpider.
            fails = outputs.failed_by if isinstance(failure.value, CloseSpider) else outputs.broke
            fails(leg, failure.value)

    def spider_opened(self) -> None:
        """Tune Python's collector for the time of the crawl."""
        self._has_tuned = True
        if gc_tuning.tune():
            logger.debug(
                "Python collects garbage more rarely while crawls run (ITEMGRAPH_TUNE_GC)",
                extra={"action": "gc_tuned"},
            )

    def engine_stopped(self) -> None:
        """Make the process's exit code tell that the crawl could not go on."""
        if self._has_tuned:
            gc_tuning.restore()
        if self._worker.failure is not None:
            self._worker.crawler.spider = None  # Scrapy takes this for a failed start
