"""Moments that Python cannot say in UTC are refused where they enter, or become the nearest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import moments
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.moments import EARLIEST, LATEST

NOW = datetime(2026, 11, 25, tzinfo=UTC)
FAR_EAST, FAR_WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
OUTSIDE = [
    datetime(1, 1, 1, tzinfo=FAR_EAST),
    datetime(9999, 12, 31, 23, 59, tzinfo=FAR_WEST),
]


@pytest.mark.parametrize("moment", OUTSIDE)
def test_a_not_before_outside_the_calendar_in_utc_is_refused(moment):
    """By spiders and as JSON alike, with an error that says what to write."""
    for operation in (
        ops.CreateItem("A", not_before=moment),
        ops.from_json({"op": "createItem", "id": "A", "notBefore": moment.isoformat()}),
    ):
        with pytest.raises(OperationError, match="outside the years 1 to 9999 in UTC; write one"):
            ops.checked(operation, "line 1")


@pytest.mark.parametrize("period", [timedelta.max, timedelta.min, timedelta(days=400_000)])
def test_a_not_before_that_leads_out_of_the_calendar_is_refused(period):
    """A period from now is a thousand years at most."""
    with pytest.raises(OperationError, match="it can be 365,250 at most"):
        ops.checked(ops.CreateItem("A", not_before=period), "line 1")


@pytest.mark.parametrize(
    "moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
def test_the_first_and_the_last_moment_of_the_calendar_are_taken(moment):
    """What can be said in UTC is a moment, however odd."""
    assert ops.checked(ops.CreateItem("A", not_before=moment), "line 1").not_before == moment


@pytest.mark.parametrize(
    ("period", "moment"),
    [
        (timedelta(days=1), NOW + timedelta(days=1)),
        (timedelta.max, LATEST),
        (timedelta.min, EARLIEST),
        (timedelta(days=2_913_000), LATEST),
    ],
)
def test_what_is_later_is_a_moment_whatever_the_period(period, moment):
    """A period that leads out of the calendar leads to its end."""
    assert moments.later(NOW, period) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("infinity", LATEST),
        ("Infinity", LATEST),
        ("-infinity", EARLIEST),
        ("294276-12-31T23:59:59+00:00", LATEST),
        ("10000-01-01T00:00:00+00:00", LATEST),
        ("4713-01-01T00:00:00+00:00 BC", EARLIEST),
        ("0001-01-01T00:00:00+14:00", EARLIEST),
        ("9999-12-31T23:59:59-12:00", LATEST),
    ],
)
def test_a_dumped_moment_that_python_cannot_say_becomes_the_nearest(text, moment):
    """As PostgreSQL writes them in JSON."""
    assert datetime.fromisoformat(moments.clamped(text)) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("2026-11-25T02:00:00+00:00", "2026-11-25T02:00:00.123456+00:00", "1969-07-20 20:17:40Z"),
        *("9998-12-31T00:00:00+00:00", "0002-01-01T00:00:00+00:00"),
        *("soon", "", "2026", None, 5, [1]),
    ],
)
def test_any_other_value_is_left_as_it_is(text):
    """Usual moments, and what is none and is refused by whoever stores it."""
    assert moments.clamped(text) == text
