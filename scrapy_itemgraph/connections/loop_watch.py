"""Whether the event loop turns, as another thread sees it: a callback may block it."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs, wording

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

logger = logs.logger(__name__)


class LoopWatch:
    """Asks the loop of the thread that makes it for signs, and says once where it is blocked."""

    def __init__(self, patience: timedelta) -> None:
        """Take how long the loop may stand still."""
        self._patience = patience.total_seconds()
        self._loop_thread = threading.get_ident()
        self._asked: float | None = None  # the loop, which has not turned since
        self._has_said_stack = False

    def turns(self, ask: Callable[[], object]) -> bool:
        """Ask for a sign, unless one is awaited; whether that is not for longer than the patience.

        `ask` has the loop call `turned`.
        """
        asked, now = self._asked, time.monotonic()
        if asked is None:
            self._asked = now
            ask()
            if self._has_said_stack:
                self._has_said_stack = False
                logger.warning("The event loop turns again", extra={"action": "loop_turns"})
            return True
        if now - asked < self._patience:
            return True
        if not self._has_said_stack:
            self._has_said_stack = True
            self._say_what_blocks(now - asked)
        return False

    def turned(self) -> bool:
        """Take the loop's sign; whether it had been given up."""
        self._asked = None
        return self._has_said_stack

    def overslept(self, seconds: float) -> None:
        """Forgive the loop the time in which the process stood still, or the machine slept."""
        if self._asked is not None:
            self._asked += seconds

    def _say_what_blocks(self, seconds: float) -> None:
        message = (
            "Something has blocked the event loop for %s (ITEMGRAPH_PATIENCE): this worker renews "
            "its lease no longer, and others will take over its work"
        )
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - documented
        stack = "".join(["It is at:\n", *traceback.format_stack(frame)]).rstrip()
        period = wording.format_period(round(seconds))
        extra = {"action": "loop_blocked"}
        record = logger.makeRecord(
            __name__, logging.ERROR, __file__, 0, message, (period,), None, None, extra, stack
        )
        logger.handle(record)
