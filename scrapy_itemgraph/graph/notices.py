"""Notices: what a start found, in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_itemgraph.limits import unknown_tags
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
    stray_groups: Iterable[tuple[str, str]] = (),
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
    for pattern, hint in stray_groups:
        logger.warning(
            "The group %r in ITEMGRAPH_RATE_GROUPS matches no task, so it limits nothing%s",
            pattern,
            hint,
        )
    for name, tag, hint in unknown_tags(tasks):
        logger.warning(
            "The task %r has a rate limit by the tag %r, which calls for no task of this spider; "
            "it limits only items that are given this tag all the same%s",
            name,
            tag,
            hint,
        )
    for name in vanished:
        logger.warning(
            "The task %r has results but is no longer declared; if it was only renamed in "
            'code, say @task(name="%s")',
            name,
            name,
        )
