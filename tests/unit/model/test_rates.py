"""How rates are written, and how those that cannot be kept are refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from scrapy_itemgraph import RateLimit


@pytest.mark.parametrize(
    ("rate", "gap"),
    [
        ("10/s", 0.1),
        ("30/min", 2.0),
        ("1/10s", 10.0),
        ("1.5/s", 1 / 1.5),
        ("0.5/s", 2.0),
        ("1/0.5s", 0.5),
        ("10 / s", 0.1),
        (" 1/10 s ", 10.0),
        ("1/sec", 1.0),
        ("1/second", 1.0),
        ("2/10seconds", 5.0),
        ("1/m", 60.0),
        ("6/minute", 10.0),
        ("1/5 minutes", 300.0),
        ("60/h", 60.0),
        ("1/hour", 3600.0),
        ("1/2hours", 7200.0),
        ("1/d", 86_400.0),
        ("1/day", 86_400.0),
        ("4/2days", 43_200.0),
    ],
)
def test_a_rate_is_the_least_gap_between_two_starts(rate, gap):
    """SRAP-25: a number over a time, in seconds to days, is the gap between two starts."""
    limit = RateLimit.read(rate, "it")

    assert limit.gap == pytest.approx(gap)
    assert limit.concurrency is None


@pytest.mark.parametrize(
    "value",
    [
        "fast",
        "",
        "10",
        "10/",
        "/s",
        "10/s/s",
        "10 s",
        "10/week",
        "10/S",
        "0/s",
        "0.0/s",
        "-1/s",
        "1/-1s",
        "1/0s",
        "nan/s",
        "inf/s",
        "1e9/s",
        "٣/s",
        "9" * 400 + "/s",
        "1/" + "9" * 400 + "s",
        "1/365d",
        "1/86401s",
        "0.5/d",
        10,
        0.5,
        True,
        None,
        b"10/s",
        {"rate": "10/s"},
    ],
)
def test_a_rate_that_cannot_be_kept_is_refused(value):
    """What is no rate, or below one a day, is an error that names it and shows right spellings."""
    with pytest.raises(ValueError, match='"10/s", "30/min" or "1/10s"') as raised:
        RateLimit.read(value, "rate_limit")

    assert str(raised.value).startswith(f"rate_limit is {value!r:.80}; write ")


def test_a_limit_that_is_one_is_read_as_it_is():
    """A RateLimit stands wherever a rate does."""
    limit = RateLimit("10/s", concurrency=2)

    assert RateLimit.read(limit, "it") is limit


def test_a_limit_of_concurrency_alone_has_no_gap():
    """SRAP-25: a limit may be of a rate, of a concurrency, or of both."""
    limit = RateLimit(concurrency=3)

    assert (limit.rate, limit.gap, limit.concurrency) == (None, None, 3)


def test_a_limit_without_either_is_refused():
    """A limit that limits nothing is an error that shows one that does."""
    with pytest.raises(ValueError, match=r'a rate, a concurrency or both: RateLimit\("10/s"'):
        RateLimit()


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, "2", True, 2**31, float("nan")])
def test_a_concurrency_that_is_no_integer_from_one_is_refused(concurrency):
    """A concurrency is an integer from 1, or the error quotes what it is."""
    with pytest.raises(ValueError, match="concurrency must be an integer from 1, not "):
        RateLimit("10/s", concurrency=concurrency)


@pytest.mark.parametrize("rate", ["fast", "0/s", 10, True])
def test_a_limit_is_checked_where_it_is_made(rate):
    """A RateLimit that cannot be kept is an error on the line that makes it."""
    with pytest.raises(ValueError, match=r"^rate is .*; write how many"):
        RateLimit(rate)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (RateLimit("10/s"), "10/s"),
        (RateLimit(" 1 / 10 s"), "1/10s"),
        (RateLimit(concurrency=2), "2 at once"),
        (RateLimit("10/s", concurrency=2), "10/s, 2 at once"),
    ],
)
def test_a_limit_is_written_back_for_people(limit, text):
    """A limit reads as it was written, without spaces."""
    assert str(limit) == text


def test_limits_are_plain_values():
    """A limit is frozen, compared by what was written, and may be copied and pickled."""
    limit = RateLimit("10/s", concurrency=2)

    assert limit == RateLimit("10/s", concurrency=2)
    assert limit != RateLimit("10/s")
    assert {limit: 1}[copy.deepcopy(limit)] == 1
    assert pickle.loads(pickle.dumps(limit)).gap == limit.gap
    assert repr(limit) == "RateLimit(rate='10/s', concurrency=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        limit.rate = "1/s"
