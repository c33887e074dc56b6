"""When the next request may start, so that requests leave a gap apart; no limit is held here."""

from __future__ import annotations

import math

import pytest

from scrapy_itemgraph.throttle.start_times import StartTimes

GAP = 2.0


def start_times() -> StartTimes:
    """Return start times under which nothing has started."""
    return StartTimes(lambda: GAP)


def test_the_first_request_may_start_at_once():
    """Nothing has left, so there is no gap to keep."""
    assert start_times().due == -math.inf
    assert not start_times().has_started


def test_nothing_starts_while_a_request_is_on_its_way():
    """Only once it has left is it known when the gap is over."""
    one = start_times()
    one.begin(10.0, is_alone=True)
    assert one.due == math.inf

    one.sent(10.5)
    assert one.due == 10.5 + GAP


def test_without_a_gap_to_keep_a_request_holds_up_no_other():
    """What may run beside others lets them start before it has left."""
    one = start_times()
    one.begin(10.0, is_alone=False)

    assert one.due == -math.inf
    assert one.unsent == 1


def test_the_gap_may_change_meanwhile():
    """A gap counts as it is when a request leaves, for AutoThrottle changes it."""
    gaps = [5.0]
    one = StartTimes(lambda: gaps[-1])
    one.begin(10.0, is_alone=True)
    gaps.append(7.0)
    one.sent(10.5)

    assert one.due == 17.5


def test_what_others_started_is_waited_for():
    """The holder before may have started a request just now; a wait never shortens our own gap."""
    one = start_times()
    one.wait(13.0)
    assert one.due == 13.0

    one.begin(13.0, is_alone=True)
    one.sent(13.5)
    one.wait(14.0)
    assert one.due == 13.5 + GAP


def test_a_wait_changes_nothing_while_a_request_is_on_its_way():
    """Nobody knows yet when the gap after it is over."""
    one = start_times()
    one.begin(10.0, is_alone=True)
    one.wait(11.0)

    assert one.due == math.inf


def test_what_was_forgotten_is_not_counted_from():
    """Who gave a limit up and has it again counts from what others started meanwhile."""
    one = start_times()
    one.begin(10.0, is_alone=True)
    one.sent(10.0)
    one.forget()
    one.wait(10.1)

    assert one.due == 10.1
    assert not one.has_started


def test_a_late_connection_leaves_a_gap_before_the_next_start():
    """The gap counts from when the request goes, which may be ahead of the clock."""
    one = start_times()
    one.begin(10.0, is_alone=True)
    one.sent(10.1, has_left=False)
    assert one.due == pytest.approx(10.1 + GAP)

    assert one.leaves_at(10.2) == -math.inf
    one.leave(11.0, is_gone=False)
    assert one.due == 11.0 + GAP
    assert one.leaves_at(11.0) == 11.0 + GAP


def test_a_connection_is_taken_for_open_for_a_while_after_an_answer():
    """After 15 seconds of silence a request is expected to need a new one."""
    one = start_times()
    assert one.is_cold(10.0)

    one.answered(10.0)
    assert not one.is_cold(25.0)
    assert one.is_cold(25.1)
