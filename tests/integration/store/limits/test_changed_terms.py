"""Limits whose terms change while workers hold them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support.limits_held import WHOLE, ask, claim, held, limit, look

from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.store import slots as stored_slots

pytestmark = pytest.mark.server


def test_a_limit_whose_gap_goes_away_is_shared(connection, crawl):
    """A limit that had a gap and has only a cap now is had in units, by all who ask."""
    number = limit(connection)
    first, second = crawl.worker, crawl.new_worker()
    ask(connection, first, number, Terms(gap=1.0, concurrency=4))
    shared = Terms(concurrency=4)

    for _ in range(3):
        for one in (first, second):
            ask(connection, one, number, shared, wants=4)

    assert held(connection) == {(number, first): 2, (number, second): 2}


def test_a_shared_limit_that_gets_a_gap_has_one_holder(connection, crawl):
    """Those who had units keep none once their requests have ended, but for one of them."""
    number = limit(connection)
    crew = [crawl.new_worker() for _ in range(3)]
    for one in crew:
        look(connection, one, number, Terms(concurrency=6), wants=2)

    for running in (1, 0, 0):
        for one in crew:
            ask(connection, one, number, Terms(gap=1.0, concurrency=6), wants=2, running=running)

    assert len(held(connection)) == 1


def test_a_gap_is_nobodys_while_others_run_what_they_began_before(connection, crawl):
    """When a shared limit gets a gap, two whose requests still run do not both start more."""
    number = limit(connection)
    crew = [crawl.new_worker() for _ in range(2)]
    for one in crew:
        look(connection, one, number, Terms(concurrency=4), wants=2)

    grants = [
        ask(connection, one, number, Terms(gap=1.0, concurrency=4), wants=2, running=1)
        for one in crew
    ]

    may_start = [one for one in grants if one.units and one.in_force.is_exclusive]
    assert len(may_start) <= 1


def test_what_a_holder_runs_counts_when_its_gap_goes_away(connection, crawl):
    """One who has a limit whole and runs as much as it may leaves no units for others."""
    number = limit(connection)
    first, second = crawl.worker, crawl.new_worker()
    ask(connection, first, number, Terms(gap=0.1, concurrency=4))
    shared = Terms(concurrency=4)

    ask(connection, first, number, shared, wants=4, running=4)

    assert ask(connection, second, number, shared, wants=4).units == 0


def test_a_claim_does_not_let_go_of_what_runs(connection, crawl):
    """A claim, which knows of no requests, leaves what a worker's requests still take."""
    number = limit(connection)
    crew = [crawl.new_worker() for _ in range(2)]
    for one in crew:
        look(connection, one, number, Terms(concurrency=4), wants=2)
    gap = Terms(gap=1.0, concurrency=4)
    for one in crew:
        ask(connection, one, number, gap, wants=2, running=2)

    look(connection, crew[0], number, gap)

    assert held(connection) == {(number, one): 2 for one in crew}


def test_units_beside_who_has_it_whole_wait(connection, crawl):
    """A worker that knows no gap gets no units while another keeps one."""
    number = limit(connection)
    ask(connection, crawl.worker, number)

    assert ask(connection, crawl.new_worker(), number, Terms(concurrency=4)).units == 0


def test_a_queue_is_everybodys_again_when_the_gap_goes_away(connection, crawl):
    """Other workers look into a queue whose slot is shared now, though its holder is busy."""
    for name in "ABC":
        crawl.work(name, data={"url": "http://a.example/"})
    first, second = crawl.worker, crawl.new_worker()
    assert len(claim(crawl, first, Terms(gap=1.0, concurrency=4))) == 1
    (number,) = stored_slots.intern_slots(connection, ["a.example"]).values()

    ask(connection, first, number, Terms(concurrency=4), wants=1, running=1)

    assert len(claim(crawl, second, Terms(concurrency=4))) == 2


def test_a_holder_keeps_its_queue_to_itself_once_it_renews(connection, crawl):
    """A queue that does not say who has its slot, so that others would put it off, is marked."""
    crawl.work("A", data={"url": "http://a.example/"})
    assert len(claim(crawl, crawl.worker, WHOLE)) == 1
    (number,) = stored_slots.intern_slots(connection, ["a.example"]).values()
    connection.exec_driver_sql("UPDATE queues SET holder = NULL")

    ask(connection, crawl.worker, number)

    holder = sa.text("SELECT holder FROM queues WHERE slot_id = :slot")
    assert connection.scalar(holder, {"slot": number}) == crawl.worker
