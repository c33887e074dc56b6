"""Times to live and hints of changes that requests have in their meta."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.worker.spider.validation import CHANGED_AT, TTL, changed_at, check_ttl

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("ttl", "is_start", "is_good"),
    [
        ("1h", False, True),
        (timedelta(days=1), True, True),
        ("never", False, True),
        (0, True, True),
        (0, False, False),
        (False, True, False),
        ("soon", True, False),
    ],
)
def test_a_ttl_of_0_is_for_start_requests_alone(ttl, is_start, is_good):
    """A period or "never" is for any request; what is neither is an error that says where."""
    with nullcontext() if is_good else pytest.raises(OperationError, match="spider s"):
        check_ttl({TTL: ttl}, "spider s", is_start=is_start)


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        (None, None),
        (datetime(2026, 11, 29, 12), datetime(2026, 11, 29, 12, tzinfo=UTC)),  # noqa: DTZ001
        (datetime(2026, 11, 29, 12, tzinfo=EAST), datetime(2026, 11, 29, 10, tzinfo=UTC)),
    ],
)
def test_a_moment_without_a_time_zone_is_one_of_utc(given, moment):
    """48.4: what a request's meta says of its page's change is in UTC; None says nothing."""
    assert changed_at({CHANGED_AT: given}, "here") == moment
    assert changed_at({}, "here") is None


@pytest.mark.parametrize(
    "given",
    ["2026-11-29", 1_795_000_000, date(2026, 11, 29), datetime.min.replace(tzinfo=EAST)],
)
def test_what_is_no_moment_is_an_error_that_says_what_to_write(given):
    """48.4: text, a number, a date, and what is no moment in UTC."""
    said = r"^here: meta\['itemgraph_changed_at'\] .*(datetime\(2026|write)"
    with pytest.raises(OperationError, match=said):
        changed_at({CHANGED_AT: given}, "here")
