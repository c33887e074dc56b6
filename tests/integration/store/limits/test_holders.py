"""Who holds a limit, how many units of it, and whose turn it is."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.limits_held import GAP, WHOLE, ask, asking, give_up, held, is_about, later, limit, look

from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.store.limits import holdings

pytestmark = pytest.mark.server


def timeless(grant):
    """Return a grant for comparing it with another: without its limit, and its times."""
    return dataclasses.replace(grant, limit_id=0, name="", due_in=0, blocked_in=0, again_in=0)


# One holder, and units up to a cap


def test_what_has_a_gap_has_one_holder(connection, crawl):
    """A limit with a gap is had whole, by one worker, whoever asks and however much it wants."""
    number = limit(connection)
    first, second = crawl.worker, crawl.new_worker()

    assert ask(connection, first, number, wants=8).units == 1
    refused = ask(connection, second, number)

    assert refused.units == 0
    assert 0 < refused.again_in <= 1.0
    assert held(connection) == {(number, first): 1}
    assert ask(connection, first, number).others_ask


def test_units_do_not_exceed_the_cap(connection, crawl):
    """What only caps what runs at once is had in units, and none is given out twice."""
    number = limit(connection)
    terms = Terms(concurrency=3)
    first, second, third = (crawl.new_worker() for _ in range(3))

    assert look(connection, first, number, terms, wants=2).units == 2
    assert look(connection, second, number, terms, wants=2).units == 1
    assert look(connection, third, number, terms, wants=2).units == 0


def test_units_that_run_something_are_kept(connection, crawl):
    """What a worker cannot give back just now stays its own, whatever it wants."""
    number = limit(connection)
    terms = Terms(concurrency=4)
    look(connection, crawl.worker, number, terms, wants=4)

    assert give_up(connection, crawl.worker, number, terms, running=3).units == 3
    assert give_up(connection, crawl.worker, number, terms).units == 0
    assert held(connection) == {}


@pytest.mark.parametrize("workers_", [2, 3, 4])
def test_a_cap_is_shared_evenly_among_those_who_want_it(connection, crawl, workers_):
    """Who has more than its share gives way, a step at a time, until everybody has one."""
    number = limit(connection)
    terms = Terms(concurrency=12)
    crew = [crawl.new_worker() for _ in range(workers_)]
    assert look(connection, crew[0], number, terms, wants=12).units == 12

    for _ in range(3):
        for one in crew:
            ask(connection, one, number, terms, wants=12)

    assert held(connection) == {(number, one): 12 // workers_ for one in crew}


def test_a_share_that_nobody_asks_for_any_more_goes_back(connection, crawl):
    """When the others have gone, who is left may have all units again."""
    number = limit(connection)
    terms = Terms(concurrency=4)
    first, second = crawl.worker, crawl.new_worker()
    for _ in range(3):
        for one in (first, second):
            ask(connection, one, number, terms, wants=4)
    assert held(connection) == {(number, first): 2, (number, second): 2}

    give_up(connection, second, number, terms)

    assert ask(connection, first, number, terms, wants=4).units == 4


def test_spare_units_go_to_who_asks(connection, crawl):
    """A holder without use for what it has gives it up as soon as somebody asks."""
    number = limit(connection)
    first, second = crawl.worker, crawl.new_worker()
    ask(connection, first, number)

    assert ask(connection, first, number, spare=True).units == 1
    ask(connection, second, number)
    assert ask(connection, first, number, spare=True).units == 0
    assert ask(connection, second, number).units == 1


def test_what_a_worker_does_not_name_is_let_go(connection, crawl):
    """What stands under a worker's name and is not in its hand is given up as it renews."""
    known, stray = limit(connection), limit(connection, "b.example")
    for number in (known, stray):
        ask(connection, crawl.worker, number, how=holdings.acquire)

    ask(connection, crawl.worker, known)

    assert held(connection) == {(known, crawl.worker): 1}


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"throttle": 2.0},
        {"set_gap": 9.0},
        {"set_concurrency": 2},
        {"crawl_delay": 7.0},
        {"last_at": timedelta()},
        {"blocked_until": timedelta(hours=1)},
    ],
    ids=lambda columns: next(iter(columns), "nothing"),
)
@pytest.mark.parametrize("terms", [WHOLE, Terms(concurrency=3), Terms(gap=GAP, concurrency=3)])
@pytest.mark.parametrize("kind", ["slot", "task"])
def test_taking_and_renewing_give_the_same(crawl, kind, terms, columns):
    """What nobody else has is had on the same terms whether a claim takes it or a worker asks."""
    now = datetime.now(UTC)
    state = {key: now + one if isinstance(one, timedelta) else one for key, one in columns.items()}

    for learns in (True, False):
        given = {"terms": terms, "learns": learns, "wants": 5}
        taken, renewed = (
            limit(crawl.connection, f"{one}{learns}", kind=kind, **state) for one in "ab"
        )
        began = time.monotonic()
        one = ask(crawl.connection, crawl.worker, taken, how=holdings.acquire, **given)
        other = ask(crawl.connection, crawl.worker, renewed, **given)
        between = time.monotonic() - began

        assert timeless(one) == timeless(other)
        for moment in ("due_in", "blocked_in", "again_in"):
            assert getattr(one, moment) == is_about(getattr(other, moment), between)
        assert bool(one.units) == ("blocked_until" not in columns and not one.due_in)


# Whose turn it is


def test_who_asked_first_gets_it_first(connection, crawl):
    """The longest waiting goes first; who had the limit last does not jump the queue."""
    number = limit(connection)
    first, second, third = (crawl.new_worker() for _ in range(3))
    ask(connection, first, number)
    for one in (second, third):
        assert ask(connection, one, number).units == 0
    give_up(connection, first, number)

    assert ask(connection, third, number).units == 0
    assert ask(connection, first, number).units == 0
    assert ask(connection, second, number).units == 1
    give_up(connection, second, number)
    assert ask(connection, first, number).units == 0
    assert ask(connection, third, number).units == 1


def test_who_asks_before_the_gap_is_over_keeps_its_place(connection, crawl):
    """Who is refused while the gap runs waits as well, and the last holder does not go first."""
    number = limit(connection)
    terms = Terms(gap=3.0)
    first, second = crawl.worker, crawl.new_worker()
    ask(connection, first, number, terms)
    ask(connection, first, number, terms, last_ago=0.5)
    assert ask(connection, second, number, terms).units == 0
    give_up(connection, first, number, terms)
    later(connection, 2.4)

    assert ask(connection, first, number, terms).units == 0
    assert ask(connection, second, number, terms).units == 1


def test_units_go_to_who_asked_first(connection, crawl):
    """A free unit is kept for each that waits longer."""
    number = limit(connection)
    terms = Terms(concurrency=1)
    first, second, third = (crawl.new_worker() for _ in range(3))
    ask(connection, first, number, terms)
    for one in (second, third):
        assert ask(connection, one, number, terms).units == 0
    give_up(connection, first, number, terms)

    assert ask(connection, third, number, terms).units == 0
    assert ask(connection, second, number, terms).units == 1


def test_an_ask_that_is_not_renewed_is_forgotten(connection, crawl):
    """Who asked once and never again holds nobody off."""
    number = limit(connection)
    first, second, third = (crawl.new_worker() for _ in range(3))
    ask(connection, first, number)
    ask(connection, second, number)
    give_up(connection, first, number)

    later(connection, 4)

    assert not ask(connection, third, number).others_ask
    assert held(connection) == {(number, third): 1}


def test_who_comes_back_waits_anew(connection, crawl):
    """An ask that was forgotten does not count as waiting when its worker asks again."""
    number = limit(connection)
    first, second, third = (crawl.new_worker() for _ in range(3))
    ask(connection, first, number)
    ask(connection, second, number)
    later(connection, 60)
    ask(connection, third, number)
    give_up(connection, first, number)

    assert ask(connection, second, number, how=holdings.acquire).units == 0
    assert ask(connection, third, number).units == 1


def test_who_only_looks_asks_where_that_helps(connection, crawl, other_crawl):
    """A worker without work in hand asks of another crawl, and of its own only for a share."""
    whole, divisible = limit(connection), limit(connection, "b.example")
    holder, same, other = crawl.worker, crawl.new_worker(), other_crawl.worker
    terms = Terms(concurrency=4)
    ask(connection, holder, whole)
    look(connection, same, whole)
    assert asking(connection) == set()

    look(connection, other, whole)
    assert asking(connection) == {other}
    ask(connection, same, whole)
    assert asking(connection) == {other, same}

    ask(connection, holder, divisible, terms, wants=4, how=holdings.acquire)
    look(connection, crawl.new_worker(), divisible, terms, wants=4)
    assert len(asking(connection)) == 3
