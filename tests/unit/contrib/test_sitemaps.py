"""What a `lastmod` says, and which sitemaps were stamped when they were made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.contrib.sitemaps import are_stamped, read

STARTED = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("lastmod", "moment"),
    [
        ("2026-11-28T10:00:00Z", STARTED - DAY),
        ("2026-11-28T10:00Z", STARTED - DAY),
        ("2026-11-28T12:00:00.000+02:00", STARTED - DAY),
        ("2026-11-28T10:00:00", STARTED - DAY),
        ("2026-12-01T10:00:00Z", STARTED + 2 * DAY),
        ("2026-11-27", datetime(2026, 11, 28, tzinfo=UTC)),
        ("2026-11-29", STARTED),
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 2, tzinfo=UTC)),
    ],
)
def test_a_lastmod_says_until_when_a_page_may_have_changed(lastmod, moment):
    """48.4: a moment as it is, a date until the end of its day, or until the crawl started."""
    assert read(lastmod, STARTED) == moment


@pytest.mark.parametrize(
    "lastmod",
    [
        *("", "2026", "2026-11", "2026-11-31", "2026-11-28T", "soon", None),
        *("Sat, 28 Nov 2026 10:00:00 GMT", "9999-12-31"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-02:00"),
    ],
)
def test_a_lastmod_that_says_no_day_or_moment_is_none(lastmod):
    """48.4: a year, a month, other text, and what no clock can say."""
    assert read(lastmod, STARTED) is None


@pytest.mark.parametrize(
    ("moments", "is_stamped"),
    [
        ([STARTED - n * SECOND for n in range(10)], True),
        ([STARTED - n * SECOND for n in range(9)], False),
        ([STARTED - n * SECOND for n in range(61)], True),
        ([STARTED - n * SECOND for n in range(62)], False),
        ([STARTED - DAY] * 10, True),
        ([STARTED - DAY - SECOND] * 10, False),
        ([STARTED + DAY] * 10, True),
        ([STARTED + 2 * DAY] * 10, False),
        ([STARTED] * 9 + [STARTED - 365 * DAY], False),
        ([], False),
    ],
)
def test_a_stamped_sitemap_has_one_moment_of_the_last_day(moments, is_stamped):
    """48.4: ten entries or more, within a minute."""
    assert are_stamped(moments, STARTED) is is_stamped
