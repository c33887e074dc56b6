"""The small drawings of the cockpit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.store.admin.activity import LimitMinute, SecondOfCrawl
from scrapy_itemgraph.web.pages import failure_sparks, plots

NOW = datetime(2030, 1, 1, 12, 30, 20, tzinfo=UTC)


def spark(by_age, gap):
    """Draw requests by the age of their minute."""
    start = NOW.replace(second=0)
    rows = [LimitMinute("a", start - timedelta(minutes=age), n) for age, n in by_age.items()]
    return plots.spark(rows, gap, NOW)


def test_bars_above_a_limit_are_those_from_before_it() -> None:
    """The line of what is allowed begins after the last minute with more: the limit was another."""
    found = spark({9: 600, 8: 580, 7: 60, 1: 58}, gap=1.0)

    assert found.line_x == (plots.SPARK_MINUTES - 8) * 10
    assert all(y > found.line - 2 for x, y, _ in found.bars if x >= found.line_x)
    assert found.is_new


@pytest.mark.parametrize("by_age", [{5: 60, 1: 64}, {5: 20}])
def test_a_limit_that_was_kept_has_its_line_from_end_to_end(by_age) -> None:
    """A request more at a minute's border is no other limit."""
    found = spark(by_age, gap=1.0)

    assert (found.line_x, found.is_new) == (0, False)
    assert found.line is not None


def test_a_limit_far_above_leaves_the_bars_their_room() -> None:
    """Bars are as high as the drawing where far more is allowed, and the number is said."""
    found = spark({5: 40, 1: 20}, gap=0.02)

    assert found.line is None
    assert found.allowed == 3000
    assert max(height for _, _, height in found.bars) == plots.SPARK_HEIGHT


@pytest.mark.parametrize(
    ("minutes", "pages", "is_short"), [((), 0, False), ((3, 1), 9, True), ((12, 1), 9, False)]
)
def test_a_crawl_of_some_minutes_is_drawn_by_the_second(minutes, pages, is_short) -> None:
    """Ten minutes of work, and few thousand pages, have bars of seconds; more has minutes."""
    begins = [NOW - timedelta(minutes=age) for age in minutes]
    slices = [plots.Slice(begin, pages=pages) for begin in begins]

    assert (plots.short_since(slices) is not None) == is_short
    assert plots.short_since([plots.Slice(NOW, pages=plots.MOST_SHORT + 1)]) is None


def test_a_short_crawl_fills_its_plot() -> None:
    """Its bars go from its first second to its last, and add up; the axis and a bar say when."""
    begin = NOW - timedelta(minutes=20)
    seconds = [SecondOfCrawl(begin + timedelta(seconds=n), 5, n % 2, 3, 0) for n in range(90)]

    found = plots.of_seconds(seconds, NOW)

    assert (len(found.bars), found.per) == (45, "in 2s")
    assert (found.pages, found.failures, found.items, found.kind) == (450, 45, 270, "new items")
    assert found.title == "12:10:20 to 12:11:49 (UTC)"
    assert (found.ticks[0], found.ticks[-1]) == ("12:10:20", "12:11:50")
    assert found.bars[-1].x + found.bars[-1].width == pytest.approx(plots.WIDTH - 1)
    assert found.bars[0].hint.startswith("12:10:20 UTC: 10 pages")


def test_failures_of_groups_stand_on_one_axis() -> None:
    """Bars of all groups have one scale of time; a mark tells where the looking began.

    The axis names the days where it goes over midnight.
    """
    now = NOW.timestamp()
    times = {"a": [now - 10, now - 70], "b": [now - 10, now - 10], "old": [now - 90_000]}

    found = failure_sparks.drawn(times, NOW, most=2)

    assert set(found.of) == {"a", "b"}
    assert len(found.of["a"].bars) == 2
    assert found.of["b"].bars[0][0] == found.of["a"].bars[-1][0] == found.of["b"].unknown
    assert "at most 2 failures" in found.of["b"].words
    assert found.axis.startswith("12:29:10 to 12:30:1")
    assert failure_sparks.drawn({}, NOW, most=2).axis == ""
    over_midnight = failure_sparks.drawn({"a": [now, now - 80_000]}, NOW, most=9)
    assert over_midnight.axis == "2029-12-31 14:00:00 to 2030-01-01 13:00:00 UTC, 1h a bar"
