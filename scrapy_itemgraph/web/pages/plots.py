"""Plots of the last hour: a bar for each minute's pages, a line for items, marks for failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from scrapy_itemgraph.store.admin.activity import LimitMinute, TaskMinute

MINUTES = 60
WIDTH = 600  # a drawing is stretched to the room that there is
HEIGHT = 100
TICKS = ("60 min ago", "45", "30", "15", "now")


@dataclass(slots=True)
class Minute:
    """What one minute counted: executions that ended well, what they made, what failed.

    `scraped` counts scraped items, `made` items of the graph.
    """

    minute: datetime
    pages: int = 0
    scraped: int = 0
    made: int = 0
    failures: int = 0


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
    """The last hour as drawn, in pixels, and the numbers of its axis.

    `kind` says what the line is of: scraped items, or new items of the graph where there are none.
    """

    bars: list[Bar]
    line: str
    top: int
    middle: int
    ticks: tuple[str, ...]
    pages: int
    items: int
    failures: int
    kind: str

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not (self.pages or self.items or self.failures)

    @property
    def summary(self) -> str:
        """The plot in words."""
        return (
            f"The last {MINUTES} minutes: {self.pages:,} pages, {self.items:,} {self.kind}, "
            f"{self.failures:,} failures; at most {self.top:,} a minute"
        )


def summed(rows: Iterable[TaskMinute]) -> list[Minute]:
    """Add the tasks of each minute up."""
    found: dict[datetime, Minute] = {}
    for row in rows:
        one = found.setdefault(row.minute, Minute(row.minute))
        one.pages += row.done
        one.scraped += row.scraped
        one.made += row.items
        one.failures += row.failed
    return list(found.values())


def plot(minutes: Sequence[Minute], now: datetime) -> Plot:
    """Draw the minutes of the last hour; those in which nothing happened may be missing."""
    by_age: dict[int, Minute] = {}
    start = now.replace(second=0, microsecond=0)
    for one in minutes:
        age = round((start - one.minute).total_seconds() / 60)
        if 0 <= age < MINUTES:
            by_age[age] = one
    has_scraped = any(one.scraped for one in by_age.values())
    kind = "scraped items" if has_scraped else "new items"
    items = {age: one.scraped if has_scraped else one.made for age, one in by_age.items()}
    highest = max((max(one.pages, items[age]) for age, one in by_age.items()), default=0)
    top = _round_up(highest)
    step = WIDTH / MINUTES

    def down(number: int) -> float:
        return HEIGHT * (1 - number / top)

    bars, points = [], []
    for age in range(MINUTES - 1, -1, -1):
        x = (MINUTES - 1 - age) * step
        minute = by_age.get(age)
        points.append(f"{x + step / 2:.1f},{down(items.get(age, 0)):.1f}")
        if minute is None:
            continue
        y = down(minute.pages)
        middle = x + step / 2
        failed = f"{middle - 4:.1f},0 {middle + 4:.1f},0 {middle:.1f},9"
        bars.append(
            Bar(
                x + 1,
                y,
                step - 2,
                HEIGHT - y,
                f"{minute.minute:%H:%M} UTC: {minute.pages:,} pages, {items[age]:,} {kind}, "
                f"{minute.failures:,} failures",
                failed if minute.failures else "",
            )
        )
    found = by_age.values()
    return Plot(
        bars,
        " ".join(points),
        top,
        top // 2,
        TICKS,
        sum(one.pages for one in found),
        sum(items.values()),
        sum(one.failures for one in found),
        kind,
    )


def _round_up(number: int) -> int:
    """Return the next even number whose first digit is 1, 2 or 5, or 4 and more."""
    unit = 1
    while unit * 10 < number:
        unit *= 10
    return next((unit * n for n in (2, 4, 6, 8) if unit * n >= number), unit * 10)


SPARK_MINUTES = 30
SPARK_HEIGHT = 32
_SPARK_STEP = 10


_HIGHEST = 4.0  # how many times the most requests the line may be, so that bars can be seen
_SLACK = 1.1  # a minute has up to a tenth more than is allowed, by jitter and its borders


@dataclass(frozen=True, slots=True)
class Spark:
    """A limit's requests in the last half hour as small bars, beside what is allowed a minute.

    The line of what is allowed begins at `line_x`, after the last minute that had clearly more:
    then the limit was another. There is none where it would be far above all bars.
    """

    bars: list[tuple[int, float, float]]
    line: float | None
    line_x: int
    last: int
    most: int
    allowed: float | None
    words: str

    @property
    def is_new(self) -> bool:
        """Whether a minute had more than is allowed now."""
        return self.line_x > 0


def spark(rows: Iterable[LimitMinute], gap: float | None, now: datetime) -> Spark:
    """Draw the requests of one limit; `gap` are the seconds between two starts, if any."""
    start = now.replace(second=0, microsecond=0)
    by_age = {round((start - row.minute).total_seconds() / 60): row.requests for row in rows}
    by_age = {age: number for age, number in by_age.items() if 0 <= age < SPARK_MINUTES}
    most = max(by_age.values(), default=0)
    allowed = 60 / gap if gap else None
    is_lined = allowed is not None and allowed <= _HIGHEST * most
    top = max(most, allowed if allowed is not None and is_lined else 0) or 1
    bars = []
    for age, number in by_age.items():
        height = round(SPARK_HEIGHT * number / top, 1)
        bars.append((_spark_x(age), SPARK_HEIGHT - height, height))
    line = None
    line_x = 0
    if allowed is not None and is_lined:
        line = round(SPARK_HEIGHT * (1 - allowed / top), 1) + 1
        above = [age for age, number in by_age.items() if number > allowed * _SLACK + 1]
        line_x = _spark_x(min(above)) + _SPARK_STEP if above else 0
    last = by_age.get(1, 0)
    said = f"at most {most:,} in the last {SPARK_MINUTES} minutes, {last:,} in the last whole one"
    return Spark(bars, line, line_x, last, most, allowed, said)


def _spark_x(age: int) -> int:
    """Return where the bar of a minute begins."""
    return (SPARK_MINUTES - 1 - age) * _SPARK_STEP
