"""Latencies: in how many seconds websites answer, counted in a histogram."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# In seconds, each inclusive; what came later is counted behind the last.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0)


@dataclass(slots=True)
class Latencies:
    """How many answers came within each bound and not the one before, and their seconds in all."""

    answers: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count an answer that came in so many seconds."""
        self.answers[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
