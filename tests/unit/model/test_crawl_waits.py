"""Why a crawl of the queue waits, in a few words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.model.crawl_states import ManagedCrawl, State
from scrapy_itemgraph.model.crawl_waits import RunnerView, Waits, why

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
CRAWL = ManagedCrawl(
    name="c",
    state=State.ACTIVE,
    state_reason=None,
    spider="s",
    project="p",
    arguments={},
    settings={},
    nice=0,
    concurrency=1,
    tag=None,
    note=None,
    created_by=None,
    queued_at=NOW,
    next_at=None,
    time_limit=None,
    resource=None,
    keeps_fresh=False,
    crashes=0,
    place=1,
    jobs=0,
    run=0,
)
RUNNER = RunnerView(
    name="a", tags=[], only_tagged=False, places=2, free=0, locked=0, low=None, drains=False
)
FREE = replace(RUNNER, free=1)
BIG = replace(FREE, name="b", tags=["big"], only_tagged=True)


@pytest.mark.parametrize(
    ("crawl", "runners", "said"),
    [
        ({}, [], "no runner of the project p lives"),
        ({}, [FREE], "it is about to start: runner a can take it"),
        ({}, [RUNNER, BIG], "runner a: its places are taken (2)"),
        ({}, [RUNNER, RUNNER], "all places of 2 runners are taken"),
        (
            {},
            [RUNNER, replace(RUNNER, name="d", drains=True)],
            "its places are taken (2); 1 more cannot",
        ),
        ({}, [BIG], "runner b: it takes only crawls with one of its tags"),
        ({"tag": "big"}, [FREE], "no living runner has the tag big"),
        ({"tag": "big"}, [FREE, BIG], "it is about to start: runner b can take it"),
        ({"concurrency": 0}, [FREE], "it may have 0 processes"),
        ({"next_at": NOW + timedelta(minutes=5), "crashes": 2}, [FREE], "in 5m, after 2 abnormal"),
        ({"state": State.PAUSED, "state_reason": "the site is down"}, [], "the site is down"),
    ],
)
def test_what_keeps_a_crawl_is_said_in_a_few_words(crawl, runners, said):
    """MNB-4: of all that keeps a crawl from a process the most telling is said."""
    assert said in str(why(waiting(crawl, runners)))


def test_what_runs_or_is_over_does_not_wait():
    """A crawl with its processes, or one that was ended without a reason, waits for nothing."""
    running = replace(waiting({}, [FREE]), processes=1)
    over = waiting({"state": State.ABORTED}, [FREE])

    assert why(running) is None
    assert why(over) is None
    assert why(replace(over, processes=1)) == "what is under way comes to its end"
    assert why(replace(waiting({"resource": "login"}, [FREE]), resource_user="d")) == (
        "its resource login is used by the crawl d"
    )


def waiting(crawl, runners) -> Waits:
    """Return what decides whether a crawl runs that has no process."""
    return Waits(
        crawl=replace(CRAWL, **crawl),
        now=NOW,
        into_state=None,
        processes=0,
        runners=runners,
        resource_user=None,
    )
