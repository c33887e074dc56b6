"""What a worker gets of a limit beside its other holders, without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scrapy_itemgraph.model.limits import LOOKAHEAD, Terms, Use
from scrapy_itemgraph.store.limits import sharing
from scrapy_itemgraph.store.limits.sharing import Holding, StoredLimit

ME, OTHER, THIRD = 1, 2, 3
AT_ONCE = Terms(concurrency=4)
ONE_BY_ONE = Terms(gap=2.0, concurrency=4)


def holding(worker=OTHER, units=1, **fields):
    """Return what a living worker of the same crawl has, or asks for."""
    usual = {
        "is_exclusive": False,
        "age": 0.0,
        "asked_ago": None if units else 0.0,
        "free_in": None,
        "is_gone": False,
        "is_foreign": False,
    }
    return Holding(worker_id=worker, units=units, **{**usual, **fields})


def limit(*holdings, kind="slot", **fields):
    """Return a limit of which nothing was set or learned, with its holdings."""
    names = ("gap", "concurrency", "delay", "set_gap", "set_concurrency", "crawl_delay")
    learned = ("throttle", "latency", "blocked_in", "last_ago")
    usual = dict.fromkeys(names + learned)
    by_worker = {one.worker_id: one for one in holdings}
    return StoredLimit(id=7, kind=kind, name="a.example", holdings=by_worker, **{**usual, **fields})


def decide(stored, terms=AT_ONCE, worker=ME, *, learns=True, **fields):
    """Decide what a worker gets that wants as much as it may have."""
    use = Use(limit_id=7, declared=terms, **{"wants": 10, **fields})
    others = sharing.others_of(stored, worker)
    return sharing.decide(use, stored, others, worker, learns=learns)


def units(stored, terms=AT_ONCE, worker=ME, **fields):
    """Return how many units a worker may use."""
    return decide(stored, terms, worker, **fields).grant.units


# Any number of workers, one after the other, as their rows are written

steps = some.lists(
    some.tuples(
        some.integers(1, 5),  # the worker
        some.integers(0, 8),  # wants
        some.integers(0, 8),  # running, of what it has
        some.booleans(),  # spare
        some.booleans(),  # looking
        some.floats(0.0, 3.0),  # seconds since the step before
    ),
    max_size=40,
)


def after(rows, step, terms, now):
    """Return the rows after one worker settled what it has and wants, and its decision."""
    worker, wants, running, spare, looking, _ = step
    aged = {
        number: row._replace(
            age=now - since, asked_ago=None if row.asked_ago is None else now - row.asked_ago
        )
        for number, (row, since) in rows.items()
    }
    mine = aged.get(worker)
    has = 0 if mine is None else mine.units
    decision = decide(
        limit(*aged.values()),
        terms,
        worker,
        wants=wants,
        running=min(running, has),
        spare=spare,
        looking=looking,
    )
    kept = dict(rows)
    kept.pop(worker, None)
    if decision.is_held:
        row = holding(
            worker,
            decision.units,
            is_exclusive=decision.is_exclusive,
            asked_ago=now if decision.asks else None,  # a moment, here
        )
        since = rows[worker][1] if mine is not None else now
        kept[worker] = row, since
    return kept, decision


@given(steps=steps, cap=some.integers(1, 6))
def test_permits_never_sum_above_the_cap(steps, cap):
    """Whoever asks, gives back or still runs what it has: all together have the cap at most."""
    rows, now = {}, 0.0
    for step in steps:
        now += step[-1]
        rows, _ = after(rows, step, Terms(concurrency=cap), now)
        assert sum(row.units for row, _ in rows.values()) <= cap


@given(steps=steps)
def test_a_limit_with_a_gap_is_one_workers_at_a_time(steps):
    """Two workers could not keep a gap between their starts: one has it, with a single unit."""
    rows, now = {}, 0.0
    for step in steps:
        now += step[-1]
        rows, _ = after(rows, step, Terms(gap=0.2, concurrency=4), now)
        assert [row.units for row, _ in rows.values() if row.units] in ([], [1])


@given(steps=steps, cap=some.integers(1, 6), wants=some.integers(1, 8))
def test_what_is_free_is_given(steps, cap, wants):
    """Who is alone, once the others gave up what they had, gets all that it wants."""
    terms, rows, now = Terms(concurrency=cap), {}, 0.0
    for step in [*steps, *((worker, 0, 0, False, False, 0.0) for worker in range(1, 6))]:
        now += step[-1]
        rows, _ = after(rows, step, terms, now)

    assert rows == {}
    assert units(limit(), terms, wants=wants) == min(wants, cap)


# Sharing


def test_each_of_those_who_want_units_gets_its_share():
    """Four units among two are two each; who had more gives way down to its share."""
    asking = holding(OTHER, 0)

    assert units(limit(holding(ME, 4), asking)) == 2
    assert units(limit(holding(ME, 4))) == 4
    assert units(limit(holding(OTHER, 2))) == 2


def test_there_is_a_unit_at_least_for_each_of_those_who_fit():
    """Where more ask than there are units, a share is one, and who comes late gets none."""
    crowd = [holding(worker, 1) for worker in range(2, 6)]

    assert units(limit(*crowd)) == 0
    assert units(limit(*crowd[:3])) == 1
    assert decide(limit(*crowd)).asks


def test_the_longest_waiting_goes_first():
    """A unit that is free is for who waited longer, not for who happens to ask."""
    three = [holding(worker, 1) for worker in (4, 5, 6)]
    mine = holding(ME, 0, age=1.0)

    assert units(limit(*three, mine, holding(OTHER, 0, age=2.0))) == 0
    assert units(limit(*three, mine, holding(OTHER, 0, age=0.5))) == 1


def test_who_has_not_asked_again_waits_no_more():
    """One that asked 3.5 seconds ago last is gone, or wants it no longer."""
    stored = limit(holding(OTHER, 0, age=9.0, asked_ago=sharing.FORGOTTEN))

    assert units(stored, ONE_BY_ONE) == 1
    assert units(limit(holding(OTHER, 0, age=9.0, asked_ago=3.4)), ONE_BY_ONE) == 0


def test_what_is_spare_goes_to_whoever_asks():
    """Units kept in hand for work that may come are given up when another worker waits."""
    mine = holding(ME, 2)

    assert units(limit(mine), spare=True) == 4
    assert units(limit(mine, holding(OTHER, 0)), spare=True) == 0


def test_what_still_runs_is_kept_and_holds_others_off():
    """A unit whose request is under way cannot be given back, whatever the worker wants."""
    given_up = decide(limit(holding(ME, 3)), wants=0, running=2)

    assert (given_up.units, given_up.is_held, given_up.asks) == (2, True, False)
    assert given_up.grant.units == 2
    assert units(limit(holding(OTHER, given_up.units))) == 2


def test_who_wants_nothing_and_runs_nothing_has_no_row():
    """A limit that is given up is free at once."""
    decision = decide(limit(holding(ME, 3)), wants=0)

    assert not decision.is_held
    assert not decision.grant.units


def test_who_only_looks_for_work_does_not_ask_where_it_gains_nothing():
    """Of its own crawl's workers one may as well do it; another crawl's work waits."""
    own, foreign = holding(OTHER), holding(OTHER, is_foreign=True)

    assert not decide(limit(own), ONE_BY_ONE, looking=True).asks
    assert decide(limit(foreign), ONE_BY_ONE, looking=True).asks
    assert decide(limit(own), ONE_BY_ONE).asks


# When the next one may start


def test_the_rest_of_a_gap_is_waited_for():
    """Nothing is given earlier than 0.3 seconds before its start is due; then it is told when."""
    early = decide(limit(last_ago=0.5), ONE_BY_ONE)
    soon = decide(limit(last_ago=1.9), ONE_BY_ONE)

    assert (early.grant.units, early.grant.due_in) == (0, 1.5)
    assert early.grant.again_in == pytest.approx(1.5 - LOOKAHEAD)
    assert (soon.grant.units, soon.grant.due_in) == (1, pytest.approx(0.1))


def test_the_later_of_two_starts_counts():
    """What the worker knows of its own last start may be newer than what is stored."""
    assert decide(limit(last_ago=9.0), ONE_BY_ONE, last_ago=0.5).grant.due_in == 1.5
    assert decide(limit(last_ago=-5.0), ONE_BY_ONE).grant.due_in == 2.0


def test_a_blocked_limit_is_given_to_nobody_and_nobody_asks():
    """For as long as a slot is blocked it is of no use to have it."""
    decision = decide(limit(holding(OTHER, 4), blocked_in=60.0))

    assert (decision.grant.units, decision.asks) == (0, False)
    assert units(limit(holding(ME, 2), blocked_in=60.0)) == 4  # who has it keeps it
    assert decision.grant.blocked_in == decision.grant.due_in == 60.0


def test_who_has_a_limit_keeps_it_while_it_waits_for_the_gap():
    """It is not handed round between two starts."""
    mine = holding(ME, 1, is_exclusive=True)

    assert units(limit(mine, holding(OTHER, 0, age=9.0), last_ago=0.1), ONE_BY_ONE) == 1


def test_who_had_a_limit_for_itself_gives_it_up_where_it_has_no_gap_any_more():
    """Then it is shared by units, from the next time on, and until then nobody else has any."""
    whole = holding(ME, 1, is_exclusive=True)

    changed = decide(limit(whole), AT_ONCE)

    assert (changed.grant.units, changed.units) == (0, 0)
    assert decide(limit(whole), AT_ONCE, running=3).units == 3
    assert units(limit(whole), AT_ONCE, worker=OTHER) == 0


def test_where_others_have_it_asking_again_helps_in_a_second():
    """Sooner where what the dead had is free before."""
    held = decide(limit(holding(OTHER, 1, is_exclusive=True)), ONE_BY_ONE)
    dying = decide(limit(holding(OTHER, 1, is_exclusive=True, free_in=0.4)), ONE_BY_ONE)
    due = decide(limit(holding(OTHER, 1, is_exclusive=True), last_ago=0.5), ONE_BY_ONE)

    assert held.grant.again_in == 1.0
    assert due.grant.again_in == 1.0
    assert dying.grant.again_in == 0.4


# Terms


@given(
    gap=some.floats(0, 100),
    concurrency=some.none() | some.integers(1, 50),
    set_gap=some.none() | some.floats(0, 100),
    set_concurrency=some.none() | some.integers(1, 50),
    crawl_delay=some.none() | some.floats(0, 100),
)
def test_a_slot_is_never_kept_looser_than_declared(
    gap, concurrency, set_gap, set_concurrency, crawl_delay
):
    """What a person set or robots.txt asks for makes a slot stricter, and nothing laxer."""
    stored = limit(set_gap=set_gap, set_concurrency=set_concurrency, crawl_delay=crawl_delay)

    terms = sharing.in_force(Terms(gap=gap, concurrency=concurrency), stored, learns=True)

    assert terms.gap >= gap
    assert concurrency is None or terms.concurrency <= concurrency


def test_what_a_person_set_replaces_what_a_task_declares():
    """Of limits that are no slots: also where it is laxer."""
    stored = limit(kind="task", set_gap=0.5, set_concurrency=9, crawl_delay=30.0)

    assert sharing.in_force(ONE_BY_ONE, stored, learns=True) == Terms(gap=0.5, concurrency=9)


def test_a_person_has_the_last_word_over_robots_txt():
    """A delay that was set counts in the place of a Crawl-delay, which counts if it is learned."""
    asked = limit(crawl_delay=30.0)

    assert sharing.in_force(ONE_BY_ONE, asked, learns=True).gap == 30.0
    assert sharing.in_force(ONE_BY_ONE, asked, learns=False).gap == 2.0
    both = replace(asked, set_gap=5.0)
    assert sharing.in_force(ONE_BY_ONE, both, learns=True).gap == 5.0


def test_numbers_that_cannot_be_kept_are_as_none():
    """A delay below a millisecond or above a day, no number, a concurrency of 0."""
    odd = limit(set_gap=float("nan"), crawl_delay=1e-9, set_concurrency=0, gap=1e9)

    assert (odd.set_gap, odd.crawl_delay, odd.set_concurrency) == (None, None, None)
    assert odd.gap == 86_400.0


# What the dead had


@pytest.mark.parametrize(
    ("gap", "latency", "seconds"),
    [(None, None, 2.0), (None, 5.0, 5.0), (None, 900.0, 30.0), (40.0, 5.0, 40.0), (1.0, None, 1.0)],
)
def test_what_a_dead_worker_had_is_free_when_its_requests_have_ended(gap, latency, seconds):
    """After the gap or its latency, 30 seconds at most; 2 where nobody measured it."""
    dead = holding(OTHER, 4, is_gone=True)
    stored = limit(dead, gap=gap, latency=latency)

    assert stored.outlived(dead.units) == seconds
    assert units(stored) == 0
    assert sharing.others_of(stored, ME).free_in == seconds


def test_the_dead_do_not_hold_others_off_for_longer_than_they_could():
    """What was noted before a clock was set back counts for no more than the whole time."""
    late = holding(OTHER, 4, free_in=900.0)
    over = holding(OTHER, 4, free_in=0.0)

    assert sharing.others_of(limit(late), ME).free_in == 2.0
    assert limit(late).is_to_outlive(late)
    assert not limit(late).is_to_outlive(late._replace(free_in=2.0))
    assert units(limit(over)) == 4


def test_after_a_jump_of_the_clock_ahead_only_what_is_sure_counts():
    """What was long ago by the server's clock may have been just now."""
    dead = holding(OTHER, 4, free_in=0.0)
    stored = limit(dead, last_ago=3600.0)

    assert stored.passed_at_most(0.5).last_ago == 0.5
    assert stored.passed_at_most(7200.0) is stored
    assert stored.not_before(dead, 0.5).free_in == 1.5


# Rows


def test_a_row_is_written_where_something_changed():
    """What stays as it was is not written again, except for who asks."""
    mine = holding(ME, 4)
    same = decide(limit(mine))

    assert not sharing.differs(same, mine)
    assert sharing.differs(same, None)
    assert sharing.differs(same, mine._replace(units=3))
    assert sharing.differs(same, mine._replace(free_in=1.0))
    waiting = decide(limit(holding(OTHER, 4)))
    assert sharing.differs(waiting, holding(ME, 0))


def test_terms_are_news_where_they_are_stored_otherwise():
    """The next holder keeps a limit as its last one declared it."""
    grant = decide(limit(), Terms(concurrency=4, delay=0.0)).grant

    assert sharing.is_news(grant, limit())
    assert sharing.is_news(grant, limit(concurrency=4, gap=2.0))
    assert not sharing.is_news(grant, limit(concurrency=4, gap=0.0, delay=0.0))
