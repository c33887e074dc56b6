"""Limits hold while the server's clock is moved: who takes one over waits by a clock of its own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from support import graphs, moved_clocks
from support.limits_held import GAP, ask, give_up, held, is_about, later, limit, look

from scrapy_itemgraph.model.limits import LOOKAHEAD, Terms
from scrapy_itemgraph.store.registry import dead_processes, workers

pytestmark = pytest.mark.server

AN_HOUR = 3600.0


class Two:
    """Two workers of a crawl, each with an engine of its own, and a limit."""

    def __init__(self, url, engines) -> None:
        self.url = url
        self.engines = engines
        with engines[0].begin() as connection:
            crawl = graphs.Crawl.of(connection)
            self.crawl_id = crawl.id
            self.workers = crawl.worker, crawl.new_worker()
            self.limit = limit(connection)

    def do(self, number, function, *given, **named):
        """Call a function of a connection as one of the workers."""
        with self.engines[number].begin() as connection:
            return function(connection, self.workers[number], self.limit, *given, **named)


@pytest.fixture
def two(database):
    """Return two workers on a server whose clock can be moved."""
    moved_clocks.install(database)
    with ExitStack() as stack:
        engines = [stack.enter_context(moved_clocks.process(database)) for _ in range(2)]
        yield Two(database, engines)


def test_who_follows_waits_the_gap_though_the_clock_jumped_ahead(two):
    """A start is no longer ago than the time that passed for who takes the limit over."""
    assert two.do(0, look).units == 1
    assert two.do(1, look).units == 0
    two.do(0, give_up, last_ago=0.0)

    moved_clocks.move(two.url, AN_HOUR)

    for how in (look, ask):
        refused = two.do(1, how)
        assert (refused.units, refused.due_in) == (0, is_about(GAP))
        assert refused.again_in == is_about(GAP - LOOKAHEAD)


def test_a_worker_that_lives_is_not_dead_because_the_clock_jumped_ahead(two):
    """Its lease seems to be over before it could renew it; it keeps its limits and its claims."""
    assert two.do(0, look).units == 1
    assert two.do(1, look).units == 0

    moved_clocks.move(two.url, AN_HOUR)

    assert two.do(1, look).units == 0
    with two.engines[1].begin() as connection:
        assert held(connection) == {(two.limit, two.workers[0]): 1}
        assert dead_processes.take_over(connection, two.crawl_id, two.workers[1]).workers == 2
    assert two.do(0, ask).units == 1


def test_what_the_dead_had_is_not_free_because_the_clock_jumped_ahead(two):
    """It was noted when that is free; until then who waits counts by a clock of its own."""
    assert two.do(0, look).units == 1
    with two.engines[1].begin() as connection:
        workers.stop(connection, two.workers[0], "killed")
    assert two.do(1, look).units == 0

    moved_clocks.move(two.url, AN_HOUR)

    assert two.do(1, ask).units == 0


def test_a_limit_is_taken_after_its_gap_though_the_clock_was_set_back(two):
    """A start in the future counts as one of now, so that nobody waits until the clock is there."""
    assert two.do(0, look).units == 1
    two.do(0, give_up, last_ago=0.0)

    moved_clocks.move(two.url, -AN_HOUR)

    refused = two.do(1, ask)
    assert (refused.units, refused.due_in) == (0, is_about(GAP))
    with two.engines[1].begin() as connection:
        later(connection, GAP)
    assert two.do(1, ask).units == 1


def test_what_the_dead_had_is_free_though_the_clock_was_set_back(two):
    """When it is free is noted anew, and is not an hour away."""
    terms = Terms(concurrency=1)
    assert two.do(0, look, terms).units == 1
    with two.engines[1].begin() as connection:
        workers.stop(connection, two.workers[0], "killed")
    assert two.do(1, ask, terms).units == 0

    moved_clocks.move(two.url, -AN_HOUR)

    assert two.do(1, ask, terms).units == 0
    with two.engines[1].begin() as connection:
        later(connection, 5.0)
    assert two.do(1, ask, terms).units == 1
