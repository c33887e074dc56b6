"""Whether the database has a queue, so that pages lead to it only then."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.web.graphs import Graphs

ASKED_EVERY = 10.0  # seconds, while there is none


class HasQueue:
    """Tells whether anything is in the queue, or was; one statement now and then."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._found = False
        self._asked_at = -math.inf

    def __call__(self) -> bool:
        """Return whether there is a crawl that people steer, or a runner."""
        if not self._found and time.monotonic() - self._asked_at >= ASKED_EVERY:
            self._found = self._graphs.served.queue.exists()
            self._asked_at = time.monotonic()
        return self._found
