"""Times to live as people write them, and when results fall due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.model import due_times, moments, periods

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("completed_at", "ttl", "due"),
    [
        (NOON, timedelta(hours=6), datetime(2026, 11, 25, 18, tzinfo=UTC)),
        (NOON, None, None),
        (moments.LATEST, timedelta(days=1), moments.LATEST),
    ],
    ids=["after its time to live", "never", "no later than can be said"],
)
def test_a_result_falls_due_when_its_time_to_live_is_over(completed_at, ttl, due):
    """It is counted from the result's own completion."""
    assert due_times.next_due(completed_at, ttl) == due


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("6h", timedelta(hours=6)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("2w", timedelta(weeks=2)),
        (0.5, timedelta(milliseconds=500)),
        (60, timedelta(minutes=1)),
        (timedelta(days=1), timedelta(days=1)),
        ("36525d", timedelta(days=36525)),
        ("never", None),
    ],
)
def test_a_ttl_is_a_timedelta_a_number_of_seconds_or_a_period(given, expected):
    """SRAP-23: a time to live is a timedelta, seconds above 0, text such as "1d12h", or never."""
    assert periods.parse_ttl(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "soon",
        "",
        "1",
        "1y",
        "1 d",
        "d",
        "-1h",
        "0s",
        0,
        -1,
        0.0,
        1e-9,
        True,
        False,
        float("nan"),
        float("inf"),
        10**400,
        "36526d",
        "9" * 400 + "d",
        timedelta(0),
        timedelta(days=-1),
        timedelta(days=36526),
        None,
        [],
        b"1h",
    ],
)
def test_a_ttl_that_means_nothing_is_refused(given):
    """Zero, negative, bool, NaN, over a hundred years, no period: an error that shows forms."""
    with pytest.raises(ValueError, match='"90s", "6h" or "1d12h"') as raised:
        periods.parse_ttl(given)

    assert str(raised.value).startswith("ttl is ")
