"""Jobs: why a process is to stop, what it says of it, and how its end is judged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.model.jobs import REASONS, JobState, Stop, StopOrder, Wishes, state_after

AT = datetime(2026, 11, 26, 12, 3, 4, tzinfo=UTC)


def order(state: State, stop: Stop | None = None, *, is_superseded: bool = False, **given):
    """Return what a process of a crawl is to do."""
    wishes = Wishes(crawl="my shop", state=state, stop_wanted=stop, job=1, **given)
    return StopOrder.of(wishes, is_superseded=is_superseded)


@pytest.mark.parametrize(
    ("state", "stop", "reason"),
    [
        (State.ACTIVE, None, None),
        (State.FINISHED, None, None),
        (State.PAUSED, None, "paused"),
        (State.ABORTED, Stop.PREEMPT, "aborted"),
        (State.ACTIVE, Stop.PREEMPT, "preempted"),
        (State.ACTIVE, Stop.DRAIN, "drained"),
        (State.ACTIVE, Stop.PAUSE, None),
        (State.ACTIVE, Stop.ABORT, None),
    ],
)
def test_a_process_stops_for_its_crawls_state_or_for_its_job(state, stop, reason):
    """A pause that was taken back by then stops nothing."""
    found = order(state, stop)

    assert (None if found is None else found.reason) == reason


def test_the_order_says_who_wants_it_and_how_to_go_on():
    """By whom, when, why, and the command, as a shell takes it."""
    paused = order(State.PAUSED, by="ann@desk", at=AT, why="too fast")
    lost = order(State.ACTIVE, is_superseded=True)

    assert paused.sentence == (
        "The crawl 'my shop' was paused by ann@desk at 2026-11-26 12:03:04 UTC (too fast); to have "
        "it go on: scrapy itemgraph crawls resume 'my shop'"
    )
    assert lost.reason == "superseded"
    assert "was ended without it" in lost.sentence
    for stop in set(Stop) - {Stop.PAUSE, Stop.ABORT}:
        assert "'my shop'" in order(State.ACTIVE, stop).sentence


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("finished", JobState.COMPLETED),
        ("closespider_timeout", JobState.COMPLETED),
        ("shutdown", JobState.CANCELLED),
        ("superseded", JobState.CANCELLED),
        *((reason, JobState.CANCELLED) for reason in REASONS.values()),
        ("itemgraph_error", JobState.TEMPORARY_ERROR),
        (None, JobState.TEMPORARY_ERROR),
    ],
)
def test_a_job_ends_as_its_process_says(reason, state):
    """SS-3: done, as it was asked for, or by an error that may pass."""
    assert state_after(reason) is state
