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


@pytest.mark.parametrize(("silence", "untrusted"), [(14.0, 0.0), (76.0, 76.0)])
def test_leases_that_ended_while_nothing_was_heard_are_not_over(silence, untrusted):
    """MNB-4: after an outage, leases may seem over for as long as it lasted, for five minutes."""
    clock = ServerClock(hears_always=True)
    clock.note(1000.0, 10.0, 10.0)
    clock.note(1000.0 + silence, 10.0 + silence, 10.0 + silence)
    clock.note(1020.0 + silence, 30.0 + silence, 30.0 + silence)  # a shorter one after it

    longest = max(untrusted, 20.0)
    assert clock.untrusted(31.0 + silence) == longest
    assert clock.untrusted(329.0 + silence) == longest
    assert clock.untrusted(331.0 + silence) == 0.0


def test_a_process_that_asks_seldom_takes_no_silence_for_an_outage():
    """A command that was idle for a while finds the dead as soon as one that was not."""
    clock = ServerClock()
    clock.note(1000.0, 10.0, 10.0)
    clock.note(1100.0, 110.0, 110.0)

    assert clock.untrusted(111.0) == 0.0
