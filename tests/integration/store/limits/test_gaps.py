"""How gaps hold from one holder of a limit to the next, and how a limit is kept."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support.graphs import LEASE
from support.limits_held import (
    GAP,
    WHOLE,
    ask,
    asking,
    claim,
    give_up,
    held,
    is_about,
    later,
    limit,
    look,
    lose_sign_of,
)

from scrapy_itemgraph.model.limits import LOOKAHEAD, SlotFeedback, Terms, Use
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import processes, workers

pytestmark = pytest.mark.server


# Gaps from one holder to the next


def test_the_next_holder_waits_the_rest_of_the_gap(connection, crawl):
    """What a holder started last is kept, so that the next one keeps the gap to it."""
    number = limit(connection)
    first, second = crawl.worker, crawl.new_worker()
    ask(connection, first, number)
    give_up(connection, first, number, last_ago=1.0)

    early = look(connection, second, number)
    later(connection, GAP - 1.2)
    due = look(connection, second, number)

    assert (early.units, early.again_in) == (0, is_about(GAP - 1.0 - LOOKAHEAD))
    assert due.units == 1
    assert due.due_in == pytest.approx(0.2, abs=0.15)


def test_a_stopped_worker_leaves_its_limits_free(connection, crawl):
    """A worker that stops gives everything up at once, and its last start is kept."""
    whole, shared = limit(connection), limit(connection, "b.example")
    terms = Terms(concurrency=2)
    stopped, second = crawl.worker, crawl.new_worker()
    ask(connection, stopped, whole, how=holdings.acquire)
    ask(connection, stopped, shared, terms, wants=2, how=holdings.acquire)
    uses = [
        Use(limit_id=whole, declared=WHOLE, wants=0, last_ago=1.0),
        Use(limit_id=shared, declared=terms, wants=0),
    ]

    holdings.release_all(connection, stopped, uses)
    workers.stop(connection, stopped, "finished")

    assert held(connection) == {}
    assert look(connection, second, whole).due_in == is_about(GAP - 1.0)
    assert look(connection, second, shared, terms, wants=2).units == 2


def test_the_latest_start_counts_whoever_tells_of_it(connection, crawl):
    """A worker that reports an old start late does not make others' later starts forgotten."""
    number = limit(connection)
    late, other = crawl.worker, crawl.new_worker()
    ask(connection, other, number)
    give_up(connection, other, number, last_ago=0.5)

    grant = ask(connection, late, number, last_ago=60.0)

    assert grant.due_in == is_about(GAP - 0.5)


@pytest.mark.parametrize("buried", [True, False])
@pytest.mark.parametrize(
    ("terms", "taken"),  # how long downloads took, and how long the heir waits
    [
        (WHOLE, (None, GAP)),
        (WHOLE, (9.0, 9.0)),
        (WHOLE, (1.0, GAP)),
        (Terms(concurrency=1), (None, 2.0)),
        (Terms(concurrency=1), (0.5, 0.5)),
    ],
)
def test_who_follows_the_dead_waits(crawl, buried, terms, taken):
    """What a worker had that died is free when its requests have ended, and after the gap."""
    connection = crawl.connection
    latency, waits = taken
    number = limit(connection)
    dead, heir = crawl.worker, crawl.new_worker()
    ask(connection, dead, number, terms)
    ask(connection, dead, number, terms, latency=latency, last_ago=60.0)
    lose_sign_of(connection, dead)
    if buried:
        crawl.take_over(heir)

    assert look(connection, heir, number, terms).units == 0
    later(connection, waits - 0.4)
    refused = look(connection, heir, number, terms)
    assert (refused.units, refused.again_in) == (0, is_about(0.4))
    later(connection, 0.5)
    assert look(connection, heir, number, terms).units == 1
    assert held(connection) == {(number, heir): 1}


def test_the_units_of_the_dead_are_not_given_out(connection, crawl):
    """While the requests of a dead worker may run, only what it did not have is free."""
    number = limit(connection)
    terms = Terms(concurrency=5)
    dead, heir = crawl.worker, crawl.new_worker()
    look(connection, dead, number, terms, wants=3)
    lose_sign_of(connection, dead)

    assert ask(connection, heir, number, terms, wants=5).units == 2
    later(connection, 2.1)
    assert ask(connection, heir, number, terms, wants=5).units == 5


def test_a_queue_is_free_after_its_dead_holder_whoever_noticed(connection, crawl, other_crawl):
    """That another crawl met the dead first does not leave the queue with it for ever."""
    crawl.work("A", data={"url": "http://a.example/"})
    other_crawl.register(parse={"tags": ["page"]})
    dead, heir = crawl.worker, crawl.new_worker()
    assert len(claim(crawl, dead)) == 1
    crawl.work("B", data={"url": "http://a.example/b"})
    (number,) = stored_slots.intern_slots(connection, ["a.example"]).values()
    lose_sign_of(connection, dead)

    assert look(connection, other_crawl.worker, number).units == 0
    crawl.take_over(heir)
    later(connection, 2 * GAP)

    assert [one.item.id for one in claim(crawl, heir)] != []


def test_one_who_was_thought_dead_takes_it_anew(connection, crawl):
    """A worker that lives after all has lost what others saw as left behind, and may ask again."""
    number = limit(connection)
    silent, other = crawl.worker, crawl.new_worker()
    ask(connection, silent, number)
    lose_sign_of(connection, silent)
    assert look(connection, other, number).units == 0
    assert processes.renew(connection, silent, LEASE)

    again = ask(connection, silent, number, last_ago=1.0)

    assert again.units == 0
    assert again.due_in == is_about(GAP - 1.0)
    later(connection, GAP)
    assert ask(connection, silent, number).units == 1
    assert look(connection, other, number).units == 0


def test_one_who_was_thought_dead_loses_to_who_took_it(connection, crawl):
    """A worker that lives after all does not have what another has by now."""
    number = limit(connection)
    silent, heir = crawl.worker, crawl.new_worker()
    ask(connection, silent, number)
    lose_sign_of(connection, silent)
    look(connection, heir, number)
    later(connection, GAP)
    assert ask(connection, heir, number).units == 1
    assert processes.renew(connection, silent, LEASE)

    assert ask(connection, silent, number).units == 0
    assert held(connection) == {(number, heir): 1}


def test_what_runs_at_one_who_was_thought_dead_counts(connection, crawl):
    """Requests that a worker still runs count against the cap, also when it was thought dead."""
    number = limit(connection)
    terms = Terms(concurrency=2)
    silent, other = crawl.worker, crawl.new_worker()
    ask(connection, silent, number, terms, wants=2)
    lose_sign_of(connection, silent)
    assert ask(connection, other, number, terms, wants=2).units == 0
    assert processes.renew(connection, silent, LEASE)

    ask(connection, silent, number, terms, wants=2, running=2)

    assert ask(connection, other, number, terms, wants=2).units == 0


def test_a_buried_worker_gets_nothing(connection, crawl):
    """A worker that was given up for dead has no limits until it registers anew."""
    number = limit(connection)
    dead, heir = crawl.worker, crawl.new_worker()
    lose_sign_of(connection, dead)
    crawl.take_over(heir)

    grants = holdings.renew(connection, dead, [Use(limit_id=number, declared=WHOLE)])

    assert [one.units for one in grants.values() if one.units] == []


# How a limit is kept


@pytest.mark.parametrize(
    ("kind", "columns", "terms", "kept"),
    [
        ("slot", {}, Terms(gap=2.0, concurrency=8), Terms(gap=2.0, concurrency=8)),
        ("slot", {"set_gap": 5.0}, Terms(gap=2.0), Terms(gap=5.0)),
        ("slot", {"set_gap": 1.0}, Terms(gap=2.0), Terms(gap=2.0)),
        ("slot", {"crawl_delay": 5.0}, Terms(gap=2.0), Terms(gap=5.0)),
        ("slot", {"crawl_delay": 1.0}, Terms(gap=2.0), Terms(gap=2.0)),
        ("slot", {"crawl_delay": 5.0, "set_gap": 3.0}, Terms(gap=2.0), Terms(gap=3.0)),
        ("slot", {"set_concurrency": 2}, Terms(concurrency=8), Terms(concurrency=2)),
        ("slot", {"set_concurrency": 9}, Terms(concurrency=8), Terms(concurrency=8)),
        ("slot", {"set_concurrency": 2}, Terms(gap=1.0), Terms(gap=1.0, concurrency=2)),
        ("task", {"set_gap": 1.0}, Terms(gap=2.0), Terms(gap=1.0)),
        ("task", {"set_gap": 3.0}, Terms(gap=2.0), Terms(gap=3.0)),
        ("task", {"set_concurrency": 9}, Terms(concurrency=8), Terms(concurrency=9)),
        ("task", {"crawl_delay": 9.0}, Terms(gap=2.0), Terms(gap=2.0)),
    ],
)
def test_how_a_limit_is_kept(crawl, kind, columns, terms, kept):
    """A slot is never kept looser than the code says; of other limits a person has the say."""
    number = limit(crawl.connection, kind=kind, **columns)

    assert ask(crawl.connection, crawl.worker, number, terms).in_force == kept


def test_learned_delays_hold_where_wanted(connection, crawl):
    """Who does not learn keeps to the code and to people, not to robots.txt."""
    learned = limit(connection, crawl_delay=9.0)
    both = limit(connection, "b.example", crawl_delay=9.0, set_gap=4.0)

    given = [
        ask(connection, crawl.worker, one, Terms(gap=2.0), learns=False, how=holdings.acquire)
        for one in (learned, both)
    ]

    assert [one.in_force.gap for one in given] == [2.0, 4.0]


def test_a_blocked_limit_is_not_taken(connection, crawl):
    """What a site asked to be left alone is not taken before, and the longest block counts."""
    number = limit(connection)
    for seconds in (60.0, 5.0):
        answer = SlotFeedback(slot="a.example", blocked_for=seconds, blocked_by="http 429")
        holdings.save_feedback(connection, crawl.new_worker(), [answer])

    refused = look(connection, crawl.worker, number, Terms(concurrency=2))

    assert (refused.units, refused.again_in) == (0, is_about(60.0 - LOOKAHEAD))
    assert refused.blocked_in == is_about(60.0)
    assert held(connection) == {}
    assert asking(connection) == set()
    later(connection, 60)
    assert look(connection, crawl.worker, number, Terms(concurrency=2)).units == 1


def test_a_holder_hears_of_a_block(connection, crawl):
    """Who has a slot keeps it while it is blocked, and is told until when."""
    number = limit(connection)
    ask(connection, crawl.worker, number)
    answer = SlotFeedback(slot="a.example", blocked_for=60.0, blocked_by="http 429")
    holdings.save_feedback(connection, crawl.worker, [answer])

    grant = ask(connection, crawl.worker, number)

    assert (grant.units, grant.blocked_in) == (1, is_about(60.0))


def test_of_two_answers_of_one_slot_the_longer_block_holds(connection, crawl):
    """Two answers that came together are both heeded."""
    limit(connection)
    answers = [
        SlotFeedback(slot="a.example", blocked_for=seconds, blocked_by="http 429")
        for seconds in (5.0, 60.0, 10.0)
    ]

    holdings.save_feedback(connection, crawl.worker, answers)

    left = (
        "SELECT extract(epoch FROM blocked_until - clock_timestamp()) FROM limits WHERE name = :n"
    )
    assert float(connection.scalar(sa.text(left), {"n": "a.example"})) == is_about(60.0)
