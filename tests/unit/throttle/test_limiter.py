"""What a process has of limits, and when they let the next request start; on a clock of ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from scrapy_itemgraph.model.limits import LOOKAHEAD, MANY, Grant, Terms
from scrapy_itemgraph.throttle.limiter import Limiter
from scrapy_itemgraph.throttle.limiter_set import Limiters

if TYPE_CHECKING:
    from support.clocks import Clock

HOST = "a.example"
NUMBER = 7
GAP = 2.0
WHOLE = Terms(gap=GAP, concurrency=8)
UNITS = Terms(concurrency=4)


def grant(terms: Terms = WHOLE, units: int = 1, number: int = NUMBER, **fields) -> Grant:
    """Return what the database gave of a slot."""
    name = fields.pop("name", HOST)
    return Grant(limit_id=number, kind="slot", name=name, in_force=terms, units=units, **fields)


def limiter(clock: Clock, terms: Terms = WHOLE, units: int = 1, **fields) -> Limiter:
    """Return a slot's limiter that the database gave just now."""
    made = Limiter(("slot", HOST), lambda: terms, NUMBER)
    made.take(grant(terms, units, **fields), clock.now)
    return made


def known(terms: Terms = WHOLE) -> Limiters:
    """Return limiters whose slots are all kept alike."""
    return Limiters(lambda _: terms, lambda _: None)


def run(one: Limiter, clock: Clock, took: float = 0.5) -> None:
    """Let a request start, reach its socket, and end."""
    one.begin(clock.now)
    one.starts.sent(clock.now)
    clock.wait(took)
    one.end(clock.now, took)


# Numbers


def test_a_limit_with_another_number_is_lost_and_one_without_is_asked_for(clock):
    """Where the database went back, a slot may have another number by now, or none."""
    limiters = known()
    kept, moved, gone = map(limiters.slot, ("kept.example", "moved.example", "gone.example"))
    limiters.identify({"kept.example": 1, "moved.example": 2, "gone.example": 3})
    for one in (kept, moved, gone):
        one.take(grant(number=one.limit_id, name=one.name), clock.now)

    limiters.renumber({kept.key: 1, moved.key: 3})

    assert [one.units for one in (kept, moved, gone)] == [1, 0, 0]
    assert [one.limit_id for one in (kept, moved, gone)] == [1, 3, None]
    assert limiters.unidentified == [gone.key]
    assert limiters.rooms({}).keys() == {1}


# When the next request may start


def test_nothing_starts_without_units(clock):
    """What this process does not have lets nothing start."""
    one = limiter(clock, units=0, again_in=1.0)

    assert one.ready_at(clock.now) == math.inf
    assert not one.admits(clock.now)
    assert one.admits_at() == math.inf


def test_the_first_request_waits_until_it_is_due(clock):
    """What the last holder started keeps off the first request here for the rest of the gap."""
    one = limiter(clock, due_in=0.25)

    assert one.ready_at(clock.now) == clock.now + 0.25
    assert not one.admits(clock.now)
    assert one.admits_at() == pytest.approx(clock.now + 0.2)
    assert one.admits(clock.wait(0.21))
    assert one.ready_at(clock.wait(0.1)) == clock.now


def test_a_request_is_let_start_as_much_sooner_as_it_takes_to_leave(clock):
    """By what the latest ones took at least and by 2 ms at most, not by what a connection took."""
    one = limiter(clock)

    def leads(*times: float) -> float:
        for took in times:
            one.begin(clock.now)
            one.starts.sent(clock.wait(took))
            one.end(clock.now, 0.0)
        return GAP - (one.ready_at(clock.now) - clock.now)

    assert leads(5.0) == 0
    assert leads(0.001) == pytest.approx(0.0001)
    assert leads(*[0.001] * 30) == pytest.approx(0.001)
    assert leads(*[0.019] * 30) == pytest.approx(0.002)
    assert leads(0.0005) == pytest.approx(0.0005)
    assert leads(5.0) == 0


def test_the_gap_counts_from_when_a_request_was_sent(clock):
    """Nothing starts before the last request has left, and then not before the gap is over."""
    one = limiter(clock)
    one.begin(clock.now)

    assert one.ready_at(clock.wait(5.0)) == math.inf
    one.starts.sent(clock.now)
    assert one.ready_at(clock.now) == clock.now + GAP
    assert one.ready_at(clock.wait(GAP)) == clock.now


def test_what_runs_at_once_is_capped_beside_a_gap(clock):
    """A limit with both keeps both."""
    one = limiter(clock, Terms(gap=GAP, concurrency=2))
    for _ in range(2):
        one.begin(clock.now)
        one.starts.sent(clock.now)
        clock.wait(GAP)

    assert one.ready_at(clock.now) == math.inf
    one.end(clock.now, 4.0)
    assert one.ready_at(clock.now) == clock.now


def test_units_are_how_many_run_at_once(clock):
    """A limit without a gap lets as many run as there are units here."""
    one = limiter(clock, UNITS, units=2)
    one.begin(clock.now)
    assert one.ready_at(clock.now) == clock.now
    one.begin(clock.now)
    assert one.ready_at(clock.now) == math.inf
    one.end(clock.now, 0.1)
    assert one.ready_at(clock.now) == clock.now


def test_a_block_keeps_all_off(clock):
    """Nothing starts while a site is to be left alone, with a gap or without."""
    for terms in (WHOLE, UNITS):
        one = limiter(clock, terms)
        one.block(clock.now + 10)
        one.block(clock.now + 5)
        assert one.ready_at(clock.now) == clock.now + 10
        assert not one.admits(clock.now)
        one.take(grant(terms), clock.wait(1.0))
        assert one.ready_at(clock.now) == clock.now


def test_a_block_met_while_the_database_was_asked_stands(clock):
    """An answer to what was asked before does not lift what was learned since."""
    one = limiter(clock)
    asked_at = clock.now
    one.use(asked_at, 1)
    clock.wait(0.01)
    one.block(clock.now + 60)

    one.take(grant(), asked_at)

    assert one.ready_at(clock.now) == pytest.approx(clock.now + 60)


def test_a_renewal_does_not_shorten_the_gap(clock):
    """What the database says on renewal does not let a request start before its turn."""
    one = limiter(clock)
    one.begin(clock.now)
    one.starts.sent(clock.now)

    one.take(grant(due_in=0.0), clock.wait(0.5))

    assert one.ready_at(clock.now) == pytest.approx(clock.now + GAP - 0.5)


def test_a_longer_delay_holds_at_once(clock):
    """A delay that becomes longer while the limit is in hand holds for the next request."""
    one = limiter(clock)
    run(one, clock)

    one.take(grant(Terms(gap=10.0), set_gap=10.0), clock.now)

    assert one.ready_at(clock.now) == pytest.approx(clock.now + 9.5)


# What the engine may have


def test_the_engine_gets_one_request_ahead(clock):
    """Of a slot with a gap the engine has no second request while the first one waits there."""
    one = limiter(clock)
    assert one.admits(clock.now)
    one.ahead = one.occupied = 1
    assert not one.admits(clock.now)
    one.ahead = 0
    assert one.admits(clock.now)
    one.occupied = 8
    assert not one.admits(clock.now)


def test_the_engine_gets_one_more_than_may_run(clock):
    """Of a slot without a gap the engine has one that starts as soon as another ends."""
    one = limiter(clock, UNITS, units=2)
    one.occupied = 2
    assert one.admits(clock.now)
    one.occupied = 3
    assert not one.admits(clock.now)


def test_an_unsent_request_holds_others_off_for_a_gap_at_least(clock):
    """As long as it is not known when a request leaves, the next is a gap away."""
    slow, fast = limiter(clock), limiter(clock, Terms(gap=0.01))
    for one in (slow, fast):
        one.begin(clock.now)

    assert not slow.admits(clock.now)
    assert fast.admits(clock.now)


# What the database is told


def test_nothing_is_told_of_what_is_neither_had_nor_wanted(clock):
    """A limit without units and without a use is not talked about."""
    one = limiter(clock, units=0)

    assert one.use(clock.now, 0) is None
    assert one.use(clock.now, 1).wants == 1


def test_a_start_is_told_once_and_how_long_ago(clock):
    """What started last is told as a duration, for clocks differ."""
    one = limiter(clock)
    run(one, clock, took=0.5)

    told = one.use(clock.now, 1)
    one.take(grant(), clock.now)

    assert (told.last_ago, told.latency) == (0.5, 0.5)
    assert one.use(clock.now, 1).last_ago is None


def test_a_start_is_told_until_the_database_has_it(clock):
    """A start is told again when the answer to the first telling never came."""
    one = limiter(clock)
    run(one, clock, took=0.5)
    assert one.use(clock.now, 1).last_ago == 0.5

    assert one.use(clock.wait(1.0), 1).last_ago == pytest.approx(1.5)


def test_more_is_wanted_as_more_waits(clock):
    """Units are wanted for what waits and runs, up to the cap; what is had is kept unasked."""
    one = limiter(clock, UNITS, units=1)

    assert one.use(clock.now, 3).wants == 3
    assert one.use(clock.now, 30).wants == 4
    one.take(grant(UNITS, 4), clock.now)
    assert one.use(clock.now, 1).wants == 4
    one.take(grant(UNITS, 4, others_ask=True), clock.now)
    assert one.use(clock.now, 1).wants == 1


def test_what_others_did_while_a_limit_was_lost_counts(clock):
    """A start of before that is of no account when the database names a later moment."""
    one = limiter(clock)
    one.begin(clock.now)
    one.starts.sent(clock.now, has_left=False)
    one.lose()
    one.starts.leave(clock.wait(0.1), is_gone=True)

    one.take(grant(due_in=5.0), clock.wait(0.1))

    assert one.ready_at(clock.now) == clock.now + 5.0


def test_a_cap_that_is_lowered_holds_at_once(clock):
    """What runs ends, and only so many start again, though units are had for more."""
    one = limiter(clock, UNITS, units=4)
    for _ in range(4):
        one.begin(clock.now)
        one.starts.sent(clock.now)
        one.occupied += 1
    before = one.room(clock.now, 0)
    one.take(grant(Terms(concurrency=2), 4), clock.now)

    assert one.room(clock.now, 0) < before
    for running in (3, 2):
        one.end(clock.wait(0.1), 0.1)
        one.occupied -= 1
        assert one.running == running
        assert one.ready_at(clock.now) == math.inf
    one.end(clock.wait(0.1), 0.1)
    assert one.ready_at(clock.now) == clock.now


def test_while_the_database_is_asked_no_more_run_than_it_was_told(clock):
    """It may give away what did not run; only with its answer the rest may be used, or is gone."""
    one = limiter(clock, UNITS, units=4)
    one.begin(clock.now)
    one.begin(clock.now)

    told = one.use(clock.now, 2)

    assert told.running == 2
    assert one.ready_at(clock.now) == math.inf
    one.end(clock.now, 0.1)
    assert one.ready_at(clock.now) == clock.now
    one.begin(clock.now)
    one.take(grant(UNITS, 2, others_ask=True), clock.now)
    assert one.ready_at(clock.now) == math.inf

    one.use(clock.now, 2)
    one.take(grant(UNITS, 4), clock.now)
    assert one.ready_at(clock.now) == clock.now


def test_while_the_database_is_asked_one_may_start_where_none_ran(clock):
    """A worker that has some of a limit keeps one unit at least, whoever asks."""
    one = limiter(clock, UNITS, units=4)

    one.use(clock.now, 2)

    assert one.ready_at(clock.now) == clock.now
    one.begin(clock.now)
    assert one.ready_at(clock.now) == math.inf


def test_what_runs_is_told(clock):
    """The database learns how many units cannot be given back."""
    one = limiter(clock, UNITS, units=2)
    one.begin(clock.now)

    assert one.use(clock.now, 0).running == 1


def test_a_limit_without_use_is_kept_for_a_moment(clock):
    """What has no use is kept a while in case it gets one, and then given up."""
    one = limiter(clock)
    run(one, clock)

    assert one.use(clock.wait(0.9), 0).wants == 1
    assert one.use(clock.wait(0.2), 0).wants == 0


def test_a_limit_without_use_goes_to_who_asks(clock):
    """What has no use goes as soon as others ask for it, but not before its gap is over."""
    one = limiter(clock, WHOLE, others_ask=True)
    run(one, clock)

    assert not one.use(clock.now, 0).spare
    assert one.use(clock.now, 0).wants == 1
    clock.wait(GAP - 0.5)
    assert one.use(clock.now, 0).wants == 0


def test_a_limit_that_others_ask_for_goes_after_its_window(clock):
    """A holder with work gives way when its window is over and its requests have ended."""
    gap = 0.01
    one = limiter(clock, Terms(gap=gap, concurrency=8), others_ask=True)
    one.begin(clock.wait(0.9))
    one.starts.sent(clock.now)
    assert one.use(clock.now, 5).wants == 6
    assert one.renews_at(5) == pytest.approx(clock.now + 0.1)

    assert one.use(clock.wait(0.2), 5).wants == 6

    assert one.is_yielding
    assert one.ready_at(clock.now) == math.inf
    assert not one.admits(clock.now)
    one.end(clock.wait(0.1), 0.3)
    assert one.renews_at(5) == -math.inf
    assert one.use(clock.now, 5).wants == 0
    one.take(grant(units=0, again_in=1.0), clock.now)
    assert not one.is_yielding
    assert one.again_at == clock.now + 1.0


@pytest.mark.parametrize(("gap", "window"), [(0.01, 1.0), (0.5, 10.0), (5.0, 30.0)])
def test_a_window_has_room_for_some_starts(clock, gap, window):
    """How long a holder keeps what others ask for goes with the gap, within bounds."""
    one = limiter(clock, Terms(gap=gap), others_ask=True)

    assert one.renews_at(5) == pytest.approx(clock.now + window)


def test_a_limit_that_cannot_be_used_goes_to_who_asks(clock):
    """A holder whose requests wait for something else does not sit its window out."""
    one = limiter(clock, Terms(gap=5.0), others_ask=True)

    one.use(clock.wait(0.5), 3)
    assert not one.is_yielding
    assert one.use(clock.wait(0.6), 3).wants == 0


@pytest.mark.parametrize("others_ask", [True, False])
def test_nothing_starts_while_a_limit_is_being_given_up(clock, others_ask):
    """From when the database is told that a limit is free, nothing starts here any more."""
    one = limiter(clock, others_ask=others_ask)
    run(one, clock)
    clock.wait(10.0)

    assert one.use(clock.now, 0).wants == 0

    assert one.ready_at(clock.now) == math.inf


def test_what_is_lost_lets_nothing_start(clock):
    """A worker that was given up for dead has nothing until it has it anew."""
    one = limiter(clock)
    run(one, clock)
    one.lose()

    assert one.ready_at(clock.wait(60.0)) == math.inf
    one.take(grant(due_in=GAP), clock.now)
    assert one.ready_at(clock.now) == clock.now + GAP


# All of them


def test_a_slot_is_known_by_name_and_then_by_number(clock):
    """A slot gets its number from the database, by itself or with what it is given."""
    one, other = "a.example", "b.example"
    all_ = known()
    first = all_.slot(one)
    assert all_.slot("") is None
    assert all_.slot(one) is first
    assert [name for _, name in all_.unidentified] == [one]

    all_.identify({one: 1})
    all_.take([grant(number=2, name=other)], clock.now)

    assert all_.unidentified == []
    assert all_.slot(other).units == 1


def test_rooms_are_for_what_may_start_soon(clock):
    """A limit in hand has room for the starts of the time looked ahead, less those in hand."""
    all_ = known(Terms(gap=0.1))
    all_.take([grant(Terms(gap=0.1))], clock.now)
    one = all_.slot(HOST)

    free = all_.rooms({})[NUMBER]
    assert 3 <= free <= 4
    assert all_.rooms({one: 2}) == {NUMBER: free - 2}
    assert all_.rooms({one: 99}) == {NUMBER: 0}
    one.begin(clock.now)
    assert all_.rooms({})[NUMBER] <= free - 1
    one.starts.sent(clock.now)
    one.is_yielding = True
    assert all_.rooms({}) == {NUMBER: 0}


def test_a_quick_website_has_room_for_what_it_answers_while_a_claim_takes_long(clock):
    """Of 4 at once, answered in 0.1 s, 20 are worked off in 0.5 s: these are claimed beside."""
    all_ = known(Terms(concurrency=4))
    all_.take([grant(Terms(concurrency=4), units=4)], clock.now)
    usual = all_.rooms({})[NUMBER]
    assert all_.rooms({}, 0.5)[NUMBER] == usual

    run(all_.slot(HOST), clock, took=0.1)

    assert all_.rooms({})[NUMBER] == usual
    assert all_.rooms({}, 0.5)[NUMBER] == usual + 20


def test_a_slow_limit_has_no_room_until_its_next_start_is_near(clock):
    """Work is claimed shortly before it may start, and no earlier."""
    all_ = known()
    all_.take([grant()], clock.now)
    one = all_.slot(HOST)
    assert all_.rooms({}) == {NUMBER: 1}
    run(one, clock, took=0.1)

    assert all_.rooms({}) == {NUMBER: 0}
    assert all_.soonest_room({}) == pytest.approx(GAP - 0.1 - LOOKAHEAD)
    clock.wait(all_.soonest_room({}) + 0.001)
    assert all_.rooms({}) == {NUMBER: 1}


def test_a_blocked_limit_has_no_room(clock):
    """What is to be left alone is claimed no work for, with a gap or without."""
    for terms in (WHOLE, UNITS):
        all_ = known(terms)
        all_.take([grant(terms, blocked_in=60.0)], clock.now)
        assert all_.rooms({}) == {NUMBER: 0}


def test_a_blocked_limit_has_room_again_when_its_block_is_over(clock):
    """How long to wait for room is told of a block as of a gap."""
    all_ = known()
    all_.take([grant(blocked_in=60.0)], clock.now)

    assert all_.soonest_room({}) == pytest.approx(60.0 - LOOKAHEAD)


def test_a_limit_that_is_yielded_gets_room_by_no_lapse_of_time(clock):
    """While what runs must end before anything else may start, there is no time to wait for."""
    all_ = known(Terms(gap=0.1, concurrency=1))
    all_.take([grant(Terms(gap=0.1, concurrency=1), others_ask=True)], clock.now)
    one = all_.slot(HOST)
    one.begin(clock.now)
    one.starts.sent(clock.now)
    one.use(clock.wait(3.0), 3)
    assert one.is_yielding

    assert all_.rooms({one: 3}) == {NUMBER: 0}
    assert all_.soonest_room({one: 3}) == math.inf


def test_a_limit_whose_cap_is_reached_gets_room_by_no_lapse_of_time(clock):
    """While as much runs as may, and the next ones are in hand, claiming more is of no use."""
    terms = Terms(gap=0.5, concurrency=1)
    all_ = known(terms)
    all_.take([grant(terms)], clock.now)
    one = all_.slot(HOST)
    one.begin(clock.now)
    one.starts.sent(clock.now)
    clock.wait(3.0)

    assert all_.rooms({one: 1}) == {NUMBER: 0}
    assert all_.soonest_room({one: 1}) == math.inf


def test_a_capped_limit_has_room_while_little_waits_for_it(clock):
    """What waits for units does not fill the memory that work of other slots needs."""
    all_ = known(UNITS)
    all_.take([grant(UNITS, 4)], clock.now)
    one = all_.slot(HOST)

    assert all_.rooms({})[NUMBER] > 0
    assert all_.rooms({one: MANY}) == {NUMBER: 0}


def test_uses_are_told_of_what_is_had_or_wanted(clock):
    """Limits in hand are renewed, those wanted are asked for, and others are forgotten."""
    all_ = known()
    names = ["had.example", "wanted.example", "idle.example"]
    for number, name in enumerate(names, start=1):
        all_.slot(name)
        all_.identify({name: number})
    all_.take([grant(number=1, name=names[0])], clock.now)
    wanted = all_.slot(names[1])

    uses = all_.uses({wanted: 2})

    assert {use.limit_id for use in uses} == {1, 2}
    assert {name for _, name in (one.key for one in all_)} == set(names[:2])


def test_a_refused_limit_is_remembered_until_asking_helps(clock):
    """A slot that was refused is not forgotten before it may be asked for again."""
    all_ = known()
    all_.take([grant(units=0, again_in=5.0)], clock.now)

    assert all_.uses({}) == []
    assert [one.key[1] for one in all_] == [HOST]
    clock.wait(6.0)
    all_.uses({})
    assert list(all_) == []


def test_a_renewal_is_due_when_there_is_something_to_say(clock):
    """The next renewal is in a second at most, or when asking again may help."""
    all_ = known()
    one = all_.slot(HOST)
    all_.identify({HOST: NUMBER})
    assert all_.next_renewal({one: 1}) == pytest.approx(0.02)

    one.take(grant(units=0, again_in=0.4), clock.now)
    assert all_.next_renewal({one: 1}) == pytest.approx(0.4)
    assert all_.next_renewal({}) == 1.0
    one.take(grant(), clock.now)
    assert all_.next_renewal({one: 1}) == 1.0


def test_what_lacks_units_is_seen(clock):
    """More units are asked for at once where requests in hand could use them."""
    all_ = known(UNITS)
    all_.take([grant(UNITS, 2)], clock.now)
    one = all_.slot(HOST)

    assert not all_.lacks({one: 2})
    assert all_.lacks({one: 3})
    one.take(grant(UNITS, 4), clock.now)
    assert not all_.lacks({one: 9})


def test_losing_all_forgets_what_is_in_hand(clock):
    """A worker that begins anew has nothing, and asks at once."""
    all_ = known()
    all_.take([grant()], clock.now)
    all_.lose()

    assert all_.rooms({}) == {}
    assert all_.next_renewal({all_.slot(HOST): 1}) == pytest.approx(0.02)


def test_the_last_starts_are_told_at_the_end(clock):
    """A worker that stops tells when it last started something under each limit it has."""
    all_ = known()
    all_.take([grant()], clock.now)
    run(all_.slot(HOST), clock, took=0.5)

    (told,) = all_.uses({})

    assert (told.limit_id, told.last_ago) == (NUMBER, 0.5)
