"""A server's clock that was moved ahead is told from one that is slow to answer."""

from __future__ import annotations

import math

import pytest

from scrapy_itemgraph.postgres.server_clock import ServerClock


@pytest.mark.parametrize(
    ("told", "answered", "ahead"),
    [
        (1000.0, 11.0, 0.0),  # it stood still, or was set back
        (1001.0, 11.0, 0.0),
        (1001.01, 11.0, 0.0),  # as clocks are adjusted
        (1001.5, 11.5, 0.0),  # a slow answer
        (1001.1, 11.0, 0.1),
        (4601.0, 11.0, 3600.0),
    ],
)
def test_only_what_passed_on_the_server_alone_is_a_jump(told, answered, ahead):
    """A jump is what the server's clock went on beyond all the time that can have passed here."""
    clock = ServerClock()
    clock.note(1000.0, 10.0, 10.0)
    assert clock.since_jump(99.0) == math.inf

    clock.note(told, answered, answered)

    assert clock.ahead == pytest.approx(ahead)
    assert clock.since_jump(answered + 2.0) == (2.0 if ahead else math.inf)


def test_a_first_answer_is_no_jump():
    """Where nothing was told before there is nothing to compare."""
    clock = ServerClock()
    clock.note(1e9, 1.0, 1.0)

    assert clock.since_jump(2.0) == math.inf
