"""Numbers and estimates of them."""

from __future__ import annotations

import json

import pytest

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.counts import Estimate


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.0, 0), (0.3, 0), (7.2, 7), (123, 120), (99_600, 100_000), (1_254_321, 1_300_000)],
)
def test_an_estimate_has_two_digits(number, expected):
    """An estimate is rounded to what a sample can tell."""
    assert counts.rounded(number) == expected
    assert isinstance(counts.rounded(number), Estimate)


def test_people_see_which_number_is_an_estimate():
    """An estimate has ~ before it, and is a number like any other in JSON."""
    assert counts.shown(1_234_567) == "1,234,567"
    assert counts.shown(Estimate(1_200_000)) == "~1,200,000"
    assert json.dumps({"items": Estimate(7)}) == '{"items": 7}'
    assert counts.estimated({"a": 1, "b": Estimate(1), "c": "x"}) == ("b",)


def test_what_is_computed_from_an_estimate_is_one():
    """Sums and differences are estimates where a part is, and exact where none is."""
    assert counts.total([1, 2]) == 3
    assert not isinstance(counts.total([1, 2]), Estimate)
    assert isinstance(counts.total([1, Estimate(200)]), Estimate)
    assert counts.less(5, 2) == 3
    assert not isinstance(counts.less(5, 2), Estimate)
    assert counts.less(Estimate(5), 7) == 0
    assert isinstance(counts.less(5, Estimate(2)), Estimate)
