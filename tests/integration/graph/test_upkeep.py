"""Upkeep: a worker's round for its crawl takes over, stages and sweeps, in that order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import graphs
import oracle
import pytest
import sqlalchemy as sa

from scrapy_itemgraph import SetTTL
from scrapy_itemgraph.store.registry import upkeep

pytestmark = pytest.mark.server

STEPS = [upkeep.TIMERS, upkeep.RESULTS, upkeep.SWEEP, upkeep.DONE]


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def round_of(crawl, step=upkeep.TAKE_OVER):
    """Do a round from a step on, each transaction of it committed; return what they did."""
    done = []
    while step != upkeep.DONE:
        with graphs.committed(crawl.connection):
            done.append(
                upkeep.keep_up(
                    crawl.connection,
                    crawl.id,
                    crawl.worker,
                    crawl.registration.tasks,
                    until=None,
                    step=step,
                )
            )
        step = done[-1].next_step
    return done


def test_a_round_without_anything_to_do_is_one_transaction(crawl):
    """Where nobody died, nothing fell due and no sweep is open, one transaction finds that."""
    crawl.done("A", SetTTL(timedelta(days=1)))

    (done,) = round_of(crawl)

    assert (done.timers, done.due, done.is_sweeping, done.redefined) == (0, 0, False, frozenset())
    assert done.taken_over.claims == 0


def test_a_round_does_each_step_that_has_something_in_a_transaction_of_its_own(crawl):
    """A dead worker's claim, a timer, a result that fell due and a sweep are four transactions."""
    crawl.done("OLD", SetTTL(timedelta(days=1)))
    crawl.work("SOON", not_before=timedelta(hours=1))
    past = {"past": datetime.now(UTC) - timedelta(seconds=1)}
    for column in ("work SET not_before", "results SET due_at"):
        crawl.connection.execute(sa.text(f"UPDATE {column} = :past"), past)
    dead = crawl.new_worker(timedelta(seconds=-1))
    crawl.work("A")
    crawl.claim(worker=dead)
    crawl.register(swept=False, parse={"tags": ["page"], "version": "2"})

    done = round_of(crawl)

    assert [one.next_step for one in done] == STEPS
    assert done[0].taken_over.claims >= 1
    assert [one.timers for one in done] == [0, 1, 0, 0]
    assert [one.due for one in done] == [0, 0, 1, 0]
    assert done[-1].is_sweeping
    crawl.sweep()


def test_a_round_names_the_tasks_that_a_later_start_declares_otherwise(crawl):
    """A worker that was registered with an older declaration is told of it."""
    old = crawl.registration
    crawl.register(parse={"tags": ["page"], "version": "2"})
    crawl.registration = old

    (done,) = round_of(crawl, step=upkeep.SWEEP)

    assert done.redefined == {"parse"}
