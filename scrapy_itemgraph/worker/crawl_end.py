"""What ends a crawl: nothing is left to do, or an error that it cannot go on with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, ItemGraphError
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from scrapy.crawler import Crawler

logger = logs.logger(__name__)

ERROR_REASON = "itemgraph_error"
GONE_REASON = "itemgraph_database_gone"


@dataclass(slots=True, eq=False, repr=False)
class CrawlEnd:
    """Says when a crawl is over, and runs tasks beside it whose errors end it.

    `failure` is the message of the error that ended it, `is_cut_off` tells that the database is
    gone. `stop_reason` is why it ends that was told to, with work left. `is_closing` tells that the
    spider closes, whoever closes it.
    """

    crawler: Crawler
    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str | None = None
    is_cut_off: bool = False
    stop_reason: str | None = None
    is_closing: bool = False
    _closing: asyncio.Future[None] | None = None

    def fail(self, message: str) -> None:
        """End the crawl because of an error that it cannot go on with."""
        if self.failure is not None:
            return
        self.failure = message
        logs.error(logger, message, action="crawl_failed")
        self.over.set()

    def stop(self, reason: str) -> None:
        """End the crawl in this process because it was told to; its work is left to others."""
        self.stop_reason = reason
        self.over.set()
        self.close_spider()

    @property
    def is_early(self) -> bool:
        """Whether the crawl ends here before its work does: it failed, or was told to stop."""
        return self.failure is not None or self.stop_reason is not None

    def start_task(self, duty: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start what its starter ends; an error in it ends the crawl."""
        return asyncio.create_task(self.guard(duty))

    async def guard(self, duty: Coroutine[Any, Any, None]) -> None:
        """Await something; an error in it ends the crawl."""
        try:
            await duty
        except ItemGraphError as error:
            self.is_cut_off = isinstance(error, DatabaseUnavailableError)
            self.fail(str(error))
            self.close_spider()
        except Exception as error:
            logger.exception("itemgraph: the crawl cannot go on")
            self.fail(f"unexpected {type(error).__name__}: {error}")
            self.close_spider()

    def close_spider(self) -> None:
        """Close the spider because of the failure, or because it was told to stop."""
        engine = self.crawler.engine
        if self._closing is not None:
            return
        # Before the scraper is open Scrapy cannot close; then `process_start` does it.
        if engine is not None and engine.spider is not None and engine.scraper.slot is not None:
            closing = engine.close_spider_async(reason=self._reason)
            self._closing = asyncio.ensure_future(closing)

    @property
    def _reason(self) -> str:
        if self.failure is None and self.stop_reason is not None:
            return self.stop_reason
        return GONE_REASON if self.is_cut_off else ERROR_REASON
