"""What the engine may get: only what the database was told of, and a little ahead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from parts import a_claim

from scrapy_itemgraph.worker.executions.execution import Execution
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests

if TYPE_CHECKING:
    from scrapy_itemgraph.model.work import Claim


class Crawl:
    """The executions of a crawl, and what was handed to its engine."""

    def __init__(self, *, concurrency: int = 2, places: int = 100) -> None:
        self.working: set[Execution] = set()
        self.running: list[object] = []
        self.ready = ReadyRequests(
            working=self.working,
            running=self.running,
            places_of=lambda _: places,
            concurrency=concurrency,
            most_ahead=25,
            wake_engine=lambda: None,
            ran_out=asyncio.Event(),
        )

    def begin(self, *claims: Claim) -> None:
        """Begin the executions of claims, and queue their requests."""
        for one in claims:
            execution = Execution(where="here", claim=one, on_end=self.working.discard)
            execution.is_told = self.ready.is_chosen(one)
            self.working.add(execution)
            self.ready.push(one.item_id, execution.open_leg(is_own=True))
        self.ready.claimed()

    def tell(self, *, succeeds: bool = True) -> set[int]:
        """Tell the database what is next, and return the items that it knows of then."""
        startable = self.ready.next(is_starved=True)
        if startable is None:
            return set()
        self.ready.settle(is_told=succeeds)
        return {item for item, _ in startable}

    def popped(self) -> list[int]:
        """Hand out whatever may go."""
        found = []
        while (popped := self.ready.pop(lambda _: True)) is not None:
            found.append(popped[0])
            self.running.append(popped[0])
        return found


def test_the_engine_gets_nothing_that_the_database_does_not_know():
    """A request waits until the database was told; who asks in vain has it told."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 6)))

    assert crawl.popped() == []
    assert crawl.ready.wanted.is_set()
    known = crawl.tell()

    assert crawl.popped() == sorted(known) == [1, 2, 3]  # two may start, and one is ahead
    assert len(crawl.ready) == 2


def test_what_the_database_was_not_told_stays_where_it_was():
    """After a transaction that failed nothing is handed out, and nothing is lost."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 4)))

    crawl.tell(succeeds=False)
    in_vain = crawl.popped()
    crawl.tell()

    assert in_vain == []
    assert sorted(crawl.popped()) == [1, 2, 3]


def test_only_one_tells_at_a_time():
    """What is known is written as a whole, so a second writer would undo what the first said."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 9)))
    first = crawl.ready.next()

    assert crawl.ready.next(is_starved=True) is None
    assert crawl.ready.of_claims([a_claim(9)]) is None

    crawl.ready.claimed()
    assert first is not None
    crawl.ready.settle(is_told=False)
    assert crawl.ready.next() is not None


def test_ahead_goes_as_much_as_was_handed_out_since_the_last_time():
    """A quick crawl is told of more in one transaction than a slow one."""
    crawl = Crawl(concurrency=4)
    crawl.begin(*map(a_claim, range(1, 30)))
    crawl.tell()
    assert len(crawl.popped()) == 5

    known = crawl.tell()

    assert len(known) == 5 + 1 + 5  # one may start, for it was asked for


def test_a_claim_tells_of_what_may_start_at_once():
    """Of new claims as many are known as there is room for, in the engine and in their slots."""
    crawl = Crawl(concurrency=4, places=1)
    claims = [a_claim(1), a_claim(2), a_claim(3, slot="b.example")]

    known = crawl.ready.of_claims(claims)
    crawl.begin(*claims)

    assert known == {(1, 1), (3, 1)}
    assert sorted(crawl.popped()) == [1, 3]


def test_what_ended_is_known_no_longer():
    """The next writing leaves out what the engine has no more."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 9)))
    crawl.tell()
    crawl.popped()
    ended = next(one for one in crawl.working if one.claim.item_id == 1)
    for leg in list(ended.legs):
        leg.close()
    crawl.running.pop()

    assert 1 not in crawl.tell()


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_runs_alone_is_all_that_is_known(is_under_way):
    """While something runs alone nothing else is handed out, nor known to be; then all goes on."""
    crawl = Crawl()
    crawl.begin(*map(a_claim, range(1, 5)))
    telling = crawl.ready.next() if is_under_way else crawl.tell() and None

    crawl.ready.hold()
    if telling is not None:
        crawl.ready.settle(is_told=True)
    assert not crawl.ready.is_telling
    known = crawl.ready.of_claims([a_claim(9, is_alone=True)])
    crawl.begin(a_claim(9, is_alone=True))

    assert known == {(9, 1)}
    assert crawl.popped() == [9]
    assert crawl.ready.next() is None
    crawl.running.clear()
    crawl.ready.go_on()
    assert crawl.popped() == []
    crawl.tell()
    assert crawl.popped()
