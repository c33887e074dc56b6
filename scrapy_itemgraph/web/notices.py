"""A server sends notices, too, where its project has channels."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.channels.channel import Channels
    from scrapy_itemgraph.graph import ItemGraph

logger = logs.logger(__name__)

_PUT_OFF = 5.0  # seconds until the next look where the database is away


@contextmanager
def sending_notices(graph: ItemGraph, channels: Channels) -> Iterator[None]:
    """Send notices in a thread, on a connection of its own, while the block lasts."""
    if not (channels or channels.watch):
        yield
        return
    stopping = threading.Event()
    with graph.beside() as own:
        given = (own, channels, stopping)
        thread = threading.Thread(target=_run, args=given, name="notices", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()  # what is being sent is sent again by others, if it is not noted


def _run(graph: ItemGraph, channels: Channels, stopping: threading.Event) -> None:
    may, pause = False, 0.0
    while not stopping.wait(pause):
        try:
            may = may or graph.duties.may()
            if not may:  # a role that only reads; others do it
                return
            pause = graph.notices.deliver(channels)
        except ItemGraphError as error:
            pause = _PUT_OFF
            logger.debug("Notices are put off: %s", error, extra={"action": "notices_put_off"})
