"""What a start warns of in a project's settings: what they say and does not come to pass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import scrapy

from scrapy_itemgraph.tools import logs, wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Spider
    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.settings import Settings

logger = logs.logger(__name__)

_DUMMY_POLICY = "scrapy.extensions.httpcache.DummyPolicy"


def warn_of_options_of_tasks(settings: Settings, tasks: Mapping[str, Task]) -> None:
    """Log each name of `ITEMGRAPH_CALLBACKS` that is a task's, whose options are its own."""
    for task in tasks.values():
        if task.method in settings.results.callbacks:
            logger.warning(
                "ITEMGRAPH_CALLBACKS[%r] changes nothing: %s is a task; its options go to "
                "@task(%s)",
                task.method,
                task.method,
                ", ".join(f"{name}=…" for name in settings.results.callbacks[task.method]) or "…",
                extra={"action": "options_of_task"},
            )


def warn_of_start_requests(spider: Spider) -> None:
    """Warn of a `start_requests()` that Scrapy does not call, in a spider without a `start()`."""
    if _has_uncalled_start_requests(spider):
        logger.warning(
            "%s.start_requests() is not called: Scrapy %s calls start() alone. Write `async def "
            "start(self):` in its place, and yield the same requests",
            type(spider).__name__,
            scrapy.__version__,
            extra={"action": "start_requests"},
        )


def _has_uncalled_start_requests(spider: Spider) -> bool:
    cls = type(spider)
    is_called = hasattr(scrapy.Spider, "start_requests")  # by Scrapy's own start(), in older ones
    has_own_start = getattr(cls.start, "__module__", "").partition(".")[0] != "scrapy"
    return hasattr(cls, "start_requests") and not (is_called or has_own_start)


def warn_of_empty_start(spider: Spider, tasks: Mapping[str, Task]) -> None:
    """Warn that `start()` yielded nothing, where nothing else begins the crawl.

    Task spiders without seeds may have their items from outside.
    """
    is_uncalled = _has_uncalled_start_requests(spider)
    if callable(getattr(spider, "seeds", None)) or (tasks and not is_uncalled):
        return
    if is_uncalled:
        why = "its start_requests() is not called (see above)"
    elif type(spider).start is scrapy.Spider.start and not spider.start_urls:
        why = "its start_urls is empty"
    else:
        why = "it ended without a request"
    logger.warning(
        "start() of the spider %s yielded nothing, and nothing is left to do: %s. So this run has "
        "fetched no page",
        spider.name,
        why,
        extra={"action": "empty_start"},
    )


def warn_of_cached_pages(
    project: BaseSettings, settings: Settings, tasks: Mapping[str, Task]
) -> None:
    """Warn of times to live that fetch nothing anew, for Scrapy's HttpCache answers."""
    if not project.getbool("HTTPCACHE_ENABLED") or not _never_looks(project):
        return
    kept = project.getint("HTTPCACHE_EXPIRATION_SECS")
    longest = timedelta(seconds=kept) if kept > 0 else None
    named: dict[str, object] = {
        f"the task {name}": one.ttl for name, one in tasks.items() if one.download
    }
    named["ITEMGRAPH_DEFAULT_TTL"] = settings.results.default_ttl
    for name, options in settings.results.callbacks.items():
        named[f"ITEMGRAPH_CALLBACKS[{name!r}]"] = settings.results.ttl_of(options)
    late = {
        what: ttl
        for what, ttl in named.items()
        if isinstance(ttl, timedelta) and (longest is None or longest > ttl)
    }
    if late:
        shortest = min(late, key=lambda what: late[what])
        logger.warning(
            "HTTPCACHE_ENABLED: when a time to live is over (%s: %s), Scrapy's cache answers with "
            "the page of before%s. Set HTTPCACHE_EXPIRATION_SECS to no more than that, or "
            "HTTPCACHE_POLICY to scrapy.extensions.httpcache.RFC2616Policy",
            shortest,
            wording.format_period(late[shortest].total_seconds()),
            "" if longest is None else f", for {wording.format_period(longest.total_seconds())}",
            extra={"action": "ttl_cached"},
        )


def _never_looks(project: BaseSettings) -> bool:
    """Tell whether the cache's policy is the one that asks no website."""
    policy = project.get("HTTPCACHE_POLICY")
    path = policy if isinstance(policy, str) else f"{policy.__module__}.{policy.__qualname__}"
    return path == _DUMMY_POLICY
