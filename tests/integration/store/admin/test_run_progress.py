"""How far a run is, and what it did: one number that is honest, also after a worker was killed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.graphs import Crawl

from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.admin import run_lists, status
from scrapy_itemgraph.store.registry import runs


@pytest.fixture
def crawl(connection) -> Crawl:
    """Return a crawl with a task, and a run that has begun."""
    crawl = Crawl.of(connection)
    runs.join(connection, crawl.id)
    return crawl


def change_run(crawl: Crawl, change: str) -> None:
    """Change the row of the crawl's run."""
    crawl.rows(f"UPDATE runs SET {change} RETURNING 1")


def progress(crawl: Crawl) -> dict[str, Any]:
    """Return how far the crawl's run is."""
    found: dict[str, Any] = status.status(crawl.connection, crawl.id)["progress"]
    return found


def test_pages_that_nobody_has_to_do_are_not_in_the_share(crawl):
    """Pages that are gone or refused, or that earlier runs did or failed, are not to do."""
    crawl.done("EARLIER")
    crawl.failed("BEFORE")
    crawl.age(days=1)
    change_run(crawl, "started_at = now() - interval '1 hour'")
    crawl.done("A")
    crawl.rows(
        "UPDATE results SET is_held = true, is_successful = true WHERE item_id = :item RETURNING 1",
        item=crawl.item_id("A"),
    )
    crawl.done("B")

    found = progress(crawl)

    assert (found["gone"], found["failed"], found["earlier"]) == (1, 1, 1)
    assert (found["done"], found["to_do"], found["share"]) == (1, 1, 1.0)
    crawl.failed("NOW")
    assert (progress(crawl)["to_do"], progress(crawl)["share"]) == (2, 0.5)


def test_what_waits_after_the_end_of_a_run_is_the_next_ones(crawl):
    """While a run goes on all that waits is its own; a crawl with nothing to do has no share."""
    assert progress(crawl)["share"] is None
    crawl.done("A")
    crawl.work("B")
    assert (progress(crawl)["to_do"], progress(crawl)["share"]) == (2, 0.5)

    change_run(crawl, "is_finished = true, ended_at = now()")
    assert (progress(crawl)["to_do"], progress(crawl)["share"]) == (1, 1.0)


def test_a_run_waits_for_retries_and_not_for_work_of_another_day(crawl):
    """Both come later; a page that was tried before is the run's to do, and the other is not."""
    crawl.done("A")
    crawl.work("TOMORROW", not_before=datetime.now(UTC) + timedelta(days=1))
    assert (progress(crawl)["later"], progress(crawl)["share"]) == (1, 1.0)

    crawl.end(crawl.claimed("TRIED"), outcome=Outcome.RETRY, delay=timedelta(hours=1))

    found = progress(crawl)
    assert (found["later"], found["retries"], found["to_do"]) == (2, 1, 2)
    assert found["share"] == 0.5


def test_a_run_whose_worker_was_killed_says_at_least(crawl):
    """The last numbers of the worker are lost; those of other runs are whole."""
    assert not run_lists.last(crawl.connection, crawl.id).at_least
    crawl.claimed("A")
    crawl.die()

    assert run_lists.last(crawl.connection, crawl.id).at_least
    change_run(crawl, "is_finished = true, ended_at = now() + interval '1 hour'")
    crawl.rows("UPDATE crawls SET run = 2 RETURNING 1")
    crawl.rows(
        "INSERT INTO runs (crawl_id, number, started_at) "
        "VALUES (:crawl, 2, now() + interval '2 hours') RETURNING 1",
        crawl=crawl.id,
    )
    listed = run_lists.runs(crawl.connection, crawl.id)
    assert [(one.number, one.at_least) for one in listed] == [(2, False), (1, True)]
