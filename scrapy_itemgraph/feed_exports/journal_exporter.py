"""Scrapy's feed exporter, whose feeds are written from the journal: each item once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.extensions import feedexport

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.feed_exports.exporter import warn_of_fresh, with_crawl
from scrapy_itemgraph.feed_exports.storages import FileFeedStorage
from scrapy_itemgraph.feed_exports.writers import LineWriter, WholeWriter, Writer, goes_on
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import happens
from scrapy_itemgraph.tools.url_secrets import without_login
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker import worker as workers

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

logger = logs.logger(__name__)

_EVERY = 1.0
_MOST_ROUNDS = 100
_BETWEEN = 0.05


class JournalExporter(scrapy_internals.OpenFeedExporter):
    """Scrapy's, with the journal in the place of the signal that an item was scraped."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the exporter of a crawler."""
        exporter = cls(crawler)
        crawler.signals.connect(exporter.open_spider, signals.spider_opened)
        crawler.signals.connect(exporter.close_spider, signals.spider_closed)
        return exporter

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        for scheme, storage in self.storages.items():
            if storage is feedexport.FileFeedStorage:
                self.storages[scheme] = FileFeedStorage
        self._worker = workers.of(crawler)
        self._worker.before_closing(self._finish)
        self._writers: list[Writer] = []
        self._is_stopping = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def open_spider(self, spider: Spider) -> None:  # type: ignore[override] # noqa: ARG002
        """Take part in writing the crawl's feeds."""
        if self._worker.failure is not None:
            return
        graph = self._worker.graph.feeds
        try:
            states = await graph.register([without_login(template) for template in self.feeds])
        except ItemGraphError as error:
            self._worker.fail(str(error))
            return
        new = []
        for (template, options), state in zip(self.feeds.items(), states, strict=True):
            slot = self.new_slot(template, 1, self.uri(template, 1), options)
            kind = LineWriter if goes_on(slot) else WholeWriter
            self._writers.append(kind(self, graph, state.id, slot))
            new += [slot] if state.is_new else []
        await warn_of_fresh(graph, new, self._worker.settings)
        self._writing = self._worker.base.end.start_task(self._run())

    async def close_spider(self, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's signature
        """Say that all feeds are closed; what was written is stored before the graph closes."""
        await self.crawler.signals.send_catch_log_async(signals.feed_exporter_closed)

    def uri_params(self, spider: Spider, function: Any, before: Any) -> dict[str, Any]:
        """Return what fills a URI's template: with `crawl` what Scrapy has."""
        return with_crawl(self._worker, super().uri_params(spider, function, before))

    def uri(self, template: str, batch: int) -> str:
        """Return the URI of a batch, filled in by what this process knows."""
        before: Any = SimpleNamespace(batch_id=batch - 1)  # what Scrapy counts a batch from
        options = self.feeds[template]
        params = self.uri_params(self._worker.spider, options["uri_params"], before)
        return scrapy_internals.fill_uri(template, params)

    def new_slot(self, template: str, batch: int, uri: str, options: dict[str, Any]) -> FeedSlot:
        """Return Scrapy's slot for a batch of a feed."""
        return self.start_batch(
            batch_id=batch,
            uri=uri,
            feed_options=options,
            spider=self._worker.spider,
            uri_template=template,
        )

    async def close_slot(self, slot: FeedSlot) -> bool:
        """Store what a slot has, and tell who listens; whether that could be done."""
        failures = f"feedexport/failed_count/{type(slot.storage).__name__}"
        before = self.crawler.stats.get_value(failures, 0)
        await self.end_batch(slot, self._worker.spider)
        return bool(self.crawler.stats.get_value(failures, 0) == before)

    async def _run(self) -> None:
        """Write what comes, until told to stop."""
        while not self._is_stopping.is_set():
            if not await self._round():
                await happens(self._is_stopping, _EVERY)

    async def _round(self) -> bool:
        """Write a step of each feed that nobody else writes; whether there may be more."""
        led = await self._worker.graph.feeds.led()
        more = False
        for writer in self._writers:
            if writer.id not in led:
                writer.lose()
            more |= await self._step(writer)
        return more

    async def _step(self, writer: Writer) -> bool:
        """Write a step of a feed; one whose exporter cannot be had is left to the next start."""
        if writer.is_broken or not await writer.lead():
            return False
        try:
            return await writer.step()
        except ItemGraphError:
            raise
        except Exception:  # of an exporter, a storage, or a handler of signals
            writer.is_broken = True
            logger.exception(
                "A feed cannot be written; its items are kept, and the next start tries again",
                extra={"action": "feed_failed"},
            )
            return False

    async def _finish(self) -> None:
        """Write the rest, and let others go on; whoever ends last has written all."""
        self._is_stopping.set()
        if self._writing is None:
            return
        await self._writing
        if self._worker.failure is None:
            try:
                await self._write_the_rest()
            except ItemGraphError:
                raise
            except Exception:  # of a storage, or a handler of signals
                logger.exception("Feeds were not written to their end; the next start does it")
        await self._release()

    async def _write_the_rest(self) -> None:
        graph = self._worker.graph.feeds
        for _ in range(_MOST_ROUNDS):
            while await self._round():
                pass
            for writer in self._writers:
                if not writer.is_broken and await writer.lead():
                    await writer.finish()
            await self._release()
            # Who ended meanwhile left theirs to us, for the lock was ours.
            left = [
                writer
                for writer in self._writers
                if not (writer.has_failed or writer.is_broken)
                and await graph.count(writer.id, 1)
                and await graph.is_free(writer.id)
            ]
            if not left:
                return
            await asyncio.sleep(_BETWEEN)
        logger.warning(
            "Items of this crawl are not in its feeds yet; the next start writes them",
            extra={"action": "feeds_behind"},
        )

    async def _release(self) -> None:
        for writer in self._writers:
            writer.lose()
        await self._worker.graph.feeds.release()
