"""Feeds: scraped items that were kept, written by Scrapy's own exporters and feed storages."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured, UsageError
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.extensions.postprocessing import PostProcessingManager
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import (
    feed_complete_default_values_from_settings,
    feed_process_params_from_cli,
)
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.python import without_none_values
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.feed_exports import scraped
from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.serialize import classes, json_values
from scrapy_itemgraph.tools import logs, url_secrets
from scrapy_itemgraph.tools.path_parts import path_part
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import IO

    from scrapy.exporters import BaseItemExporter
    from scrapy.settings import BaseSettings, Settings

    from scrapy_itemgraph.model.feed_exports import Kept

logger = logs.logger(__name__)

STDOUT = "stdout"
_PLACEHOLDER = re.compile(r"%\((\w+)\)[-+ #0]*\d*[a-z]")
_BATCH = re.compile(r"%\(batch_(?:time|id)\)")


def read(settings: BaseSettings, output: Sequence[str], overwrite: Sequence[str]) -> dict[str, Any]:
    """Return the options of each feed by its URI as `scrapy crawl` does, or raise a UsageError."""
    if output and overwrite:
        raise UsageError("give either -o, which appends, or -O, which overwrites")
    if not output and not overwrite:
        raise UsageError("say where to, with -o FILE or -O FILE")
    bare = settings.copy()
    bare.set("FEEDS", {}, "cmdline")
    declared = {
        str(uri.absolute()) if isinstance(uri, Path) else str(uri): dict(options)
        for uri, options in settings.getdict("FEEDS").items()
    }
    chosen: dict[str, Any] = {}
    for one in output or overwrite:
        found = {one: {}} if one in declared else feed_process_params_from_cli(bare, [one])
        for uri, options in found.items():
            chosen[uri] = {**declared.get(uri, {}), **options}
            chosen[uri].setdefault("format", Path(uri).suffix.removeprefix("."))
            if overwrite:
                chosen[uri]["overwrite"] = True
            if "item_filter" in chosen[uri]:
                raise UsageError(
                    f"FEEDS[{uri!r}] has an item_filter, which sees the spider's own items; "
                    "give another FILE, and --item-class"
                )
    return chosen


def is_stdout(uri: str) -> bool:
    """Tell whether a feed goes to standard output."""
    return urlsplit(uri).scheme == STDOUT


def crawler_of(settings: BaseSettings, crawl: str) -> Crawler:
    """Return a crawler that crawls nothing, for the parts of Scrapy that ask for one."""
    crawler = Crawler(Spider, cast("Settings", settings.copy()))
    crawler.stats = load_object(crawler.settings["STATS_CLASS"])(crawler)
    crawler.spider = Spider.from_crawler(crawler, name=crawl)
    return crawler


def load_classes(settings: BaseSettings, allowed: Iterable[str]) -> None:
    """Load the project's spiders, and with them the classes of what they scrape.

    What was kept names classes, and imports none.
    """
    classes.load_modules(allowed)
    try:
        get_spider_loader(settings)
    except Exception as error:  # noqa: BLE001 - the modules are the user's, and run now
        logger.warning(
            "The project's spiders cannot be loaded, so the order and the serializers of its "
            "items' fields may be lost: %s: %s",
            type(error).__name__,
            error,
        )


class Feed:
    """One feed; its file is opened for the first item, or at the end for an empty feed."""

    def __init__(self, crawler: Crawler, template: str, options: dict[str, Any]) -> None:
        self.count = 0
        self._crawler = crawler
        self._template = template
        self._options = feed_complete_default_values_from_settings(options, crawler.settings)
        self._accepted = tuple(load_object(one) for one in options.get("item_classes") or ())
        self._size = self._options["batch_item_count"] if _BATCH.search(template) else 0
        self._batch = 1
        self._exporter: BaseItemExporter | None = None
        self._file: Any = None
        self.uri = self._filled()
        self._storage = self._build_storage()
        self._exporter_class = self._component("FEED_EXPORTERS", self.format)

    @property
    def format(self) -> str:
        """The feed's format."""
        return str(self._options["format"])

    @property
    def name(self) -> str:
        """What people may read of the URI."""
        return url_secrets.without_login(self.uri)

    def write(self, kept: Kept) -> None:
        """Write an item, unless the feed is for others."""
        if self._accepted and not _is_one_of(kept.item_class, self._accepted):
            return
        try:
            if self._exporter is None:
                self._open()
            assert self._exporter is not None
            cls, fields = scraped.class_of(kept.item_class), json_values.load(kept.fields)
            self._exporter.export_item(scraped.declared(cls, fields))
        except OSError:
            raise
        except Exception as error:
            raise ItemGraphError(
                f"{self.name}: {kept.item_class} no. {kept.number} cannot be written as "
                f"{self.format}: {type(error).__name__}: {error}; the feed is not complete"
            ) from error
        self.count += 1
        if self._size and self.count % self._size == 0:
            self._store()
            self._batch += 1
            self.uri = self._filled()
            self._storage = self._build_storage()

    def close(self) -> None:
        """Write the end, and store it where it goes."""
        if self._exporter is None:
            if self.count or not self._options["store_empty"]:
                return
            self._open()
        self._store()

    def abandon(self) -> None:
        """Leave a feed as it is, if it is not stored yet: what was written stays."""
        file, self._file = self._file, None
        if isinstance(file, PostProcessingManager):
            file = file.file
        if file is not None and file is not sys.stdout.buffer:
            with suppress(OSError):
                file.close()

    def _open(self) -> None:
        self._file = self._storage.open(self._crawler.spider)
        if "postprocessing" in self._options:
            plugins = self._options["postprocessing"]
            self._file = PostProcessingManager(plugins, self._file, self._options)
        exporter: BaseItemExporter = build_from_crawler(
            self._exporter_class,
            self._crawler,
            self._file,
            fields_to_export=self._options["fields"],
            encoding=self._options["encoding"],
            indent=self._options["indent"],
            **self._options["item_export_kwargs"],
        )
        exporter.start_exporting()
        self._exporter = exporter

    def _store(self) -> None:
        assert self._exporter is not None
        try:
            self._exporter.finish_exporting()
            self._exporter = None
            if isinstance(self._file, PostProcessingManager):
                self._file.close()
                self._file = self._file.file
            self._store_file(self._file)
            self._file = None
        except (OSError, ItemGraphError):
            raise
        except Exception as error:  # whatever a client of some storage raises
            raise ItemGraphError(
                f"{self.name} was not stored: {type(error).__name__}: {error}"
            ) from error

    def _store_file(self, file: IO[bytes]) -> None:
        if isinstance(self._storage, BlockingFeedStorage):
            scrapy_internals.store_file(self._storage, file)
            return
        stored = self._storage.store(file)
        if isinstance(stored, Deferred):
            results: list[Any] = []
            stored.addBoth(results.append)
            if not results:
                raise ItemGraphError(
                    f"{self.name}: {type(self._storage).__name__} stores only within a crawl; "
                    "export to a file, and copy that"
                )
            if isinstance(results[0], Failure):
                results[0].raiseException()
        elif inspect.isawaitable(stored):
            asyncio.run(_awaited(stored))

    def _build_storage(self) -> Any:
        scheme = urlsplit(self.uri).scheme or "file"
        try:
            cls = self._component("FEED_STORAGES", scheme)
            return build_from_crawler(cls, self._crawler, self.uri, feed_options=self._options)
        except (NotConfigured, ImportError, ValueError) as error:
            raise ItemGraphError(f"{self.name} cannot be used: {error}") from None

    def _component(self, setting: str, name: str) -> Any:
        known = without_none_values(self._crawler.settings.getwithbase(setting))
        if name not in known:
            raise UsageError(f"{setting} has no {name!r}; there are {', '.join(sorted(known))}")
        return load_object(known[name])

    def _filled(self) -> str:
        spider = self._crawler.spider
        assert spider is not None
        now = datetime.now(UTC)
        known: dict[str, Any] = {
            "name": path_part(spider.name),
            "crawl": crawl_arguments.as_path_part(spider.name),
            "time": now.replace(microsecond=0).isoformat().replace(":", "-"),
            "batch_time": now.isoformat().replace(":", "-"),
            "batch_id": self._batch,
        }
        if self._options["uri_params"]:
            function: Callable[..., Any] = load_object(self._options["uri_params"])
            known = function(known, spider) or known
        try:
            return _PLACEHOLDER.sub(lambda match: match[0] % known, self._template)
        except KeyError as error:
            raise UsageError(
                f"{self._template}: %({error.args[0]})s is not known; there are {', '.join(known)}"
            ) from None


async def _awaited(stored: Any) -> None:
    await stored


def _is_one_of(item_class: str, accepted: tuple[type, ...]) -> bool:
    cls = scraped.class_of(item_class)
    if cls is None:
        raise ItemGraphError(
            f"no module that the spiders import has the class {item_class}, so the feed's "
            "item_classes say nothing of its items; name its module in ITEMGRAPH_ALLOWED_MODULES, "
            "or give another FILE, and --item-class"
        )
    return issubclass(cls, accepted)
