"""What the engine may get: only what is in flight as the database knows, and a little ahead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from support.parts import a_claim

from scrapy_itemgraph.model.work import InFlight
from scrapy_itemgraph.worker.executions.execution import Execution
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests

if TYPE_CHECKING:
    from scrapy_itemgraph.model.work import Claim


SLOTS = ("a.example", "b.example")


class Crawl:
    """The executions of a crawl, and what was handed to its engine."""

    def __init__(self, *, concurrency: int = 2, places: int = 100) -> None:
        self.working: set[Execution] = set()
        self.running: list[object] = []
        self.woken = 0
        self.ready = ReadyRequests(
            working=self.working,
            running=self.running,
            places=lambda: dict.fromkeys(SLOTS, places),
            concurrency=concurrency,
            most_ahead=25,
            wake_engine=self.wake,
            ran_out=asyncio.Event(),
        )

    def begin(self, *claims: Claim) -> None:
        """Begin the executions of claims, and queue their requests."""
        for one in claims:
            self.ready.push(one.item_id, self.execution(one).open_leg(is_own=True))
        self.ready.end_claim()

    def execution(self, claim: Claim) -> Execution:
        """Begin the execution of a claim."""
        execution = Execution(where="here", claim=claim, on_end=self.working.discard)
        execution.is_in_flight = claim.is_in_flight
        self.working.add(execution)
        return execution

    def wake(self) -> None:
        """Count how often the engine is to ask."""
        self.woken += 1

    def write(self, *, succeeds: bool = True) -> set[int]:
        """Put in flight what is next, and return the items that are in flight then."""
        pairs = self.ready.begin_writing(is_starved=True)
        if pairs is None:
            return set()
        self.ready.end_writing(is_written=succeeds)
        return {item for item, _ in pairs}

    def popped(self) -> list[int]:
        """Hand out whatever may go."""
        found = []
        while (popped := self.ready.pop(lambda _: True)) is not None:
            found.append(popped[0])
            self.running.append(popped[0])
        return found


def test_the_engine_gets_nothing_that_is_not_in_flight():
    """A request waits until that is written; an engine that asks in vain has it written."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 6)))

    assert crawl.popped() == []
    assert crawl.ready.starved.is_set()
    written = crawl.write()

    assert crawl.popped() == sorted(written) == [1, 2, 3]  # two may start, and one is ahead
    assert len(crawl.ready) == 2


def test_what_was_not_written_stays_where_it_was():
    """After a transaction that failed nothing is handed out, and nothing is lost."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 4)))

    crawl.write(succeeds=False)
    in_vain = crawl.popped()
    crawl.write()

    assert in_vain == []
    assert sorted(crawl.popped()) == [1, 2, 3]


def test_only_one_transaction_writes_at_a_time():
    """What is in flight is written as a whole: a second writer would undo what the first wrote."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 9)))
    first = crawl.ready.begin_writing()

    assert crawl.ready.begin_writing(is_starved=True) is None
    assert crawl.ready.begin_claim() is None

    assert first is not None
    crawl.ready.end_writing(is_written=False)
    assert crawl.ready.begin_writing() is not None


def test_while_a_claim_may_write_nothing_else_does_and_the_engine_asks_again_then():
    """A claim writes as a whole what is in flight, by what was so when it began."""
    crawl = Crawl(concurrency=4)
    crawl.begin(a_claim(1))
    crawl.write()
    assert crawl.popped() == [1]

    given = crawl.ready.begin_claim()
    crawl.ready.push(2, crawl.execution(a_claim(2)).open_leg(is_own=True))
    asked_in_vain = crawl.write()
    woken = crawl.woken
    crawl.ready.end_claim()

    assert given == InFlight(pairs={(1, 1)}, room=3, places=dict.fromkeys(SLOTS, 100))
    assert asked_in_vain == set()
    assert crawl.woken == woken + 1
    assert crawl.write() == {1, 2}


def test_ahead_goes_as_much_as_was_handed_out_since_the_last_time():
    """A quick crawl puts more in flight in one transaction than a slow one."""
    crawl = Crawl(concurrency=4)
    crawl.begin(*map(a_claim, range(1, 30)))
    crawl.write()
    assert len(crawl.popped()) == 5

    written = crawl.write()

    assert len(written) == 5 + 1 + 5  # one may start, for it was asked for


def test_what_is_handed_out_while_a_transaction_writes_is_replaced_by_the_next():
    """Where each takes long, the engine would else get no more than what one puts in flight."""
    crawl = Crawl(concurrency=4)
    crawl.begin(*map(a_claim, range(1, 60)))
    crawl.write()
    crawl.popped()
    crawl.write()

    crawl.ready.begin_writing(is_starved=True)
    handed_out = len(crawl.popped())
    crawl.ready.end_writing(is_written=True)

    assert handed_out == 6
    assert len(crawl.write()) == 5 + 6 + 1 + 6


def test_claims_that_are_in_flight_start_at_once():
    """The others wait until a transaction puts them in flight."""
    crawl = Crawl(concurrency=4)

    assert crawl.ready.begin_claim() is not None
    crawl.begin(a_claim(1, is_in_flight=True), a_claim(2), a_claim(3, is_in_flight=True))

    assert sorted(crawl.popped()) == [1, 3]
    assert crawl.ready.starved.is_set()


def test_a_claim_puts_nothing_in_flight_where_the_engine_has_no_room():
    """What waits already goes first."""
    crawl = Crawl(concurrency=2)
    crawl.begin(a_claim(1), a_claim(2))

    assert crawl.ready.begin_claim() is None


def test_what_ended_is_not_in_flight_any_more():
    """The next writing leaves out what the engine has no more."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 9)))
    crawl.write()
    crawl.popped()
    ended = next(one for one in crawl.working if one.claim.item_id == 1)
    for leg in list(ended.legs):
        leg.close()
    crawl.running.pop()

    assert 1 not in crawl.write()


@pytest.mark.parametrize("is_under_way", [False, True])
def test_beside_what_runs_alone_nothing_is_put_in_flight(is_under_way):
    """While something runs alone nothing else is handed out; then all goes on."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 5)))
    writing = crawl.ready.begin_writing() if is_under_way else crawl.write() and None

    crawl.ready.hold()
    if writing is not None:
        crawl.ready.end_writing(is_written=True)
    assert not crawl.ready.is_writing
    assert crawl.ready.begin_claim() is None
    crawl.begin(a_claim(8, is_in_flight=True))  # a coroutine of `request=` that ends now
    crawl.begin(a_claim(9, is_alone=True, is_in_flight=True))

    assert crawl.popped() == [9]
    assert crawl.ready.begin_writing() is None
    crawl.running.clear()
    crawl.ready.go_on()
    assert crawl.popped() == []
    crawl.write()
    assert crawl.popped()
