"""The committer, alone: when it commits, what with, and what comes after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.parts import Parts, running, turns

from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.model.work import Applied, Outcome
from scrapy_itemgraph.tools import async_tools
from scrapy_itemgraph.worker.committer import Committer


class Enqueuer:
    """Hears of what was committed."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, bool]] = []

    async def applied(self, execution: Any, applied: Applied, *, has_freed: bool) -> None:
        self.heard.append((execution, has_freed))


def committer(parts: Parts, enqueuer: Enqueuer | None = None, **more: Any) -> Committer:
    """Return the committer of some parts, which lets changesets wait for a minute."""
    return Committer(
        parts.graph,
        parts.outbox,
        parts.active,
        parts.ready,
        sessions=parts.sessions,
        callbacks=parts.callbacks,
        enqueuer=enqueuer or Enqueuer(),
        news=parts.news,
        stats=parts.crawler.stats,
        **{"tallies": Tallies(), "interval": 60.0, **more},
    )


def test_the_last_execution_is_committed_at_once():
    """Changesets wait for others while requests do, and not when nothing is under way any more."""

    async def run() -> tuple[int, int]:
        parts = Parts()
        one, two = (parts.claimed(number).open_leg() for number in (1, 2))
        parts.ready.push("request", two)
        with running(committer(parts).run()):
            one.close()
            await turns()
            before = len(parts.graph.committed)
            two.close()
            await turns()
            return before, len(parts.graph.committed[0])

    assert asyncio.run(run()) == (0, 2)


@pytest.mark.parametrize(
    ("interval", "crowd", "longest"),
    [(0.2, 1, 0.2), (0.2, 2, 0.4), (0.2, 8, 0.5), (2, 8, 2), (0, 8, 0)],
)
def test_one_of_many_workers_lets_more_gather(interval, crowd, longest):
    """Up to half a second, so that many workers together commit no more often than few."""

    async def run() -> float:
        parts = Parts()
        parts.graph.crowd = crowd
        return committer(parts, interval=interval).longest_wait

    assert asyncio.run(run()) == pytest.approx(longest)


def test_a_batch_is_committed_while_others_are_under_way():
    """As many as fit into a transaction do not wait for what is still under way."""

    async def run() -> list[int]:
        parts = Parts()
        legs = [parts.claimed(number).open_leg() for number in range(5)]
        parts.ready.push("request", legs[4])
        with running(committer(parts).run()):
            for leg in legs[:4]:
                leg.close()
            await turns()
            return [len(batch) for batch in parts.graph.committed]

    assert asyncio.run(run()) == [3]


def test_what_ended_is_committed_at_once_when_nothing_is_left_to_hand_out():
    """The engine may have nothing to do before the commit brings it work."""

    async def run() -> list[list[int]]:
        parts = Parts()
        legs = [parts.claimed(number).open_leg() for number in range(4)]
        execution = legs[3].execution
        execution.is_in_flight = True
        parts.ready.push("request", legs[3])
        with running(committer(parts).run()):
            seen = []
            for step in (legs[0].close, lambda: parts.ready.pop(lambda _: True), legs[1].close):
                step()
                await turns()
                seen.append([len(batch) for batch in parts.graph.committed])
            return seen

    assert asyncio.run(run()) == [[], [1], [1, 1]]


def test_what_a_lost_database_did_not_take_waits_in_its_place():
    """After an error the batch is there again, in order, and the next flush commits it."""

    async def run() -> tuple[int, list[Any]]:
        parts = Parts()
        made = committer(parts)
        for number in (1, 2):
            parts.claimed(number).open_leg().close()
        parts.graph.error = DatabaseUnavailableError("gone")
        with pytest.raises(DatabaseUnavailableError):
            await made.flush()
        pending = parts.outbox.pending
        await made.flush()
        return pending, [one.claim.item_id for one in parts.graph.committed[0]]

    assert asyncio.run(run()) == (2, [1, 2])


def test_new_callbacks_are_registered_and_hooks_awaited_before_the_transaction():
    """What a transaction needs is there before it, and is not told of twice."""

    async def run() -> list[Any]:
        parts = Parts()
        seen: list[Any] = []

        async def hook() -> None:
            seen.append((list(parts.graph.registered), len(parts.graph.committed)))

        made = committer(parts, before_commit=[hook])
        parts.callbacks.meet("parse", parts.graph.names)
        for _ in range(2):
            parts.active.apply([CreateItem(id="A")], "here")
            await made.flush()
        return seen

    assert asyncio.run(run()) == [(["parse"], 0), (["parse"], 1)]


def test_the_enqueuer_hears_of_each_execution_and_all_of_the_news():
    """After a commit the enqueuer hears of executions, not of operations outside, and news is set.

    It also hears that names were freed meanwhile.
    """

    async def run() -> tuple[Any, ...]:
        parts, enqueuer = Parts(), Enqueuer()
        execution = parts.claimed()
        execution.open_leg().close()
        parts.active.apply([CreateItem(id="A")], "here")
        parts.news.clear()
        await committer(parts, enqueuer).flush()
        return [one is execution for one, _ in enqueuer.heard], parts.news.is_set()

    assert asyncio.run(run()) == ([True], True)


def test_outcomes_are_counted_and_a_lost_claim_is_none():
    """A claim's outcome is counted by its name; one that was lost meanwhile as `lease_lost`."""

    async def run() -> tuple[int, int]:
        parts = Parts()
        parts.graph.applied = [Applied(outcome=Outcome.OK), Applied(outcome=None)]
        for number in (1, 2):
            parts.claimed(number).open_leg().close()
        await committer(parts).flush()
        return parts.stat("itemgraph/committed"), parts.stat("itemgraph/lease_lost")

    assert asyncio.run(run()) == (1, 1)


def test_what_a_great_commit_leaves_is_let_go_of_in_turns(monkeypatch):
    """Operations and what was discovered are freed in parts, after others were told of news."""
    monkeypatch.setattr(async_tools, "LONGEST_TURN", 0.0)

    async def run() -> tuple[bool, list[int]]:
        parts = Parts()
        execution = parts.claimed()
        leg = execution.open_leg()
        execution.operations += [CreateItem("A")] * 20_000
        execution.discovered |= dict.fromkeys(map(str, range(20_000)))
        held = [execution.operations, execution.discovered]
        leg.close()
        committing = asyncio.ensure_future(committer(parts).flush())
        await parts.news.wait()
        is_under_way = bool(held[0]) and not committing.done()
        await committing
        return is_under_way, [len(one) for one in held]

    assert asyncio.run(run()) == (True, [0, 0])
