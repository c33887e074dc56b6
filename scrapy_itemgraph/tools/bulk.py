"""Bulk work in two threads: one makes rows, the other has the server write them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import gc_tuning

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds after which the thread that makes rows lets the other one go on: that one waits for the
# server again and again, and each time for this.
_TURN = 0.0005


@contextmanager
def bulk_work() -> Iterator[None]:
    """Tune the collector of garbage, and have threads take turns more often than Python does."""
    usual = sys.getswitchinterval()
    gc_tuning.tune()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
        gc_tuning.restore()
