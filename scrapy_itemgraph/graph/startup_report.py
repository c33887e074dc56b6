"""What a start found, in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.limits import unknown_tags
from scrapy_itemgraph.model.tasks import uncovered_dependencies
from scrapy_itemgraph.store.registry.code_changes import MANY
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_itemgraph.model.tasks import Outdated, Task
    from scrapy_itemgraph.model.work import GivenUp

logger = logs.logger(__name__)


def tell(
    tasks: Mapping[str, Task],
    *,
    renamed: Mapping[str, int],
    of_crawl: Iterable[str] = (),
    vanished: Iterable[str],
    stray_groups: Iterable[tuple[str, str]] = (),
    outdated: Iterable[Outdated] = (),
) -> None:
    """Log what a start found that a person should know."""
    for old, count in renamed.items():
        logger.info("Renamed the tag %r on %d items", old, count)
        if any(old in one.tags for one in tasks.values()):
            logger.warning(
                "The tag %r is renamed by ITEMGRAPH_TAG_RENAMES, but a task still names it", old
            )
    for line in of_crawl:
        logger.warning("%s", line)
    for changed in outdated:
        _tell_outdated(changed)
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


def _tell_outdated(changed: Outdated) -> None:
    """Say that results of earlier code stay fresh: the first time loudly."""
    version = (
        f'ITEMGRAPH_CALLBACKS = {{"{changed.task}": {{"version": "…"}}}}'
        if changed.is_callback
        else '@task(version="…")'
    )
    logger.log(
        logging.WARNING if changed.is_news else logging.INFO,
        "The code of %s has changed since %s of its results were made; they are fresh and stay as "
        "they are. To make all of its results again give it another version, %s; single ones: "
        "scrapy itemgraph expire ID",
        changed.task,
        f"{changed.made:,}" if changed.made < MANY else f"{MANY:,} or more",
        version,
        extra={"action": "code_changed", "task": changed.task},
    )


def tell_given_up(given_up: Iterable[GivenUp]) -> None:
    """Log the work that is given up, for what became of its workers."""
    for one in given_up:
        logger.warning(
            "Gave up %s (%s) as a failure, %r: one worker after another came to its end while it "
            "ran this alone; scrapy itemgraph failures, handle",
            one.url or one.item,
            one.task,
            one.kind,
            extra={"action": "gave_up"},
        )


def tell_no_session() -> None:
    """Say what a worker does without behind a pooler in transaction mode."""
    logger.info(
        "The database is behind a pooler in transaction mode: this worker keeps no connection "
        "there, looks for others' work, and notices that another was killed when its lease is "
        "over; with ITEMGRAPH_SESSION_URL it would hear of both at once",
        extra={"action": "no_session"},
    )
