"""What a start warns of in a project's settings: what they say and does not come to pass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs, wording

if TYPE_CHECKING:
    from collections.abc import Mapping

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
