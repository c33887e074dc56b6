"""An event loop that draws from a seed which ready callback is next, with a clock of its own.

Nothing is waited for: when no callback is ready, the clock jumps to the next moment at which one is
due. `time.monotonic` and `time.perf_counter` tell the time of this clock meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class SeededLoop(asyncio.SelectorEventLoop):
    """A loop whose order is that of a seed; `idle` is called before the clock jumps."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.draw = random.Random(seed)
        self.idle: Callable[[], None] = lambda: None
        self.main: asyncio.Task[Any]
        self.error: AssertionError | None = None
        super().__init__()

    def time(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return self.now

    def _run_once(self) -> None:
        ready: Any = self._ready
        if not ready:
            try:
                self.idle()
            except AssertionError as error:
                self.error, self.idle = error, lambda: None
                self.main.cancel()
        if not ready:
            timers: Any = self._scheduled
            moments = (one.when() for one in timers if not one.cancelled())
            due = min(moments, default=math.inf)
            assert due < math.inf, "everybody waits for somebody else"
            self.now = max(self.now, due)
        else:
            drawn = list(ready)
            ready.clear()
            self.draw.shuffle(drawn)
            ready.extend(drawn)
        super()._run_once()


def run(seed: int, scenario: Callable[[SeededLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario on the loop of a seed, and return what it returns.

    What the loop's `idle` raises ends the scenario.
    """
    loop = SeededLoop(seed)
    clocks = {"monotonic": loop.time, "perf_counter": loop.time}
    try:
        with mock.patch.multiple(time, **clocks):
            loop.main = loop.create_task(scenario(loop))
            with suppress(asyncio.CancelledError):
                return loop.run_until_complete(loop.main)
    finally:
        loop.close()
    assert loop.error is not None
    raise loop.error


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so many seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
