"""Which crawl a spider is of: by what it was started with, or as ITEMGRAPH_CRAWL says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.hiding import hidden

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logs.logger(__name__)

_OF_CRAWLER = "_itemgraph_arguments"  # on the crawler, from the add-on for the worker


def keep_arguments(crawler: Crawler, given: Mapping[str, Any] | None) -> None:
    """Keep what a crawler was started with, secrets by their variables; None: it is not known."""
    kept = given and {
        name: hidden(value) if isinstance(value, str) else value for name, value in given.items()
    }
    setattr(crawler, _OF_CRAWLER, kept)


def restore_name(crawler: Crawler) -> None:
    """Give a spider the name of its class, where something else than text is in its place.

    `super().__init__(self, …)` makes a spider its own name, and Scrapy crawls with that.

    Raises:
        ConfigurationError: its class has no name either.

    """
    spider = crawler.spider
    if spider is None or isinstance(spider.name, str):
        return
    given = spider.name
    kind = type(spider)
    name = getattr(kind, "name", None)
    cure = "leave self out of super().__init__(self, …)" if given is spider else "give it text"
    if not isinstance(name, str):
        raise ConfigurationError(
            f"the name of the spider {kind.__qualname__} is of type {type(given).__qualname__}, "
            f"not text; {cure}"
        )
    spider.name = name
    logger.warning(
        "The spider %s was made with a name of type %s, not text, and goes by that of its class; "
        "%s",
        name,
        type(given).__qualname__,
        cure,
        extra={"action": "spider_name"},
    )


def crawl_start(
    crawler: Crawler, spider: Spider, template: str | None, ignored: Collection[str]
) -> CrawlStart:
    """Return who starts with which arguments; of a template the name of the crawl to join."""
    given = getattr(crawler, _OF_CRAWLER, None)
    if given is None:
        logger.warning(
            "The arguments of the spider %s are not known, for it was not started by "
            "Crawler.crawl(); its crawl is that without arguments",
            spider.name,
            extra={"action": "arguments_unknown"},
        )
    counted, uncounted = crawl_arguments.counted(given or {}, ignored)
    if uncounted:
        logger.warning(
            "Arguments of the spider %s do not count: %s. Starts that differ in these alone are "
            "one crawl, and one after the other each goes on with it. What counts is text, "
            "numbers, dates, times, Decimals, UUIDs, bytes, paths, enums, and lists, dicts, sets "
            "and dataclasses of these",
            spider.name,
            ", ".join(uncounted),
            extra={"action": "arguments_left_out"},
        )
    attributes = text_attributes(spider)
    name = None
    if template is not None:
        name = crawl_name(template, {**attributes, **counted, "name": spider.name})
    return CrawlStart(
        spider=spider.name,
        given=counted,
        name=name,
        old_digests=crawl_arguments.old_digests(attributes),
        uncounted=uncounted,
    )


def crawl_name(template: str, known: Mapping[str, str]) -> str:
    """Return the name of the crawl that `ITEMGRAPH_CRAWL` says."""
    try:
        return template.format_map(known)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"ITEMGRAPH_CRAWL = {template!r} needs {error}, which is no argument of this run; "
            f"there are {', '.join(sorted(known))}"
        ) from None


def text_attributes(spider: Spider) -> dict[str, str]:
    """Return the texts that a spider has in its attributes, where Scrapy puts its arguments."""
    return {
        name: value
        for name, value in vars(spider).items()
        if isinstance(value, str) and name != "name" and not name.startswith("_")
    }
