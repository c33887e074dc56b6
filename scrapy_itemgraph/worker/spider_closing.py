"""Hears what Scrapy decides about the end of the spider: it stays open, or closes, and why.

The spider is idle when nothing of the run is left. Scrapy then asks the handlers of `spider_idle`,
and any of them may refuse. Until Scrapy closes the spider nothing here ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import DontCloseSpider

from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.crawl_end import CrawlEnd
    from scrapy_itemgraph.worker.downloads.delay_gate import Gate


@dataclass(slots=True, eq=False, repr=False, kw_only=True, weakref_slot=True)
class SpiderClosing:
    """Follows the closing of a spider.

    `is_idle_end`: Scrapy closed it because nothing was left and nobody refused. With `waits`
    (ITEMGRAPH_IDLE = "wait") this one refuses.
    """

    crawler: Crawler
    graph: WorkerGraph
    gate: Gate
    end: CrawlEnd
    waits: bool
    is_idle_end: bool = False
    _is_asking: bool = False  # Scrapy sends `spider_idle` just now
    _is_closing: bool = False

    def stand_before(self, engine: Any) -> None:
        """Take the place of the method by which an engine closes its spider."""
        scrapy_internals.around_closing(engine, self._close)
        self.crawler.signals.connect(self._asked, signals.spider_idle)

    def _asked(self) -> None:
        """Take note that Scrapy asks; if nobody refuses, it closes before the loop turns."""
        self._is_asking = True
        asyncio.get_running_loop().call_soon(self._answered)
        if self.waits:
            raise DontCloseSpider

    def _answered(self) -> None:
        self._is_asking = False

    def _close(self, close: Callable[..., Awaitable[None]], **reason: Any) -> Awaitable[None]:
        if not self._is_closing:
            self._is_closing = True
            self.is_idle_end = self._is_asking
        if self.end.is_early or not self._engine_runs:
            self.hurry()
        return close(**reason)

    @property
    def _engine_runs(self) -> bool:
        return self.crawler.engine is not None and self.crawler.engine.running

    def hurry(self) -> None:
        """Begin nothing that would have to wait for long: the process stops with work left."""
        self.gate.close()
        self.graph.hurry()
