"""Plots of what was done: bars for pages, failures on top of them, a line for items.

By the minute of the last hour; a crawl that took a few minutes of it, by the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.tools.wording import format_period

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_itemgraph.store.admin.activity import LimitMinute, SecondOfCrawl, TaskMinute

MINUTES = 60
WIDTH = 600  # a drawing is stretched to the room that there is
HEIGHT = 100
TICKS = ("60 min ago", "45", "30", "15", "now")
SHORT = 10  # minutes up to which a crawl is drawn by the second
MOST_SHORT = 5_000  # executions up to which it is
FEWEST, MOST = 30, 60  # bars of a short crawl
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)  # seconds that a bar may have
_LEAST = 2.0  # pixels of a bar's failures
_A_MINUTE = 60  # seconds
_MINUTE = timedelta(seconds=_A_MINUTE)


@dataclass(slots=True)
class Slice:
    """What a piece of time counted: executions that ended well, what they made, what failed.

    `scraped` counts scraped items, `made` items of the graph.
    """

    begin: datetime
    pages: int = 0
    scraped: int = 0
    made: int = 0
    failures: int = 0

    def add(self, other: Slice) -> None:
        """Count what another one has as well."""
        self.pages += other.pages
        self.scraped += other.scraped
        self.made += other.made
        self.failures += other.failures


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of time as drawn: its bar, and what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    hint: str
    failed: float  # the height of its failures, which stand on it


@dataclass(frozen=True, slots=True)
class Plot:
    """Pieces of time as drawn, in pixels, and the numbers of the axes.

    `title` says of which time, `per` how long a bar is. `kind` says what the line is of: scraped
    items, or new items of the graph where there are none.
    """

    title: str
    per: str
    bars: list[Bar]
    line: str
    top: int
    middle: int
    ticks: tuple[str, ...]
    pages: int
    items: int
    failures: int
    kind: str
    step: int  # seconds of a bar

    @property
    def bar(self) -> str:
        """How long a bar is, in words: `1m a bar`."""
        return f"{format_period(self.step)} a bar"

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not (self.pages or self.items or self.failures)

    @property
    def summary(self) -> str:
        """The plot in words."""
        return (
            f"{self.title}: {counts.many(self.pages, 'page')}, {self.items:,} {self.kind}, "
            f"{counts.many(self.failures, 'failure')}; at most {self.top:,} {self.per}"
        )


@dataclass(frozen=True, slots=True)
class _Axis:
    """So many pieces of time, of `step` seconds each, and what stands below and above them."""

    title: str
    first: datetime
    step: int
    number: int
    ticks: tuple[str, ...]

    @property
    def width(self) -> float:
        """Pixels of a piece."""
        return WIDTH / self.number

    def place(self, moment: datetime) -> int:
        """Return the number of the piece that has a moment."""
        return int((moment - self.first).total_seconds() // self.step)


def summed(rows: Iterable[TaskMinute]) -> list[Slice]:
    """Add the tasks of each minute up."""
    found: dict[datetime, Slice] = {}
    for row in rows:
        one = Slice(row.minute, row.done, row.scraped, row.items, row.failed)
        found.setdefault(row.minute, Slice(row.minute)).add(one)
    return list(found.values())


def short_since(minutes: Sequence[Slice]) -> datetime | None:
    """Return when a crawl began that is short enough for bars of seconds; None: it is not."""
    if not minutes:
        return None
    begins = [one.begin for one in minutes]
    ended = sum(one.pages + one.failures for one in minutes)
    is_short = max(begins) - min(begins) < SHORT * _MINUTE and ended <= MOST_SHORT
    return min(begins) if is_short else None


def of_hour(minutes: Sequence[Slice], now: datetime) -> Plot:
    """Draw the minutes of the last hour; those in which nothing happened may be missing."""
    first = now.replace(second=0, microsecond=0) - (MINUTES - 1) * _MINUTE
    return _drawn(minutes, _Axis("The last hour", first, _A_MINUTE, MINUTES, TICKS))


def of_seconds(seconds: Sequence[SecondOfCrawl], now: datetime) -> Plot:
    """Draw a short crawl; until now where it goes on, else until its last execution ended."""
    slices = [Slice(one.second, one.done, one.scraped, one.items, one.failed) for one in seconds]
    first, last = slices[0].begin, slices[-1].begin
    end = now if now - last < _MINUTE else last
    step = step_of((end - first).total_seconds(), MOST)
    number = max(FEWEST, int((end - first).total_seconds() // step) + 1)
    ticks = tuple(
        f"{first + timedelta(seconds=step * number * quarter / 4):%H:%M:%S}" for quarter in range(5)
    )
    title = f"{first:%H:%M:%S} to {'now' if end is now else f'{end:%H:%M:%S}'} (UTC)"
    return _drawn(slices, _Axis(title, first, step, number, ticks))


def step_of(seconds: float, most: int) -> int:
    """Return how many seconds a bar has, so that a period needs no more than so many bars."""
    return next((step for step in STEPS if seconds < step * most), STEPS[-1])


def _drawn(slices: Iterable[Slice], axis: _Axis) -> Plot:
    """Draw what an axis has room for."""
    by_place: dict[int, Slice] = {}
    for one in slices:
        place = axis.place(one.begin)
        if 0 <= place < axis.number:
            begin = axis.first + timedelta(seconds=place * axis.step)
            by_place.setdefault(place, Slice(begin)).add(one)
    has_scraped = any(one.scraped for one in by_place.values())
    kind = "scraped items" if has_scraped else "new items"
    items = {at: one.scraped if has_scraped else one.made for at, one in by_place.items()}
    highest = max(
        (max(one.pages + one.failures, items[at]) for at, one in by_place.items()), default=0
    )
    top = _round_up(highest)

    def down(count: int) -> float:
        return HEIGHT * (1 - count / top)

    bars = [
        _bar(one, axis, HEIGHT / top, f"{items[at]:,} {kind}")
        for at, one in sorted(by_place.items())
    ]
    line = [
        f"{(at + 0.5) * axis.width:.1f},{down(items.get(at, 0)):.1f}" for at in range(axis.number)
    ]
    return Plot(
        title=axis.title,
        per="a minute" if axis.step == _A_MINUTE else f"in {format_period(axis.step)}",
        bars=bars,
        line=" ".join(line) if any(items.values()) else "",
        top=top,
        middle=top // 2,
        ticks=axis.ticks,
        pages=sum(one.pages for one in by_place.values()),
        items=sum(items.values()),
        failures=sum(one.failures for one in by_place.values()),
        kind=kind,
        step=axis.step,
    )


def _bar(one: Slice, axis: _Axis, unit: float, items: str) -> Bar:
    """Draw a piece of time; `unit` is the height of one page. Few failures are seen, too."""
    x = axis.place(one.begin) * axis.width
    failed = min(HEIGHT, max(_LEAST, one.failures * unit)) if one.failures else 0.0
    height = min(one.pages * unit, HEIGHT - failed)
    pages = counts.many(one.pages, "page")
    when = f"{one.begin.astimezone(UTC):{'%H:%M' if axis.step == _A_MINUTE else '%H:%M:%S'}} UTC"
    return Bar(
        x=x + 1,
        y=HEIGHT - height,
        width=axis.width - 2,
        height=height,
        hint=f"{when}: {pages}, {items}, {counts.many(one.failures, 'failure')}",
        failed=failed,
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
