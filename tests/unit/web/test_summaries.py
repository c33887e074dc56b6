"""What goes on besides a crawl, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scrapy_itemgraph.model.counts import Estimate
from scrapy_itemgraph.web.pages import summaries

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def test_long_work_has_a_rate_and_the_time_left() -> None:
    """A sweep and another process's work say how far they are, how fast, and how long still."""
    a_minute_ago = NOW - timedelta(minutes=1)
    sweep = {"task": "parse", "tags": ["page"], "ruleset": None, "opened_at": a_minute_ago}
    status = {
        "sweeps": [{**sweep, "swept": 6000, "left": Estimate(120_000)}],
        "under_way": [
            {"what": "dump", "done": 600, "total": None, "pid": 7, "since": a_minute_ago}
        ],
        "old_snapshot": None,
    }

    swept, dumped = summaries.notes(status, NOW)

    assert swept.startswith("a change of the task 'parse' is brought to the items: 6,000 of ~130,")
    assert swept.endswith(", 100 a second, 20m 40s left")
    assert dumped == "dump is under way, in process 7: 600, 10 a second"


def test_rules_that_are_applied_say_what_they_did() -> None:
    """MNB-11: of rules applied to what waits it is said how many pages they set aside."""
    sweep = {"ruleset": 3, "held": 2000, "freed": 1, "swept": 6000, "left": 0}
    status = {
        "sweeps": [{**sweep, "task": None, "tags": [], "opened_at": NOW - timedelta(minutes=1)}],
        "under_way": [],
        "old_snapshot": None,
    }

    (said,) = summaries.notes(status, NOW)

    assert said.startswith(
        "ruleset 3 is applied to what waits: 2,000 pages set aside, 1 taken back"
    )
    assert said.endswith("looked at: 6,000, 100 a second")


def test_work_that_has_just_begun_has_no_rate_yet() -> None:
    """A rate of a moment would say nothing."""
    work = {"what": "restart", "done": 5, "total": 1000, "pid": 7, "since": NOW}
    status = {"sweeps": [], "under_way": [work], "old_snapshot": None}

    assert list(summaries.notes(status, NOW)) == ["restart is under way, in process 7: 5 of 1,000"]


def test_what_a_run_knows_stands_side_by_side() -> None:
    """Parts fill the bar one after the other; some are none; what waits after the end is apart."""
    names = ("earlier", "running", "later", "retries", "gone", "refused", "given_up")
    given = {**dict.fromkeys(names, 0), "done": 75, "waiting": 0, "failed": 25, "to_do": 100}

    assert [
        (one.word, one.number, one.x, one.width) for one in summaries.shares(given, is_over=False)
    ] == [("done", 75, 0.0, 750.0), ("waiting", 0, 750.0, 0.0), ("failed", 25, 750.0, 250.0)]
    waiting = [
        one
        for one in summaries.shares({**given, "waiting": 50}, is_over=True)
        if one.word == "waiting"
    ]
    assert [(one.number, one.width) for one in waiting] == [(50, 0.0)]


def test_workers_of_older_code_are_named() -> None:
    """A note says which workers run other code than is on disk, of which file."""
    old = {"id": 3, "is_older": True, "code_file": "/shop/books.py"}

    assert not list(summaries.older([{**old, "is_older": False}]))
    (said,) = summaries.older([old, {**old, "id": 4}])
    assert said.startswith(
        "workers 3, 4 run older code than is on disk: /shop/books.py has changed"
    )
