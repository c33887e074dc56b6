"""What a worker says when its graph is open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.settings import project_directory
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.settings import Settings

logger = logs.logger(__name__)


JOB = "ITEMGRAPH_JOB"
"""In the environment of a process that a runner started: the number of its job."""


def runners_job() -> int | None:
    """Return the number of the job that a runner started this process for, if one did.

    Raises:
        ConfigurationError: it is no number.

    """
    given = os.environ.get(JOB)
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > _LONGEST_NUMBER:
        raise ConfigurationError(
            f"{JOB} = {given!r:.80} is no number of a job; runners set it for their processes, so "
            "unset it in the environment"
        )
    return int(given)


_LONGEST_NUMBER = 18  # digits


def say_where(settings: Settings) -> None:
    """Say where an embedded graph is when no project says it: an egg, or runspider."""
    if settings.database.database_url is None and project_directory() is None:
        logger.info(
            "The item graph is in %s, under the working directory, for there is no scrapy.cfg; "
            "ITEMGRAPH_DATA_DIR puts it elsewhere",
            settings.database.data_dir,
            extra={"action": "data_dir"},
        )


def say_which_run(graph: WorkerGraph, settings: Settings, *, has_tasks: bool) -> None:
    """Say whether the pages of plain callbacks are fetched anew by this run, or stay done.

    A start that goes on with a run says `resuming` instead.
    """
    if graph.run.is_continued:
        logger.info(
            "Run %d of this crawl goes on with what is outstanding; start() and seeds() are not "
            "called",
            graph.run.number,
            extra={"action": "run"},
        )
        return
    if graph.run.is_over or graph.run.is_resumed or (has_tasks and not graph.callbacks.names):
        return
    some = settings.results.incremental_callbacks
    of_some = f"; but for {', '.join(some)} (ITEMGRAPH_CALLBACKS)" if some else ""
    if some is None:
        line = "incremental: pages that are done stay so for as long as ITEMGRAPH_DEFAULT_TTL says"
    else:
        line = f"a new crawl of the site: whatever it reaches is fetched{of_some}"
    logger.info("Run %d of this crawl is %s", graph.run.number, line, extra={"action": "run"})


def say_nothing_goes_on(graph: WorkerGraph) -> None:
    """Say of a start with ITEMGRAPH_CONTINUE that there is nothing for it to do."""
    of_run = f"run {graph.run.number}" if graph.run.number else "the crawl"
    logger.info(
        "Nothing is outstanding, so there is nothing of %s to go on with (ITEMGRAPH_CONTINUE). "
        "Failed pages are fetched again after scrapy itemgraph handle, others after expire; a "
        "start without that setting begins a new run",
        of_run,
        extra={"action": "nothing_to_continue"},
    )


async def say_what_is_resumed(graph: WorkerGraph) -> None:
    """Say what an earlier start of a run that is not over has left, and what it has done."""
    if not graph.run.is_resumed:
        return
    line = (await graph.reads.summary()).resuming
    if line is not None:
        logger.info("%s", line, extra={"action": "resuming"})
