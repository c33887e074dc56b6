"""The claimer, alone: when it asks for work, and how it finds that nothing is left."""

from __future__ import annotations

import asyncio
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest
from support import seeded_loop
from support.claimers import claimer
from support.parts import URL, Parts, a_claim, running, turns

from scrapy_itemgraph.model.snapshots import ItemSnapshot
from scrapy_itemgraph.model.work import ClaimBudget, ClaimResult, Remaining


class Work:
    """Gives out claims, a list for each time that it is asked, and then none."""

    def __init__(self, parts: Parts, *given: list[Any]) -> None:
        self.given = list(given)
        self.asked: list[int] = []
        self.again = asyncio.Event()
        graph = parts.graph
        graph.claim, graph.remaining = self.claim, self.remaining
        graph.learn, graph.mark_started = self.learn_callbacks, self.note
        graph.finish, graph.suspects_wait, graph.crowd = self.finish, False, 1.0
        graph.limits = SimpleNamespace(of_claim=lambda _: ())

    async def claim(self, budget: ClaimBudget, **_: Any) -> ClaimResult:
        """Give out the next claims."""
        if budget.alone:
            return ClaimResult()
        if self.asked:
            self.again.set()
        self.asked.append(budget.most)
        return ClaimResult(claims=self.given.pop(0) if self.given else ())

    async def remaining(self) -> Any:
        """Return that nothing is left."""
        return SimpleNamespace(has_some=True, is_over=True, next_retry=None)

    async def learn_callbacks(self) -> bool:
        """Return that no callback is new."""
        return False

    async def note(self) -> None:
        """Do nothing."""

    async def finish(self) -> bool:
        """Return that the run is over."""
        return True


def test_news_have_it_ask_again_where_there_was_no_work():
    """It does not ask while it knows of none; whoever sets the news has it ask once more."""

    async def run() -> tuple[int, int]:
        parts = Parts()
        work, made = Work(parts), claimer(parts)
        with running(made.listen(), made.run()):
            await turns(20)
            before = len(work.asked)
            parts.news.set()
            await turns(20)
            return before, len(work.asked)

    assert asyncio.run(run()) == (1, 2)


def test_a_claim_whose_request_cannot_be_built_fails_alone():
    """Its execution ends as a failure that says what is missing; the claimer goes on."""

    async def run() -> tuple[int, str]:
        parts = Parts()
        Work(parts, [a_claim()])
        made = claimer(parts)
        with running(made.run()):
            await turns(20)
            (entry,) = parts.outbox.take()
            return made.hand_out.begun, entry.changeset.error.message

    claimed, message = asyncio.run(run())

    assert claimed == 1
    assert "has no request in its data" in message


def test_limits_are_weighed_against_what_a_claim_brought():
    """Whether more of a limit is wanted is asked with the claim's requests in the queue."""

    async def run() -> tuple[list[int], bool]:
        parts = Parts()
        data = {"url": URL, "request": {"callback": "parse"}}
        Work(parts, [a_claim(item=ItemSnapshot(id="1", aliases=(), tags={}, data=data))])
        made = claimer(parts)
        seen: list[int] = []

        def lacks(_: Any) -> bool:
            seen.append(len(parts.ready))
            return True

        made.limiters.lacks = lacks
        with running(made.run()):
            await turns(20)
        return seen[:1], made.limiters.wanted.is_set()

    assert asyncio.run(run()) == ([1], True)


def test_it_looks_again_when_its_rest_is_over_though_nothing_wakes_it():
    """With room for more, a claim that left enough in hand is followed by another in 0.1 s."""

    async def run() -> list[int]:
        parts = Parts()
        data = {"url": URL, "request": {"callback": "parse"}}
        item = ItemSnapshot(id="1", aliases=(), tags={}, data=data)
        work = Work(parts, [a_claim(number, item=item) for number in range(20)])
        with running(claimer(parts, batch=100).run()):
            await work.again.wait()
        return work.asked

    assert asyncio.run(run()) == [100, 80]


def test_a_limit_that_gets_room_while_the_database_is_asked_is_looked_at_again():
    """It was passed over without room, and has some when nothing was found: no second is lost."""

    async def run() -> float:
        parts = Parts()
        work, made = Work(parts), claimer(parts)
        parts.active.begin().open_leg()
        made.limiters.soonest_room = lambda _: math.inf if work.asked else 0.2
        began = time.monotonic()
        with running(made.run()):
            await turns(20)
        return made._look_at - began

    assert 0.2 <= asyncio.run(run()) < 1


def test_a_moment_that_has_passed_is_waited_for_once():
    """Where there is no room to claim by then, it does not look again and again."""

    async def run() -> tuple[list[int], float]:
        parts = Parts()
        work, made = Work(parts), claimer(parts)
        parts.active.begin().open_leg()
        parts.crawler.engine.running = False
        made._look_at, now = 0.0, time.monotonic()
        with running(made.run()):
            await turns(5)
            made._wake.set()
            await turns(20)
        return work.asked, made._look_at - now

    asked, look_in = asyncio.run(run())

    assert asked == []
    assert look_in >= 1


def test_the_end_is_found_only_after_start_and_with_nothing_under_way():
    """When `start()` has ended, all is committed and the graph has nothing left, it says so."""

    async def run() -> list[bool]:
        found = []
        for has_started, is_busy in ((False, False), (True, True), (True, False)):
            parts = Parts()
            Work(parts)
            made = claimer(parts, has_started=has_started)
            if is_busy:
                parts.active.begin().open_leg()
            with running(made.run()):
                await turns(20)
                found.append(parts.over.is_set())
        return found

    assert asyncio.run(run()) == [False, False, True]


@pytest.mark.parametrize(
    ("again_in", "claimed", "warnings"), [(None, False, 1), (1.0, False, 0), (None, True, 0)]
)
def test_work_that_no_claim_finds_is_said_once(caplog, again_in, claimed, warnings):
    """Not where a limit holds it, nor while another worker has some, which it may wait for."""

    async def run(_) -> None:
        parts = Parts()
        work = Work(parts)

        async def claim(budget: ClaimBudget, **_: Any) -> ClaimResult:
            work.asked.append(budget.most)
            return ClaimResult(again_in=again_in)

        async def remaining() -> Remaining:
            return Remaining(claimable=True, claimed=claimed, sweeping=False, next_retry=None)

        parts.graph.claim, parts.graph.remaining = claim, remaining
        with running(claimer(parts, has_started=True).run()):
            await asyncio.sleep(60)
        assert len(work.asked) >= 60, "it asks at each poll"

    seeded_loop.run(1, run)

    assert caplog.text.count("no claim finds them") == warnings
