"""Who has which limit: one holder of what has a gap, units up to the cap, and no loss by deaths.

Time passes by moving all moments of a limit back, as the database would find them later.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from concurrent.futures import as_completed
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import races
import sqlalchemy as sa
from graphs import LEASE, Crawl

from scrapy_itemgraph import task
from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.limits import LOOKAHEAD, Grant, SlotFeedback, Terms, Use
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import workers
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission

pytestmark = pytest.mark.server

GAP = 5.0
WHOLE = Terms(gap=GAP)
SLACK = 0.25
AGED = (
    """
    UPDATE limits SET last_at = last_at - make_interval(secs => :s),
        blocked_until = blocked_until - make_interval(secs => :s)
    """,
    """
    UPDATE holdings SET since = since - make_interval(secs => :s),
        asked_at = asked_at - make_interval(secs => :s),
        until = until - make_interval(secs => :s)
    """,
    "UPDATE queues SET next_at = next_at - make_interval(secs => :s)",
)
HELD = """
    SELECT h.limit_id, h.worker_id, h.units, h.is_exclusive, h.asked_at IS NOT NULL AS asks,
        extract(epoch FROM h.until - clock_timestamp()) AS free_in
    FROM holdings h ORDER BY h.limit_id, h.worker_id
"""


def limit(connection, name="a.example", *, kind="slot", **columns):
    """Make a limit, and return its number."""
    names = ", ".join(["kind", "name", *columns])
    places = ", ".join([":kind", ":name", *(f":{one}" for one in columns)])
    made = sa.text(f"INSERT INTO limits ({names}) VALUES ({places}) RETURNING id")
    return connection.execute(made, {"kind": kind, "name": name, **columns}).scalar_one()


def later(connection, seconds):
    """Let time pass."""
    for statement in AGED:
        connection.execute(sa.text(statement), {"s": seconds})


def held(connection):
    """Return who has units of what, the dead included: {(limit, worker): units}."""
    rows = connection.execute(sa.text(HELD)).all()
    return {(row.limit_id, row.worker_id): row.units for row in rows if row.units}


def asking(connection):
    """Return who waits without any unit."""
    rows = connection.execute(sa.text(HELD)).all()
    return {row.worker_id for row in rows if row.asks and not row.units}


def ask(connection, worker, number, terms=WHOLE, *, how=holdings.renew, learns=True, **use):
    """Say what a worker has and wants of one limit, and return what it may do."""
    return how(connection, worker, [Use(limit_id=number, terms=terms, **use)], learns=learns)[
        number
    ]


def look(connection, worker, number, terms=WHOLE, **use):
    """Ask as a claim does, which has no work in hand yet."""
    return ask(connection, worker, number, terms, how=holdings.acquire, looking=True, **use)


def give_up(connection, worker, number, terms=WHOLE, **use):
    """Let a worker give a limit up."""
    return ask(connection, worker, number, terms, wants=0, **use)


def lose_sign_of(connection, worker):
    """End a worker's lease."""
    ended = "UPDATE workers SET lease_until = now() - interval '1 s' WHERE id = :worker"
    connection.execute(sa.text(ended), {"worker": worker})


def claim(crawl, worker, terms=WHOLE, limit=25):
    """Claim with nothing in hand; all slots are kept alike."""
    admission = Admission(slot_terms=lambda _: terms)
    given = {
        "crawl_id": crawl.id,
        "worker_id": worker,
        "tasks": crawl.registration.tasks,
        "limit": limit,
        "admission": admission,
    }
    engine.hot_path(crawl.connection)
    return claims.claim(crawl.connection, **given)


def timeless(grant):
    """Return a grant for comparing it with another: without its limit, and its times."""
    return dataclasses.replace(grant, limit_id=0, name="", due_in=0, blocked_in=0, again_in=0)


def is_about(seconds):
    """Compare durations that the database measured."""
    return pytest.approx(seconds, abs=SLACK)


@pytest.fixture
def crawl(connection) -> Crawl:
    """Make a crawl with a worker."""
    return Crawl.of(connection)


@pytest.fixture
def other_crawl(connection, crawl) -> Crawl:
    """Make another crawl in the same database."""
    return Crawl(connection, "films", "cinema")


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
        one = ask(crawl.connection, crawl.worker, taken, how=holdings.acquire, **given)
        other = ask(crawl.connection, crawl.worker, renewed, **given)

        assert timeless(one) == timeless(other)
        for moment in ("due_in", "blocked_in", "again_in"):
            assert getattr(one, moment) == is_about(getattr(other, moment))
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
        Use(limit_id=whole, terms=WHOLE, wants=0, last_ago=1.0),
        Use(limit_id=shared, terms=terms, wants=0),
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
    assert workers.heartbeat(connection, silent, LEASE)

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
    assert workers.heartbeat(connection, silent, LEASE)

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
    assert workers.heartbeat(connection, silent, LEASE)

    ask(connection, silent, number, terms, wants=2, running=2)

    assert ask(connection, other, number, terms, wants=2).units == 0


def test_a_buried_worker_gets_nothing(connection, crawl):
    """A worker that was given up for dead has no limits until it registers anew."""
    number = limit(connection)
    dead, heir = crawl.worker, crawl.new_worker()
    lose_sign_of(connection, dead)
    crawl.take_over(heir)

    grants = holdings.renew(connection, dead, [Use(limit_id=number, terms=WHOLE)])

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

    assert ask(crawl.connection, crawl.worker, number, terms).terms == kept


def test_learned_delays_hold_where_wanted(connection, crawl):
    """Who does not learn keeps to the code and to people, not to robots.txt."""
    learned = limit(connection, crawl_delay=9.0)
    both = limit(connection, "b.example", crawl_delay=9.0, set_gap=4.0)

    given = [
        ask(connection, crawl.worker, one, Terms(gap=2.0), learns=False, how=holdings.acquire)
        for one in (learned, both)
    ]

    assert [one.terms.gap for one in given] == [2.0, 4.0]


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


# Terms that change under way


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

    may_start = [one for one in grants if one.units and one.terms.is_exclusive]
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


# Any order of events


@dataclass
class Hand:
    """What a worker of the model believes to have of one limit, and what it did with it."""

    terms: Terms
    units: int = 0
    due: float = 0.0
    running: int = 0
    started: float | None = None  # and not told yet

    @property
    def at_once(self) -> int:
        """How many requests the worker may run."""
        return (self.terms.concurrency or 3) if self.terms.gap and self.units else self.units


@dataclass
class Worker:
    """A worker of the model."""

    number: int
    crawl: Crawl
    hands: dict[int, Hand]


class Model:
    """Workers that take, use and lose limits in any order, and what must hold meanwhile."""

    LIMITS = (
        ("slot", "whole.example", Terms(gap=2.0)),
        ("slot", "both.example", Terms(gap=0.7, concurrency=2)),
        ("slot", "shared.example", Terms(concurrency=5)),
        ("slot", "changed.example", Terms(concurrency=3)),
        ("task", "shop/parse", Terms(concurrency=2)),
    )

    def __init__(self, crawls: list[Crawl], seed: int) -> None:
        self.random = random.Random(seed)
        self.connection = crawls[0].connection
        self.terms = {
            limit(self.connection, name, kind=kind): terms for kind, name, terms in self.LIMITS
        }
        self.started = dict.fromkeys(self.terms, float("-inf"))
        self.ahead = 0.0
        self.workers = [self.new_worker(crawl) for crawl in (*crawls, *crawls, crawls[0])]
        self.starts: Counter[int] = Counter()

    def new_worker(self, crawl: Crawl) -> Worker:
        hands = {number: Hand(terms) for number, terms in self.terms.items()}
        return Worker(crawl.new_worker(), crawl, hands)

    @property
    def now(self) -> float:
        return time.monotonic() + self.ahead

    def step(self) -> None:
        """Let one thing happen, and check."""
        kinds = {
            self.look: 8,
            self.renew: 16,
            self.start: 24,
            self.end: 8,
            self.wait: 12,
            self.die: 2,
            self.stop: 2,
            self.bury: 2,
            self.change: 1,
        }
        (event,) = self.random.choices(list(kinds), list(kinds.values()))
        event(self.random.choice(self.workers))
        self.check()

    def look(self, worker: Worker) -> None:
        """Take what a claim found work of."""
        new = [
            number
            for number, hand in worker.hands.items()
            if not hand.units and self.random.random() < 0.5
        ]
        uses = [
            Use(limit_id=one, terms=self.terms[one], wants=self.wants(one), looking=True)
            for one in new
        ]
        self.take(worker, holdings.acquire(self.connection, worker.number, uses))

    def renew(self, worker: Worker) -> None:
        """Tell and ask about all that is had, and some that is not."""
        uses = []
        for number, hand in worker.hands.items():
            if hand.units or hand.running or self.random.random() < 0.4:
                wants = self.wants(number)
                if hand.units and not hand.running and self.random.random() < 0.3:
                    wants = 0
                uses.append(
                    Use(
                        limit_id=number,
                        terms=self.terms[number],
                        wants=wants,
                        running=hand.running,
                        spare=not hand.running and self.random.random() < 0.3,
                        last_ago=self.told(hand),
                    )
                )
        self.take(worker, holdings.renew(self.connection, worker.number, uses))

    def wants(self, number: int) -> int:
        return self.random.randint(1, self.terms[number].concurrency or 1)

    def told(self, hand: Hand) -> float | None:
        """Return how long ago something started that was not told yet."""
        started, hand.started = hand.started, None
        return None if started is None else self.now - started

    def take(self, worker: Worker, grants: dict[int, Grant]) -> None:
        for number, grant in grants.items():
            hand = worker.hands[number]
            hand.terms, hand.units = grant.terms, grant.units
            hand.due = self.now + grant.due_in

    def start(self, worker: Worker) -> None:
        """Start a request of each limit that lets one start."""
        for number, hand in worker.hands.items():
            if hand.running < hand.at_once and hand.due <= self.now:
                gap, since = hand.terms.gap, self.now - self.started[number]
                assert since >= gap - 0.05, f"{since:.2f} s after another"
                hand.due = self.now + gap
                hand.started = self.started[number] = self.now
                hand.running += 1
                self.starts[number] += 1

    def end(self, worker: Worker) -> None:
        """End a request of each limit."""
        for hand in worker.hands.values():
            hand.running = max(0, hand.running - 1)

    def wait(self, _: Worker) -> None:
        """Let time pass."""
        seconds = self.random.choice([0.2, 0.5, 1.0, 3.0])
        later(self.connection, seconds)
        self.ahead += seconds

    def die(self, worker: Worker) -> None:
        """Start what may start, give no sign of life any more, and begin anew."""
        self.start(worker)
        lose_sign_of(self.connection, worker.number)
        self.replace(worker)

    def stop(self, worker: Worker) -> None:
        """Stop, and begin anew."""
        uses = [
            Use(limit_id=number, terms=self.terms[number], wants=0, last_ago=self.told(hand))
            for number, hand in worker.hands.items()
        ]
        holdings.release_all(self.connection, worker.number, uses)
        workers.stop(self.connection, worker.number, "finished")
        self.replace(worker)

    def replace(self, worker: Worker) -> None:
        self.workers[self.workers.index(worker)] = self.new_worker(worker.crawl)

    def bury(self, worker: Worker) -> None:
        """Take over from the dead."""
        worker.crawl.take_over(worker.number)

    def change(self, _: Worker) -> None:
        """Let a person set a gap, or take it back."""
        gap = self.random.choice([None, 0.7, 1.5])
        changed = "UPDATE limits SET set_gap = :gap WHERE name = 'changed.example'"
        self.connection.execute(sa.text(changed), {"gap": gap})

    def check(self) -> None:
        """Compare what the database has with what workers believe, and with the limits."""
        rows = self.connection.execute(sa.text(HELD)).all()
        alive = {worker.number: worker for worker in self.workers}
        there = [row for row in rows if row.units and (row.free_in is None or row.free_in > 0)]
        for number, terms in self.terms.items():
            ours = [row for row in there if row.limit_id == number]
            assert len(ours) <= 1 or not any(row.is_exclusive for row in ours)
            cap = terms.concurrency or 1
            assert sum(row.units for row in ours) <= cap
            believed = [worker.hands[number] for worker in self.workers]
            having = [hand for hand in believed if hand.units]
            assert len(having) <= 1 or not any(hand.terms.gap for hand in having)
            if terms.concurrency is not None:
                assert sum(hand.running for hand in believed) <= cap
        for row in rows:
            assert row.free_in is None or row.worker_id not in alive
        had = {(row.limit_id, row.worker_id): row.units for row in there}
        for worker in self.workers:
            for number, hand in worker.hands.items():
                assert hand.units <= had.get((number, worker.number), 0)


@pytest.mark.parametrize("seed", range(8))
def test_limits_hold_in_any_order_of_events(connection, crawl, other_crawl, seed):
    """Whatever workers do in whatever order, and whenever they die, each limit is kept."""
    model = Model([crawl, other_crawl], seed)

    for _ in range(300):
        model.step()

    assert model.starts.total() > 15


# At the same moment


class Shop:
    @task(tags=["page"])
    def parse(self, response, item): ...


@pytest.fixture
def shop(engine) -> races.Crawl:
    """Make a crawl that several connections work on."""
    return races.Crawl(engine, Shop)


@pytest.fixture
def slots(engine) -> list[int]:
    """Make two slots, the first with the lower number."""
    with engine.begin() as connection:
        return [limit(connection, f"{one}.example") for one in "ab"]


def use_of(number, terms=WHOLE, **use):
    """Return what a worker has and wants of a limit."""
    return Use(limit_id=number, terms=terms, **use)


def page(name, host="a.example"):
    """Return a seed that calls for work of a slot."""
    return CreateItem(name, tags=["page"], data={"url": f"http://{host}/{name}"})


def limited(shop, connection, worker, terms=WHOLE):
    """Claim with nothing in hand, in the caller's transaction."""
    given = {
        "crawl_id": shop.id,
        "worker_id": worker,
        "tasks": shop.tasks,
        "limit": 25,
        "admission": Admission(slot_terms=lambda _: terms),
    }
    engine.hot_path(connection)
    return claims.claim(connection, **given)


def test_two_that_take_a_limit_at_once(shop, slots, pair):
    """The second leaves out what the first decides about, and is refused when it has decided."""
    first, second = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()

    taken = first.run(holdings.acquire, one, [use_of(number)])
    left = second.run(holdings.acquire, other, [use_of(number)])
    second.start(holdings.renew, other, [use_of(number)])
    second.until_blocked()
    first.commit()
    refused = second.resume()
    second.commit()

    assert (taken[number].units, left, refused[number].units) == (1, {}, 0)
    assert shop.rows("SELECT worker_id FROM holdings WHERE units > 0") == [(one,)]


def test_a_limit_that_is_being_given_up(shop, slots, pair):
    """Who asks while the holder gives up leaves it out, or waits for that and has it."""
    holder, heir = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()
    holder.run(holdings.renew, one, [use_of(number)])
    holder.commit()

    holder.run(holdings.renew, one, [use_of(number, wants=0)])
    assert heir.run(holdings.acquire, other, [use_of(number)]) == {}
    heir.start(holdings.renew, other, [use_of(number)])
    heir.until_blocked()
    holder.commit()

    assert heir.resume()[number].units == 1
    heir.commit()


def test_a_worker_that_stops_while_another_asks(shop, slots, pair):
    """Who asks while the holder stops is refused, and has the limit when it asks again."""
    holder, heir = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()
    holder.run(holdings.renew, one, [use_of(number)])
    holder.commit()

    holder.run(holdings.release_all, one, [])
    assert heir.run(holdings.renew, other, [use_of(number)])[number].units == 0
    heir.commit()
    holder.commit()

    assert heir.run(holdings.renew, other, [use_of(number)])[number].units == 1
    heir.commit()


@pytest.mark.parametrize("terms", [WHOLE, Terms(concurrency=1)])
def test_two_that_find_the_dead_at_once(shop, slots, pair, terms):
    """What a dead worker had is left for one of two that meet it at the same moment."""
    first, second = pair
    number, _ = slots
    dead, one, other = (shop.worker() for _ in range(3))
    first.run(holdings.renew, dead, [use_of(number, terms)])
    first.commit()
    shop.expire_lease(dead)

    first.run(holdings.renew, one, [use_of(number, terms)])
    second.start(holdings.renew, other, [use_of(number, terms)])
    second.until_blocked()
    first.commit()
    assert second.resume()[number].units == 0
    second.commit()
    first.run(later, GAP)
    first.commit()
    second.run(holdings.renew, other, [use_of(number, terms)])
    first.start(holdings.renew, one, [use_of(number, terms)])
    first.until_blocked()
    second.commit()
    first.resume()
    first.commit()

    assert shop.rows("SELECT worker_id, units FROM holdings WHERE units > 0") == [(other, 1)]


def test_the_dead_are_buried_while_another_asks(shop, slots, pair):
    """A take-over and a worker that asks do not wait in a circle, and the gap is kept."""
    undertaker, heir = pair
    number, _ = slots
    dead, other = shop.worker(), shop.worker()
    heir.run(holdings.renew, dead, [use_of(number)])
    heir.commit()
    shop.expire_lease(dead)

    undertaker.run(shop.take_over)
    heir.start(holdings.renew, other, [use_of(number)])
    heir.until_blocked()
    undertaker.commit()
    refused = heir.resume()[number]
    heir.commit()

    assert refused.units == 0
    ((free_in,),) = shop.rows(
        "SELECT extract(epoch FROM until - clock_timestamp()) FROM holdings WHERE units > 0"
    )
    assert float(free_in) == pytest.approx(GAP, abs=2.0)


@pytest.mark.parametrize("claims_first", [True, False])
def test_a_claim_beside_a_renewal(shop, slots, pair, claims_first):
    """Of a claim and a renewal that want the same slot at once, one has it."""
    claimer, renewer = pair
    number, _ = slots
    shop.seed(page("A"))
    one, other = shop.worker(), shop.worker()

    if claims_first:
        claims = claimer.run(lambda connection: limited(shop, connection, one))
        renewer.start(holdings.renew, other, [use_of(number)])
        renewer.until_blocked()
        claimer.commit()
        grant = renewer.resume()[number]
        renewer.commit()
    else:
        grant = renewer.run(holdings.renew, other, [use_of(number)])[number]
        claims = claimer.run(lambda connection: limited(shop, connection, one))
        claimer.commit()
        renewer.commit()

    assert (len(claims), grant.units) == ((1, 0) if claims_first else (0, 1))


def test_work_that_arrives_while_its_queue_is_being_taken(shop, pair):
    """New work of a slot neither waits for the claim that takes it, nor is it lost."""
    claimer, committer = pair
    shop.seed(page("A"))
    worker = shop.worker()

    assert len(claimer.run(lambda connection: limited(shop, connection, worker))) == 1
    committer.run(shop.operate, page("B"))
    committer.commit()
    claimer.commit()
    claimer.run(holdings.release_all, worker, [])
    claimer.commit()

    claims = claimer.run(lambda connection: limited(shop, connection, worker))
    claimer.commit()
    assert [one.item.id for one in claims] == ["B"]


def test_a_worker_that_stops_beside_one_that_renews(shop, slots, engine):
    """What a stopping worker tells of its limits is told in the order in which all lock them."""
    with races.actors(engine, 3) as (stopping, renewing, first):
        one, other = shop.worker(), shop.worker()
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        last = [use_of(number, wants=0, last_ago=1.0) for number in reversed(slots)]
        _in_a_circle(
            first,
            [
                (renewing, holdings.renew, other, uses),
                (stopping, holdings.release_all, one, last),
            ],
            f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}",
        )

    with engine.connect() as connection:
        assert held(connection) == {(number, other): 1 for number in slots}
    assert shop.rows("SELECT count(last_at) FROM limits") == [(2,)]


def test_two_renewals_at_once(shop, slots, engine):
    """Two that renew the same limits lock them in one order, however they name them."""
    with races.actors(engine, 3) as (one, other, first):
        both = [shop.worker(), shop.worker()]
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        steps = [
            (one, holdings.renew, both[0], uses),
            (other, holdings.renew, both[1], uses[::-1]),
        ]
        _in_a_circle(first, steps, f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}")

    with engine.connect() as connection:
        assert held(connection) == {(number, worker): 1 for number in slots for worker in both}


def test_feedback_beside_a_renewal(shop, slots, engine):
    """What was learned of several slots is told in the order in which all lock them."""
    with races.actors(engine, 3) as (saving, renewing, first):
        one, other = shop.worker(), shop.worker()
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        answers = [
            SlotFeedback(slot=f"{name}.example", blocked_for=9.0, blocked_by="429") for name in "ba"
        ]
        _in_a_circle(
            first,
            [
                (renewing, holdings.renew, other, uses),
                (saving, holdings.save_feedback, one, answers),
            ],
            f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}",
        )

    with engine.connect() as connection:
        assert held(connection) == {(number, other): 1 for number in slots}
    assert shop.rows("SELECT blocked_by FROM limits") == [("429",), ("429",)]


def test_a_start_beside_a_renewal(shop, engine):
    """A start that declares limits anew locks them in the order in which all do."""
    with engine.begin() as connection:
        numbers = [limit(connection, f"shop/{one}", kind="task") for one in "ba"]
    declared = [
        limits.Limit(kind="task", name=f"shop/{one}", gap=9.0, concurrency=None) for one in "ab"
    ]
    worker = shop.worker()
    with races.actors(engine, 3) as (starting, renewing, first):
        uses = [use_of(number, Terms(concurrency=8)) for number in numbers]
        steps = [
            (renewing, holdings.renew, worker, uses),
            (starting, declared_limits.register, {shop.task_id("parse"): declared}),
        ]
        _in_a_circle(first, steps, f"UPDATE limits SET latency = 1 WHERE id = {numbers[0]}")

    with engine.connect() as connection:
        assert held(connection) == {(number, worker): 1 for number in numbers}
    assert shop.rows("SELECT gap FROM limits WHERE kind = 'task'") == [(9.0,), (9.0,)]


def test_a_worker_that_stops_beside_a_commit(shop, engine):
    """Queues are freed in the order in which commits wake them."""
    shop.seed(page("A"), page("B", "b.example"))
    worker = shop.worker()
    with races.actors(engine, 3) as (stopping, committing, first):
        first.run(lambda connection: limited(shop, connection, worker))
        first.commit()
        shop.execute("UPDATE queues SET is_live = false")
        ((number, queue),) = shop.rows(
            "SELECT slot_id, id FROM queues WHERE holder IS NOT NULL ORDER BY id LIMIT 1"
        )
        # What was had first is now read last.
        shop.execute("DELETE FROM holdings WHERE limit_id = :limit", limit=number)
        shop.execute(
            "INSERT INTO holdings (limit_id, worker_id, units, is_exclusive) "
            "VALUES (:limit, :worker, 1, true)",
            limit=number,
            worker=worker,
        )
        steps = [
            (committing, shop.operate, page("C"), page("D", "b.example")),
            (stopping, holdings.release_all, worker, []),
        ]
        _in_a_circle(first, steps, f"UPDATE queues SET is_live = false WHERE id = {queue}")

    with engine.connect() as connection:
        assert held(connection) == {}
    assert shop.rows("SELECT holder, is_live FROM queues") == [(None, True), (None, True)]


def test_a_take_over_beside_a_commit(shop, engine):
    """The queues of the dead are freed after items are locked, as commits wake queues."""
    shop.seed(page("A"))
    dead = shop.worker()
    with races.actors(engine, 3) as (undertaker, committer, claimer):
        assert len(claimer.run(lambda connection: limited(shop, connection, dead))) == 1
        claimer.commit()
        assert claimer.run(lambda connection: limited(shop, connection, dead)) == []
        claimer.commit()
        shop.execute("UPDATE queues SET is_live = false")
        shop.expire_lease(dead)

        committer.pause_before(queues.HOLD_QUEUES)
        committer.start(shop.operate, UpdateData({"seen": 1}, id="A"), page("B"))
        committer.until_paused()
        undertaker.start(shop.take_over)
        undertaker.until_blocked()
        committer.resume()
        committer.commit()
        undertaker.resume()
        undertaker.commit()


def _in_a_circle(first, steps, locking):
    """Let steps queue up for a row that `first` has, one after the other, and all of them end."""
    first.run(lambda connection: connection.execute(sa.text(locking)))
    running = {}
    for actor, function, *given in steps:
        actor.run(engine.hot_path)
        running[actor.start(function, *given)] = actor
        actor.until_blocked()
    first.commit()
    for done in as_completed(running, timeout=races.PATIENCE):
        done.result()
        running[done].commit()
