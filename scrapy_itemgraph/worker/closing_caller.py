"""Who closes the spider: its own code, which ends the run, or somebody else, who leaves it open.

The caller decides, and never the reason's text. The spider's own code is what raises CloseSpider in
a callback, an errback or `start()`, or calls the engine from a method of the spider, an item
pipeline or a spider middleware. Limits, other extensions, signals, consoles and shutdowns are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.python.failure import Failure

from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

    from scrapy import Spider

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.graph.worker_parts import WorkerRun
    from scrapy_itemgraph.worker.crawl_end import CrawlEnd
    from scrapy_itemgraph.worker.spider_start import SpiderStart

logger = logs.logger(__name__)

_AT_A_PAGE = (
    "scrapy.core.scraper",
    "scrapy.core.spidermw",
    "scrapy.middleware",
    "scrapy.pipelines",
    "scrapy_itemgraph.spidermiddlewares",
    "scrapy_itemgraph.worker.spider.spider_output",
)
"""Modules that call callbacks, spider middlewares and item pipelines."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class ClosingCaller:
    """Learns that the spider closes, and by whom; `ends_run`: the spider's own word ends the run.

    `is_by_spider`: its own code closes it.
    """

    graph: WorkerGraph
    spider: Spider
    start: SpiderStart
    end: CrawlEnd
    ends_run: bool
    is_by_spider: bool = False
    _engine: Any = None
    _ended_run: asyncio.Task[None] | None = None

    def stand_before(self, engine: Any) -> None:
        """Hear of the engine that it closes the spider, before it does."""
        self._engine = engine
        scrapy_internals.before_closing(engine, self._begins)

    async def settled(self) -> None:
        """Wait until the end of the run is noted, where the spider ends it."""
        if self._ended_run is not None:
            await self._ended_run

    def _begins(self, reason: str, caller: FrameType | None) -> None:
        if self.end.is_closing:
            return
        self.end.is_closing = True
        self.is_by_spider = not self.end.is_early and is_of_spider(caller, self.spider)
        if self.is_by_spider and self.ends_run:
            self._ended_run = self.end.start_task(self.graph.run.close(reason))
        if not self.start.has_ended:
            scrapy_internals.cancel_start(self._engine)


def say_end(run: WorkerRun, reason: str) -> None:
    """Say of a run that its spider has closed whether the next start goes on with it."""
    if run.is_closed:
        line = (
            f"The spider closed itself ({reason}), so run {run.number} is over: the next start "
            "begins a new run. What it left is fetched when a page of a later run links to it "
            "(scrapy itemgraph pages list --left, unleave). With ITEMGRAPH_CLOSE_ENDS_RUN = False "
            "the next start goes on with the run"
        )
    else:
        line = (
            f"The spider closed itself ({reason}); the next start goes on with what run "
            f"{run.number} has left (ITEMGRAPH_CLOSE_ENDS_RUN = False)"
        )
    logger.info("%s", line, extra={"action": "spider_closed"})


def is_of_spider(caller: FrameType | None, spider: Spider) -> bool:
    """Tell whether the code that closes the spider is its own, by who has called that code."""
    frame = caller
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if _is_method_of(frame, spider):
            return True
        if module == "scrapy.core.scraper" and function == "handle_spider_error":
            return not _is_failed_download(frame)
        if module == "scrapy.core.engine" and function != "close_spider":
            return function == "_process_start_next"
        if module.startswith(_AT_A_PAGE):
            return True
        if module.startswith(("scrapy.", "pydispatch.", "scrapy_itemgraph.")) and (
            module != "scrapy.core.engine"
        ):
            return False
        frame = frame.f_back
    return False


def _is_method_of(frame: FrameType, spider: Spider) -> bool:
    """Tell whether a frame is of a method of the spider, or of a function within one."""
    names = ("self", *frame.f_code.co_varnames[: frame.f_code.co_argcount][:1])
    found = frame.f_locals
    return any(found.get(name) is spider for name in names)


def _is_failed_download(frame: FrameType) -> bool:
    """Tell whether CloseSpider is how a download failed, and no errback has raised it."""
    response, raised = (frame.f_locals.get(name) for name in ("response", "_failure"))
    return isinstance(response, Failure) and response.value is getattr(raised, "value", None)
