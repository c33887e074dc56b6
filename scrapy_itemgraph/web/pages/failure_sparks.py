"""When the failures of groups were: small bars, on one axis for all groups of a page, or by run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools.wording import format_period
from scrapy_itemgraph.web.pages.plots import step_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from scrapy_itemgraph.store.group_tallies import TimesInRun

WIDTH = 180
HEIGHT = 28
RUN_WIDTH = 7
RUN_HEIGHT = 14
MOST_BARS = 30
DAY = 24 * 3600  # seconds that the axis goes back at most


@dataclass(frozen=True, slots=True)
class Spark:
    """The failures of a group in pixels: bars as (x, y, width, height), and the same in words.

    Before `unknown` it had more failures than were looked at.
    """

    bars: list[tuple[float, float, float, float]]
    unknown: float
    words: str


@dataclass(frozen=True, slots=True)
class Sparks:
    """The failures of groups, by group, and what their axis is, in words; empty: there is none."""

    of: dict[UUID, Spark]
    axis: str


def drawn(times: Mapping[UUID, Sequence[int]], now: datetime, most: int) -> Sparks:
    """Draw when failures were (seconds since 1970, the latest first), of the last day.

    A group of `most` may have more, before those.
    """
    since = now.timestamp() - DAY
    lately = {group: [one for one in of if one >= since] for group, of in times.items()}
    known = [one for of in lately.values() for one in of]
    if not known:
        return Sparks({}, "")
    step = step_of(max(known) - min(known) + 1, MOST_BARS)
    first = min(known) // step * step
    number = (max(known) - first) // step + 1
    sparks = {
        group: _spark(of, first, step, number, is_cut=len(of) == most)
        for group, of in lately.items()
        if of
    }
    end = first + number * step
    return Sparks(sparks, f"{_period(first, end)} UTC, {format_period(step)} a bar")


def by_run(runs: Sequence[TimesInRun]) -> Spark | None:
    """Draw how many failures runs had, the oldest first; None where there is nothing to compare."""
    if len(runs) < 2:  # noqa: PLR2004 - two are compared
        return None
    highest = max(1, *(one.times for one in runs))
    heights = [max(1.0, RUN_HEIGHT * one.times / highest) for one in runs]
    bars: list[tuple[float, float, float, float]] = [
        (place * RUN_WIDTH, RUN_HEIGHT - height, RUN_WIDTH - 1, height)
        for place, height in enumerate(heights)
    ]
    said = ", ".join(f"{one.times:,} in run {one.run}" for one in runs)
    return Spark(bars, 0.0, f"Failures by run: {said}")


def _spark(times: Sequence[int], first: int, step: int, number: int, *, is_cut: bool) -> Spark:
    counted = Counter((one - first) // step for one in times)
    highest = max(counted.values())
    width = WIDTH / max(number, MOST_BARS // 2)
    bars = []
    for place, count in sorted(counted.items()):
        height = max(2.0, HEIGHT * count / highest)
        bars.append((place * width, HEIGHT - height, max(1.5, width - 1), height))
    said = f"at most {highest:,} failures in {format_period(step)}"
    return Spark(
        bars,
        (times[-1] - first) // step * width if is_cut else 0.0,
        f"{said}, of the newest {len(times):,}" if is_cut else said,
    )


def _period(first: int, end: int) -> str:
    """Write from when to when, with days where these are two."""
    begins, ends = (datetime.fromtimestamp(one, UTC) for one in (first, end))
    form = "%H:%M:%S" if begins.date() == ends.date() else "%Y-%m-%d %H:%M:%S"
    return f"{begins:{form}} to {ends:{form}}"
