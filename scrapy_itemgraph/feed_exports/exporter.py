"""Scrapy's feed exporter, whose feeds lose nothing that is committed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exporters import CsvItemExporter, JsonLinesItemExporter
from scrapy.extensions import feedexport

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.feed_exports import torn_lines
from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.url_secrets import without_login
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker import worker as workers

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

    from scrapy_itemgraph.feed_exports.torn_lines import Mended
    from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.worker.worker import Worker

logger = logs.logger(__name__)

_LINE_EXPORTERS = (JsonLinesItemExporter, CsvItemExporter)
_COMPRESSED = {"gz", "bz2", "xz", "lzma", "zst"}
_DIALECT = {
    "delimiter",
    "dialect",
    "doublequote",
    "escapechar",
    "lineterminator",
    "quotechar",
    "quoting",
    "skipinitialspace",
}


class FeedExporter(scrapy_internals.OpenFeedExporter):
    """Scrapy's, whose files of lines have what is scraped before its commit."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._has_unflushed = False
        self._closing: set[asyncio.Task[None]] = set()
        self._worker = workers.of(crawler)
        self._worker.before_commit(self._flush)

    def uri_params(self, spider: Spider, function: Any, before: Any) -> dict[str, Any]:
        """Return what fills a URI's template: with `crawl` what Scrapy has."""
        return with_crawl(self._worker, super().uri_params(spider, function, before))

    async def open_spider(self, spider: Spider) -> None:  # type: ignore[override]
        """Open the feeds, and mend the files that are appended to."""
        super().open_spider(spider)
        await self._keep_what_the_run_has()
        for slot in self.slots:
            path = appended_to(slot)
            if path is not None:
                adopt(slot, path, await asyncio.to_thread(mended, slot, path))
        unsafe = [without_login(slot.uri) for slot in self.slots if not is_of_lines(slot)]
        if unsafe:
            logger.warning(
                "After a crash %s may lack items whose pages are done, for only local files of "
                "lines (jsonlines, csv; without post-processing) can be written before each "
                "commit; ITEMGRAPH_KEEP_ITEMS = True has any feed written from the database, each "
                "item once",
                ", ".join(unsafe),
                extra={"action": "feeds_unsafe"},
            )

    async def _keep_what_the_run_has(self) -> None:
        """Overwrite a file of lines when a run begins, and within it append."""
        slots = [one for one in self.slots if one.feed_options.get("overwrite")]
        if not slots or self._worker.failure is not None:
            return
        graph = self._worker.graph.feeds
        try:
            states = await graph.register([without_login(slot.uri_template) for slot in slots])
            new = [slot for slot, state in zip(slots, states, strict=True) if state.is_new]
            await warn_of_fresh(graph, new, self._worker.settings)
        except ItemGraphError as error:
            self._worker.fail(str(error))
            return
        for slot in slots:
            if slot not in new and is_of_lines(slot):
                slot.feed_options = self.feeds[slot.uri_template] = {
                    **slot.feed_options,
                    "overwrite": False,
                }
                slot.storage = self.storage_of(slot.uri, slot.feed_options)

    def item_scraped(self, item: Any, spider: Spider) -> None:
        """Write an item to the feeds."""
        self._has_unflushed = True
        super().item_scraped(item, spider)

    def start_batch(self, *args: Any, **options: Any) -> FeedSlot:
        """Return the slot of a batch; a file that it goes on with is mended."""
        slot = super().start_batch(*args, **options)
        if self._worker.is_continued:
            slot = self._beside(slot, options)
        path = appended_to(slot)
        if path is not None and slot.batch_id > 1:  # the first one's is done in a thread
            adopt(slot, path, mended(slot, path))
        return slot

    def _beside(self, slot: FeedSlot, options: dict[str, Any]) -> FeedSlot:
        """Return the slot of a run that goes on after its end, which replaces no whole feed."""
        if is_of_lines(slot):
            kept = {**slot.feed_options, "overwrite": False}
            self.feeds[slot.uri_template] = kept
            return super().start_batch(**{**options, "feed_options": kept})
        if isinstance(slot.storage, feedexport.StdoutFeedStorage):
            return slot
        uri = continued_uri(slot.uri)
        level = logging.DEBUG if self._worker.graph.run.is_over else logging.WARNING
        logger.log(
            level,
            "%s would be overwritten with what is scraped from now on alone, for this run goes on "
            "after its end; that is written to %s. ITEMGRAPH_KEEP_ITEMS = True has the whole feed "
            "written anew",
            without_login(slot.uri),
            without_login(uri),
            extra={"action": "feed_beside"},
        )
        slot = super().start_batch(**{**options, "uri": uri})
        slot.store_empty = False
        return slot

    def end_batch(self, slot: FeedSlot, spider: Spider) -> Coroutine[Any, Any, None]:
        """Close a feed at once, where Scrapy 2.14 waits for the end of the crawl."""
        closing = asyncio.create_task(super().end_batch(slot, spider))
        if is_of_lines(slot):
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return _awaited(closing)

    async def _flush(self) -> None:
        """Give the system what was scraped, so that it outlives this process."""
        if not self._has_unflushed:
            return
        self._has_unflushed = False
        for slot in self.slots:
            if slot.file is not None and is_of_lines(slot):
                try:
                    slot.file.flush()
                except OSError as error:
                    self._has_unflushed = True
                    raise ItemGraphError(
                        f"The feed {without_login(slot.uri)} cannot be written: {error}. What it "
                        "lacks is not committed; make room, and start again"
                    ) from error
        if self._closing:
            await asyncio.wait(self._closing)


def with_crawl(worker: Worker, params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of a feed's URI, with the crawl's name unless there is such a parameter.

    Where the graph could not be opened nothing is written.
    """
    if worker.failure is not None:
        return {"crawl": "", **params}
    return {"crawl": crawl_arguments.as_path_part(worker.graph.crawl), **params}


def continued_uri(uri: str) -> str:
    """Return where to write beside a feed: `out/items.continued.json.gz`.

    Of a local file it is one that is not there yet.
    """
    before, slash, name = uri.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if ending in _COMPRESSED and "." in stem:
        stem, _, format_ = stem.rpartition(".")
        ending = f"{format_}.{ending}"
    if not dot or not stem:
        stem, dot, ending = name, "", ""
    number = 1
    while True:
        mark = "continued" if number == 1 else f"continued-{number}"
        found = f"{before}{slash}{stem}.{mark}{dot}{ending}"
        if not Path(found.removeprefix("file://")).exists():
            return found
        number += 1


async def _awaited(task: asyncio.Task[None]) -> None:
    await task


async def warn_of_fresh(graph: WorkerFeeds, slots: Sequence[FeedSlot], settings: Settings) -> None:
    """Warn of files that will be overwritten with less than what the crawl has."""
    paths = [
        without_login(slot.uri)
        for slot in slots
        if slot.feed_options.get("overwrite")
        and isinstance(slot.storage, feedexport.FileFeedStorage)
        and _has_content(Path(slot.storage.path))
    ]
    if paths and await graph.has_fresh(callbacks=settings.results.incremental_callbacks):
        logger.warning(
            "%s will hold only what is scraped from now on, for it is overwritten (-O) and results "
            "that are fresh are not made again. -o appends; scrapy itemgraph export -O writes all "
            "that ITEMGRAPH_KEEP_ITEMS kept; scrapy itemgraph expire or restart has pages fetched "
            "again",
            ", ".join(paths),
            extra={"action": "feeds_overwritten"},
        )


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def is_of_lines(slot: FeedSlot) -> bool:
    """Tell whether a feed is a local file, or standard output, that stands line by line."""
    storage = type(slot.storage)
    is_local = (
        issubclass(storage, feedexport.FileFeedStorage)
        and storage.open is feedexport.FileFeedStorage.open
    ) or storage is feedexport.StdoutFeedStorage
    return is_local and has_lines(slot)


def has_lines(slot: FeedSlot) -> bool:
    """Tell whether the feed's format is one of lines that stand for themselves."""
    exporter = slot.exporters[slot.format]
    return "postprocessing" not in slot.feed_options and any(
        issubclass(exporter, one)
        and exporter.start_exporting is one.start_exporting
        and exporter.finish_exporting is one.finish_exporting
        for one in _LINE_EXPORTERS
    )


def is_csv(slot: FeedSlot) -> bool:
    """Tell whether the feed has a line of headers."""
    return issubclass(slot.exporters[slot.format], CsvItemExporter)


def appended_to(slot: FeedSlot) -> Path | None:
    """Return the file of lines that a feed goes on with, if there is one."""
    if not is_of_lines(slot) or slot.feed_options.get("overwrite"):
        return None
    path = Path(getattr(slot.storage, "path", ""))
    return path if _has_content(path) else None


def mended(slot: FeedSlot, path: Path) -> Mended:
    """End a line that a process did not come to the end of; there need be no file."""
    if not path.exists():
        return torn_lines.Mended()
    given = slot.feed_options["item_export_kwargs"]
    encoding = slot.feed_options["encoding"]
    if not is_csv(slot):
        return torn_lines.mend_json(path, encoding)
    dialect = {name: given[name] for name in _DIALECT & given.keys()}
    return torn_lines.mend_csv(path, encoding, dialect=dialect)


def adopt(slot: FeedSlot, path: Path, mended: Mended) -> None:
    """Go on with a file: a table keeps its columns, and gets no second line of headers."""
    if mended.removed:
        logger.warning(
            "%s ended in the middle of an item, of which %d bytes were removed",
            path,
            mended.removed,
            extra={"action": "feed_mended"},
        )
    given = slot.feed_options["item_export_kwargs"]
    if not is_csv(slot) or not given.get("include_headers_line", True):
        return
    if not path.stat().st_size:
        return
    declared = slot.feed_options["fields"]
    columns = tuple(declared.values() if isinstance(declared, dict) else declared or ())
    if declared and mended.header and columns != mended.header:
        logger.warning(
            "%s has the columns %s, and gets rows of %s (FEED_EXPORT_FIELDS); write to another "
            "file, or with -O",
            path,
            ", ".join(mended.header),
            ", ".join(columns),
            extra={"action": "feed_columns"},
        )
    slot.feed_options = {
        **slot.feed_options,
        "item_export_kwargs": {**given, "include_headers_line": False},
        "fields": declared or (None if mended.header is None else list(mended.header)),
    }
