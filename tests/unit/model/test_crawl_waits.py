"""Sentences that say why a crawl of the queue runs or waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.model.crawl_states import ManagedCrawl, State
from scrapy_itemgraph.model.crawl_waits import RunnerView, Waits, sentences

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
CRAWL = ManagedCrawl(
    name="my books",
    state=State.ACTIVE,
    state_reason=None,
    spider="books",
    project="shop",
    arguments={},
    settings={},
    nice=0,
    concurrency=1,
    tag=None,
    note=None,
    created_by="ann",
    queued_at=NOW,
    next_at=None,
    time_limit=None,
    resource="proxy",
    keeps_fresh=False,
    crashes=0,
    place=3,
    jobs=0,
    run=1,
)
RUNNER = RunnerView(
    name="north", tags=["eu"], only_tagged=False, places=2, free=1, locked=0, low=None, drains=False
)


def said(runner=None, *, processes=0, resource_user=None, **crawl):
    """Return the sentences about a crawl, with one runner or none."""
    waits = Waits(
        crawl=replace(CRAWL, **crawl),
        now=NOW,
        into_state=None,
        processes=processes,
        runners=() if runner is None else (replace(RUNNER, **runner),),
        resource_user=resource_user,
    )
    return list(sentences(waits))


@pytest.mark.parametrize(
    ("runner", "crawl", "wanted"),
    [
        ({}, {}, "it can take it (1 of 2 places free)"),
        ({}, {"tag": "us"}, "it does not have the tag us"),
        ({}, {"tag": "eu"}, "it can take it (1 of 2 places free)"),
        ({"only_tagged": True}, {}, "it takes only crawls with one of its tags"),
        ({"drains": True}, {}, "it drains"),
        ({"low": "1 GB of disk is free"}, {}, "1 GB of disk is free"),
        ({"free": 0}, {}, "its places are taken (2)"),
        (
            {"free": 0, "locked": 1},
            {},
            "its places are taken (2, 1 of them locked to other crawls)",
        ),
    ],
)
def test_each_runner_is_named_with_why_it_does_not_take_the_crawl(runner, crawl, wanted):
    """MNB-2: by tags, by only_tagged, as it drains, is low, or has no place."""
    place, line, *rest = said(runner, **crawl)

    assert place == "it waits; its place in the queue of the project shop is 3"
    assert line == f"runner north: {wanted}"
    assert bool(rest) is (crawl.get("tag") == "us")


def test_what_of_the_crawl_itself_holds_it_up_is_said_alone():
    """It has crashed and is put off, or another crawl has its resource: no runner matters."""
    assert said({}, next_at=NOW + timedelta(seconds=90), crashes=3) == [
        "it does not start before 2026-11-26 12:01:30Z, in 1m 30s, after 3 abnormal ends in a row"
    ]
    assert said({}, resource_user="other") == ["its resource proxy is used by the crawl other"]
    assert said({}, processes=1) == ["1 process runs it, of 1 at most"]


def test_a_crawl_that_is_paused_drains_first_and_the_command_can_be_pasted():
    """A name with a blank is quoted for a shell."""
    assert said({}, state=State.PAUSED, state_reason="it is night", processes=2) == [
        "2 processes run it, of 1 at most",
        "it is paused: it is night",
        "it drains: what is under way comes to its end",
        "to have it go on: scrapy itemgraph crawls resume 'my books'",
    ]
