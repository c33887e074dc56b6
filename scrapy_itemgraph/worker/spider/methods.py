"""A spider's methods by their names: which there are, and what code they run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from scrapy import Spider
from scrapy.spiders import CrawlSpider

from scrapy_itemgraph.model import code_digests
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from uuid import UUID

    from scrapy import Request

logger = logs.logger(__name__)

FOLLOW = "follow"
"""The name of a `CrawlSpider`'s rules without a callback."""


def errback_names(request: Request, errback: Any, spider: Spider) -> set[str]:
    """Return the names of an errback, and of the rule's that it calls in a `CrawlSpider`."""
    errbacks = [errback]
    if scrapy_internals.is_rules_errback(getattr(errback, "__func__", None)):
        rules = scrapy_internals.rules_of(spider)
        number = request.meta.get("rule")
        if isinstance(number, int) and 0 <= number < len(rules):
            errbacks.append(rules[number].errback)
    names = (getattr(errback, "__name__", None) for errback in errbacks)
    return {name for name in names if isinstance(name, str)}


def source_of(spider: Spider | type[Spider], method: str) -> UUID | None:
    """Return a digest of the code that a method runs; None of Scrapy's own, or without source.

    What a `CrawlSpider` does with the pages of its rules is what their callbacks do, which of its
    class alone are not known.
    """
    if method in getattr(spider, "__dict__", ()) and not isinstance(spider, type):
        return None  # of this instance alone
    functions = [getattr(spider, method, None)]
    if issubclass(spider if isinstance(spider, type) else type(spider), CrawlSpider):
        function = getattr(functions[0], "__func__", functions[0])
        if scrapy_internals.is_rules_callback(function):
            functions = [rule.callback for rule in scrapy_internals.rules_of(spider)]
        elif method == "parse":
            functions = [getattr(spider, "parse_start_url", None)]
    return _digest(functions)


def _digest(functions: Iterable[Any]) -> UUID | None:
    own = [
        function
        for function in functions
        if callable(function)
        and str(getattr(function, "__module__", "")).partition(".")[0] != "scrapy"
    ]
    return code_digests.digest(own)


def sources_of(spider: Spider, rules: Mapping[str, Any]) -> dict[str, UUID]:
    """Return the digests of all methods that the spider's own code has, by name.

    `rules` are the callbacks of its rules, of which some may be no methods. To be called
    before the files of the code may have changed: the source is read from them.
    """
    own = type(spider)
    names = (name for name in dir(own) if not name.startswith("__"))
    routines = [name for name in names if inspect.isroutine(inspect.getattr_static(own, name))]
    found = {name: _digest([callback]) for name, callback in rules.items()}
    found |= {name: source_of(spider, name) for name in routines}
    return {name: source for name, source in found.items() if source is not None}


def callback_names(spider_class: type) -> list[str]:
    """Return the names of a spider's methods that requests could name as their callbacks."""
    public = (name for name in dir(spider_class) if not name.startswith("_"))
    return [one for one in public if inspect.isroutine(inspect.getattr_static(spider_class, one))]


def warn_of_no_callbacks(names: Iterable[str], spider: Spider, rules: Collection[str]) -> None:
    """Log each name of `ITEMGRAPH_CALLBACKS` that is a method of no spider that is loaded.

    `rules` are the names of the spider's rules; those of others' are not known.
    """
    own = [*callback_names(type(spider)), *rules]
    loaded = list(_subclasses(Spider))
    if any(issubclass(one, CrawlSpider) and one is not CrawlSpider for one in loaded):
        own.append(FOLLOW)
    for name in names:
        if name not in own and not any(hasattr(one, name) for one in loaded):
            logger.warning(
                "ITEMGRAPH_CALLBACKS[%r] changes nothing: the spider %s has no such method%s",
                name,
                spider.name,
                wording.closest(name, own),
                extra={"action": "unknown_callback"},
            )


def _subclasses(cls: type[Spider]) -> Iterator[type[Spider]]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)
