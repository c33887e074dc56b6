"""Whether a crawl is well: one rule, for every place that says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scrapy_itemgraph.model.health import MANY, Facts, Health, RunFacts, judge

BEGAN = datetime(2026, 3, 1, 7, 34, 41, tzinfo=UTC)


def run(number: int = 1, pages: int = 0, failures: int = 0, error: str | None = None) -> RunFacts:
    """Return what a run did; each begins a day after the one before it."""
    at = BEGAN + timedelta(days=number - 1)
    return RunFacts(number=number, started_at=at, pages=pages, failures=failures, error=error)


def judged(*runs: RunFacts, **given: Any) -> tuple[Health, str]:
    """Judge a crawl by its last runs, the newest first; nothing else is wrong with it."""
    facts = {"paused_for": None, "failures": 0, "last_failure": None, "led_to_known": 0}
    return judge(Facts(runs=runs, **facts | given))


@pytest.mark.parametrize(
    ("runs", "given", "health", "why"),
    [
        ((), {}, Health.GREEN, "there was no run yet"),
        ((run(pages=3),), {}, Health.GREEN, "no failure is open"),
        ((run(),), {}, Health.GREEN, "no failure is open"),
        (
            (run(pages=3, failures=1),),
            {"failures": 1, "last_failure": "KeyError in parse"},
            Health.AMBER,
            "1 failure is open, the last: KeyError in parse",
        ),
        ((run(pages=3, failures=9, error="no login"),), {}, Health.GREEN, "no failure is open"),
        (
            (run(pages=3),),
            {"failures": MANY},
            Health.AMBER,
            "1,000 or more failures are open",
        ),
        ((run(pages=30),), {"led_to_known": 10}, Health.GREEN, "no failure is open"),
        (
            (run(pages=30),),
            {"led_to_known": 11, "failures": 2},
            Health.AMBER,
            "2 failures are open; redirects of more than 10 pages led to a page that was known",
        ),
        (
            (run(failures=1),),
            {"failures": 1, "last_failure": "ValueError in parse"},
            Health.RED,
            "run 1 did no page, since 2026-03-01 07:34:41Z: ValueError in parse",
        ),
        (
            (run(failures=2),),
            {},
            Health.RED,
            "run 1 did no page, since 2026-03-01 07:34:41Z: 2 failures",
        ),
        (
            (run(error="OSError: no such file"),),
            {},
            Health.RED,
            "run 1 did no page, since 2026-03-01 07:34:41Z: OSError: no such file",
        ),
        (
            (run(pages=3),),
            {"paused_for": "5 processes in a row ended abnormally"},
            Health.RED,
            "it was paused, and not by a person: 5 processes in a row ended abnormally",
        ),
    ],
)
def test_health_and_why(runs, given, health, why):
    """Red: no page but failures, or a machine's pause; amber: what is open, or led astray."""
    assert judged(*runs, **given) == (health, why)


def test_a_broken_crawl_says_since_when():
    """Runs that did no page are counted back to the last one that did one, or did nothing."""
    broken = [run(number, failures=1) for number in (4, 3, 2)]

    assert judged(*broken, run(1, pages=300), run(0, failures=1)) == (
        Health.RED,
        "runs 2 to 4 did no page, since 2026-03-02 07:34:41Z: 1 failure",
    )
    assert judged(run(5), *broken)[0] is Health.GREEN


@pytest.mark.parametrize(
    ("found", "health"),
    [
        (run(pages=3), Health.GREEN),
        (run(pages=3, failures=1), Health.AMBER),
        (run(pages=3, error="no login"), Health.AMBER),
        (run(failures=1), Health.RED),
        (run(), None),
    ],
)
def test_how_a_run_went(found, health):
    """By what it did alone, whatever was handled since; one that did nothing went in no way."""
    assert found.health is health
