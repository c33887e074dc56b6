"""The add-on: one line in a project's settings switches everything on."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.exceptions import NotConfigured
from scrapy.extensions import feedexport
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.misc import load_object

from scrapy_itemgraph import spiderloader
from scrapy_itemgraph.downloadermiddlewares import ItemGraphDownloaderMiddleware
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.extensions import ItemGraphExtension
from scrapy_itemgraph.feed_exports.exporter import FeedExporter
from scrapy_itemgraph.feed_exports.journal_exporter import JournalExporter
from scrapy_itemgraph.model.rates import LONGEST_GAP
from scrapy_itemgraph.pipelines import ItemGraphPipeline, read_rules
from scrapy_itemgraph.scheduler import Scheduler
from scrapy_itemgraph.settings import read_project, warn_of_unknown
from scrapy_itemgraph.spidermiddlewares import (
    EventLoopSpiderMiddleware,
    ItemGraphSpiderMiddleware,
    PreviewSpiderMiddleware,
    show_operations,
)
from scrapy_itemgraph.tools import logs, url_secrets, wording
from scrapy_itemgraph.worker import opening, scrapy_internals
from scrapy_itemgraph.worker.spider.crawl_names import keep_arguments, restore_name
from scrapy_itemgraph.worker.spider.job_arguments import check_feeds, check_reserved

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.settings import Settings

logger = logs.logger(__name__)

SCHEDULER = "scrapy_itemgraph.scheduler.Scheduler"
ROBOTS_PARSER = "scrapy_itemgraph.worker.downloads.robots.RobotParser"
KEPT_BY_QUEUE = "30d"  # how long scraped items of a queued crawl with feeds are kept
NEWEST_SCRAPY = (2, 19)  # that the tests run on
_ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
_FEED_EXPORTER = "scrapy.extensions.feedexport.FeedExporter"
_FIRST = -100
_LAST = 100_000
_COMPONENTS: tuple[tuple[str, type, int], ...] = (
    ("DOWNLOADER_MIDDLEWARES", ItemGraphDownloaderMiddleware, _FIRST),
    ("SPIDER_MIDDLEWARES", ItemGraphSpiderMiddleware, _FIRST),
    ("SPIDER_MIDDLEWARES", EventLoopSpiderMiddleware, _LAST),
    ("ITEM_PIPELINES", ItemGraphPipeline, _LAST),
    ("EXTENSIONS", ItemGraphExtension, _FIRST),
)


class RefusedError(ConfigurationError):
    """A start that the settings make impossible; its message has been logged."""


class _SaidAlready(logging.Filter):
    """Keeps asyncio from logging a refusal once more, as an exception that nobody retrieved."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop what is about a refusal."""
        return not (record.exc_info and isinstance(record.exc_info[1], RefusedError))


class _NoEngine:
    """Stands in for Scrapy's engine in a crawl that is refused: it ends at once."""

    running = False

    async def open_spider_async(self) -> None:
        """Open nothing."""

    async def start_async(self) -> None:
        """Start nothing."""

    async def close_async(self) -> None:
        """Close nothing."""


class Addon:
    """Installs the components of scrapy-itemgraph, overriding nothing that the user says."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the add-on of a crawler."""
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Have spiders of the package found by name, behind the project's own."""
        spiderloader.install(settings)

    def update_settings(self, settings: BaseSettings) -> None:
        """Install the components, or refuse the start with an error that says why."""
        is_looking = self._is_looking(settings)
        try:
            _take_from_runner(settings)
            if os.environ.get(opening.JOB):
                _keep_items_of_feeds(settings)
            given = read_project(settings)
            if not given.run.enabled:
                raise NotConfigured
            warn_of_unknown(settings)
            _warn_of_version(scrapy.version_info)
            if not is_looking:
                restore_name(self._crawler)
                arguments = scrapy_internals.given_arguments(self._crawler)
                if opening.runners_job() is not None:
                    check_reserved(self._crawler.spidercls, arguments or ())
                    feeds = [*settings.getdict("FEEDS"), settings.get("FEED_URI") or ""]
                    check_feeds(feeds, arguments or {})
                keep_arguments(self._crawler, arguments)
                self._install(settings, given)
        except ConfigurationError as error:
            self._refuse(str(error), goes_on=is_looking)
        if is_looking:
            show_operations()
            settings.setdefault_in_component_priority_dict(
                "SPIDER_MIDDLEWARES", PreviewSpiderMiddleware, _FIRST
            )

    def _refuse(self, message: str, *, goes_on: bool) -> None:
        """Say in one line what is wrong, and have Scrapy exit with 1, without another word.

        A command that only looks at pages goes on.
        """
        logs.error(logger, message, action="refused")
        if goes_on:
            return
        if scrapy_internals.is_of_process():
            # Nothing keeps Twisted from printing the error of a Deferred that nobody handles.
            scrapy_internals.make_engine_by(self._crawler, self._no_engine)
            return
        named = logging.getLogger("asyncio")
        if not any(isinstance(one, _SaidAlready) for one in named.filters):
            named.addFilter(_SaidAlready())
        self._crawler.spider = None  # or Scrapy 2.14 exits with 0
        raise RefusedError(message) from None

    def _no_engine(self) -> Any:
        self._crawler.spider = None  # Scrapy takes this for a failed start
        return _NoEngine()

    def _is_looking(self, settings: BaseSettings) -> bool:
        """Tell whether a command such as `scrapy parse` or `scrapy shell` only looks at pages."""
        start = getattr(self._crawler.spidercls, "start", None)
        module = getattr(start, "__module__", None) or ""
        priority = settings.getpriority("DUPEFILTER_CLASS")
        return module.startswith("scrapy.commands") or priority == SETTINGS_PRIORITIES["command"]

    def _install(self, settings: BaseSettings, given: Settings) -> None:
        settings.set("SCHEDULER", SCHEDULER, "addon")
        settings.set("ROBOTSTXT_PARSER", ROBOTS_PARSER, "addon")
        _check(settings)
        read_rules(given.scraped_items.items)
        for name, cls, order in _COMPONENTS:
            settings.setdefault_in_component_priority_dict(name, cls, order)
        _check_components(settings)
        ours = JournalExporter if given.scraped_items.keep_items else FeedExporter
        _take_feeds(settings, ours=ours)


def _take_from_runner(settings: BaseSettings) -> None:
    """Set what a runner says through the environment, which may be secret: names in a list."""
    for name in filter(None, os.environ.get("ITEMGRAPH_FROM_RUNNER", "").split(",")):
        settings.set(name, os.environ[name], "cmdline")


def _keep_items_of_feeds(settings: BaseSettings) -> None:
    """Have feeds of a queued crawl written from the journal: other hosts may go on with it."""
    uris = [str(uri) for uri in settings.getdict("FEEDS") if not str(uri).startswith("stdout:")]
    if not uris:
        return
    if settings.getpriority("ITEMGRAPH_KEEP_ITEMS") is None:
        settings.set("ITEMGRAPH_KEEP_ITEMS", KEPT_BY_QUEUE, "addon")
    elif not read_project(settings).scraped_items.keep_items:
        logger.warning(
            "ITEMGRAPH_KEEP_ITEMS is False, so each process of this crawl writes %s by itself, and "
            "each host has a part. Leave the setting out, and the host where the run ends writes "
            "all of it",
            ", ".join(url_secrets.without_login(uri) for uri in uris),
            extra={"action": "feeds_split"},
        )


def _warn_of_version(version: tuple[int | str, ...]) -> None:
    if version[:2] > NEWEST_SCRAPY:
        logger.warning(
            "Scrapy %s is newer than 2.14 to %s, which scrapy-itemgraph was tested with; "
            "what they changed may lack here",
            ".".join(map(str, version)),
            ".".join(map(str, NEWEST_SCRAPY)),
            extra={"action": "scrapy_untested"},
        )


def _check(settings: BaseSettings) -> None:
    if _loaded(settings, "SCHEDULER") is not Scheduler:
        raise ConfigurationError(
            f"SCHEDULER is {settings['SCHEDULER']!r} in this project, so the crawl would not be "
            "durable; remove it for scrapy-itemgraph, or set ITEMGRAPH_ENABLED = False"
        )
    if settings.get("JOBDIR"):
        raise ConfigurationError(
            f"JOBDIR is {settings['JOBDIR']!r}, but the item graph keeps the crawl's state; "
            "remove JOBDIR, or set ITEMGRAPH_ENABLED = False"
        )
    if settings.getbool("TWISTED_REACTOR_ENABLED", True) and (
        settings["TWISTED_REACTOR"] != _ASYNCIO_REACTOR
    ):
        raise ConfigurationError(
            f"TWISTED_REACTOR is {settings['TWISTED_REACTOR']!r}, but scrapy-itemgraph needs "
            f"asyncio: leave it out, or set it to {_ASYNCIO_REACTOR!r}"
        )
    _check_delays(settings)
    dupefilter = _loaded(settings, "DUPEFILTER_CLASS")
    if not (dupefilter is BaseDupeFilter or issubclass(dupefilter, RFPDupeFilter)):
        logger.warning(
            "DUPEFILTER_CLASS %s is not asked: requests are known by their fingerprints in the "
            "database (REQUEST_FINGERPRINTER_CLASS)",
            settings["DUPEFILTER_CLASS"],
            extra={"action": "dupefilter"},
        )


def _loaded(settings: BaseSettings, name: str) -> Any:
    try:
        return load_object(settings[name])
    except ImportError as error:
        raise ConfigurationError(
            f"{name} is {settings[name]!r}, which cannot be imported ({error}); remove it, for "
            "scrapy-itemgraph needs none"
        ) from None


def _check_delays(settings: BaseSettings) -> None:
    """Refuse a delay that would have a site wait for ever, which is a slip of units."""
    given = {"DOWNLOAD_DELAY": settings.getfloat("DOWNLOAD_DELAY")}
    for slot, options in settings.getdict("DOWNLOAD_SLOTS").items():
        given[f"DOWNLOAD_SLOTS[{slot!r}]['delay']"] = float(options.get("delay", 0))
    for name, delay in given.items():
        if not delay <= LONGEST_GAP:
            raise ConfigurationError(
                f"{name} is {delay:g} seconds, {wording.format_period(delay)}; write "
                f"seconds, up to {LONGEST_GAP:g} (a day)"
            )


def _take_feeds(settings: BaseSettings, *, ours: type[FeedExporter | JournalExporter]) -> None:
    """Put our feed exporter in the place of Scrapy's; a project's own is left."""
    given = {**settings.getdict("EXTENSIONS_BASE"), **settings.getdict("EXTENSIONS")}
    orders = {load_object(key): order for key, order in given.items()}
    own = [
        cls
        for cls, order in orders.items()
        if order is not None
        and isinstance(cls, type)
        and issubclass(cls, feedexport.FeedExporter)
        and cls not in {feedexport.FeedExporter, FeedExporter, JournalExporter}
    ]
    if own and settings.getdict("FEEDS"):
        logger.warning(
            "%s of this project writes its feeds itself: after a crash they may lack items whose "
            "pages are done, or have some twice; scrapy itemgraph export writes each once",
            ", ".join(cls.__name__ for cls in own),
            extra={"action": "feeds_own"},
        )
    order = orders.get(feedexport.FeedExporter)
    if order is not None and not {FeedExporter, JournalExporter} & orders.keys():
        theirs = {
            key: None
            for key in settings.getdict("EXTENSIONS")
            if load_object(key) is feedexport.FeedExporter
        } or {_FEED_EXPORTER: None}
        extensions = {**settings.getdict("EXTENSIONS"), **theirs, ours: order}
        settings.set("EXTENSIONS", extensions, settings.getpriority("EXTENSIONS") or 0)


def _check_components(settings: BaseSettings) -> None:
    for name, cls, _ in _COMPONENTS:
        for key, order in settings.getdict(name).items():
            if order is None and load_object(key) is cls:
                raise ConfigurationError(
                    f"{name} switches {cls.__name__} off, and scrapy-itemgraph works whole or not "
                    "at all; remove that line, or set ITEMGRAPH_ENABLED = False"
                )
