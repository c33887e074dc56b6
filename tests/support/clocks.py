"""A clock for what has no I/O, in the place of `time`."""

from __future__ import annotations


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return what the clock shows."""
        return self.now

    def wait(self, seconds: float) -> float:
        """Let time pass, and return what the clock shows."""
        self.now += seconds
        return self.now
