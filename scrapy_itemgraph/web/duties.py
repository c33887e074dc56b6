"""A server's duties: it does for the database what workers do, where its role may."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.graph import ItemGraph

logger = logs.logger(__name__)

_PAUSE, _PAUSE_OF_MORE = 1.0, 0.2  # seconds between two looks whether a duty is due
_END_WITHIN = 5.0  # seconds that a step under way has at the end


@contextmanager
def doing_duties(graph: ItemGraph) -> Iterator[None]:
    """Do duties of the database in a thread, on a connection of its own, while the block lasts."""
    stopping = threading.Event()
    with graph.beside() as own:
        thread = threading.Thread(target=_run, args=(own, stopping), name="duties", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(_END_WITHIN)


def _run(graph: ItemGraph, stopping: threading.Event) -> None:
    """Do what is due until told to stop; a database that is away is asked again."""
    may, pause = False, 0.0
    while not stopping.wait(pause):
        pause = _PAUSE
        try:
            may = may or graph.duties.may()
            if not may:
                _tell_that_others_do_it()
                return
            if graph.duties.do_due():
                pause = _PAUSE_OF_MORE
        except ItemGraphError as error:
            logger.debug("Duties are put off: %s", error, extra={"action": "duties_put_off"})


def _tell_that_others_do_it() -> None:
    logger.warning(
        "This role or server may not do duties of crawls that nobody runs; they are left to "
        "workers and other servers: what falls due of them is shown as DUE",
        extra={"action": "no_duties"},
    )
