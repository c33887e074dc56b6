"""Plots of the last hour: a bar for each minute's pages, a line for items, marks for failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

MINUTES = 60
WIDTH = 720
HEIGHT = 150
_LEFT = 44
_TOP = 14
_BOTTOM = 22


class Minute(Protocol):
    """What one minute counted."""

    @property
    def minute(self) -> datetime:
        """When it began."""

    @property
    def pages(self) -> int:
        """Pages that were answered."""

    @property
    def items(self) -> int:
        """Items that were scraped."""

    @property
    def failures(self) -> int:
        """Attempts that failed."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A minute as drawn: its bar, and what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    hint: str
    failed: str  # the points of a mark, or nothing


@dataclass(frozen=True, slots=True)
class Plot:
    """The last hour as drawn, in pixels, and the numbers of its axis."""

    bars: list[Bar]
    line: str
    top: int
    middle: int
    middle_y: float
    base: float
    left: float
    ticks: list[tuple[float, str]]
    pages: int
    items: int
    failures: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not (self.pages or self.items or self.failures)

    @property
    def summary(self) -> str:
        """The plot in words."""
        return (
            f"The last {MINUTES} minutes: {self.pages:,} pages, {self.items:,} items, "
            f"{self.failures:,} failures; at most {self.top:,} a minute"
        )


def plot(minutes: Sequence[Minute], now: datetime) -> Plot:
    """Draw the minutes of the last hour; those in which nothing happened may be missing."""
    by_age: dict[int, Minute] = {}
    start = now.replace(second=0, microsecond=0)
    for one in minutes:
        age = round((start - one.minute).total_seconds() / 60)
        if 0 <= age < MINUTES:
            by_age[age] = one
    highest = max((max(one.pages, one.items) for one in by_age.values()), default=0)
    top = _round_up(highest)
    base = HEIGHT - _BOTTOM
    step = (WIDTH - _LEFT) / MINUTES

    def down(number: int) -> float:
        return base - (base - _TOP) * number / top

    bars, points = [], []
    for age in range(MINUTES - 1, -1, -1):
        x = _LEFT + (MINUTES - 1 - age) * step
        minute = by_age.get(age)
        points.append(f"{x + step / 2:.1f},{down(minute.items if minute else 0):.1f}")
        if minute is None:
            continue
        y = down(minute.pages)
        middle = x + step / 2
        failed = f"{middle - 4:.1f},{_TOP - 4} {middle + 4:.1f},{_TOP - 4} {middle:.1f},{_TOP + 4}"
        bars.append(
            Bar(
                x + 1,
                y,
                step - 2,
                base - y,
                f"{minute.minute:%H:%M} UTC: {minute.pages:,} pages, {minute.items:,} items, "
                f"{minute.failures:,} failures",
                failed if minute.failures else "",
            )
        )
    ticks = [
        (_LEFT + (MINUTES - age) * step, f"{age} min ago" if age else "now")
        for age in (60, 45, 30, 15, 0)
    ]
    found = by_age.values()
    return Plot(
        bars,
        " ".join(points),
        top,
        top // 2,
        down(top // 2),
        base,
        _LEFT,
        ticks,
        sum(one.pages for one in found),
        sum(one.items for one in found),
        sum(one.failures for one in found),
    )


def _round_up(number: int) -> int:
    """Return the next even number whose first digit is 1, 2 or 5, or 4 and more."""
    unit = 1
    while unit * 10 < number:
        unit *= 10
    return next((unit * n for n in (2, 4, 6, 8) if unit * n >= number), unit * 10)
