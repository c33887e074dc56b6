"""The small drawings of the cockpit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.store.admin.activity import LimitMinute
from scrapy_itemgraph.web.pages import plots

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
