"""Notices: what a start found, in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_itemgraph.tasks import uncovered_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_itemgraph.tasks import Task

logger = logging.getLogger(__name__)


def tell(
    tasks: Mapping[str, Task],
    *,
    renamed: Mapping[str, int],
    other_arguments: Mapping[str, str] | None,
    vanished: Iterable[str],
) -> None:
    """Log what a start found that a person should know."""
    for old, count in renamed.items():
        logger.info("Renamed the tag %r on %d items", old, count)
        if any(old in one.tags for one in tasks.values()):
            logger.warning(
                "The tag %r is renamed by ITEMGRAPH_TAG_RENAMES, but a task still names it", old
            )
    if other_arguments is not None:
        logger.warning(
            "The crawl's outstanding work was made with other spider arguments (%s); to keep "
            'them apart set ITEMGRAPH_CRAWL, for instance to "{name}-{argument}"',
            ", ".join(sorted(other_arguments)) or "none",
        )
    for one, dependency in uncovered_dependencies(tasks):
        logger.warning(
            "The task %r depends on %r, but an item may have one of its tags (%s) and none of "
            "the other's (%s); such an item waits for ever",
            one.name,
            dependency.name,
            ", ".join(one.tags),
            ", ".join(dependency.tags),
        )
    unkept = sorted(name for name, one in tasks.items() if one.limits_rate)
    if unkept:
        logger.warning(
            "Rate limits of tasks (%s) are not kept by this version; Scrapy's own delays and "
            "limits hold in each process",
            ", ".join(unkept),
        )
    for name in vanished:
        logger.warning(
            "The task %r has results but is no longer declared; if it was only renamed in "
            'code, say @task(name="%s")',
            name,
            name,
        )
