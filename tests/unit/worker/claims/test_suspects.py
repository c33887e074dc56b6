"""What must run alone has its turn between ordinary batches, and waits for what is under way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from support.parts import Parts, a_claim

from scrapy_itemgraph.worker.claims.suspects import Suspects


def suspects(parts: Parts, *, are_there: bool = True) -> Suspects:
    """Return the suspects of some parts, and whether the graph has any."""
    graph = SimpleNamespace(upkeep=SimpleNamespace(suspects_wait=are_there))
    return Suspects(graph=graph, active=parts.active, ready=parts.ready, outbox=parts.outbox)


def test_nothing_is_held_back_while_there_are_none():
    """Where no suspect waits an idle worker has no turn to give."""

    async def run() -> tuple[bool, bool]:
        parts = Parts()
        may = suspects(parts, are_there=False).may_claim(is_dry=True, is_running=True)
        return may, parts.ready.is_holding

    assert asyncio.run(run()) == (False, False)


def test_a_busy_worker_goes_on_until_a_batch_was_handed_out():
    """Ordinary work is not held back before its turn is over."""

    async def run() -> list[bool]:
        parts = Parts()
        made = suspects(parts)
        before = made.may_claim(is_dry=False, is_running=True)
        parts.ready.handed_out = 25
        return [before, made.may_claim(is_dry=False, is_running=True)]

    assert asyncio.run(run()) == [False, True]


def test_a_suspect_waits_for_what_is_under_way_and_nothing_else_is_handed_out():
    """What has not started waits in memory; what has is waited for."""

    async def run() -> tuple[list[bool], bool]:
        parts = Parts()
        made = suspects(parts)
        leg = parts.claimed().open_leg(is_own=True)
        parts.ready.handed_out = 25
        while_busy = made.may_claim(is_dry=False, is_running=True)
        is_holding = parts.ready.is_holding
        leg.execution.release()
        leg.close()
        parts.outbox.take()
        parts.outbox.settle(back=[])
        return [while_busy, made.may_claim(is_dry=False, is_running=True)], is_holding

    assert asyncio.run(run()) == ([False, True], True)


def test_the_turn_is_over_when_no_suspect_is_found():
    """Then ordinary work goes on, and there are none as far as is known."""

    async def run() -> tuple[bool, bool]:
        parts = Parts()
        made = suspects(parts)
        assert made.may_claim(is_dry=True, is_running=True)
        made.claimed(has_found=False)
        return parts.ready.is_holding, made.graph.upkeep.suspects_wait

    assert asyncio.run(run()) == (False, False)


def test_one_that_was_found_is_followed_by_the_next():
    """The turn goes on: nothing else is handed out, and the next one waits for it."""

    async def run() -> tuple[bool, bool]:
        parts = Parts()
        made = suspects(parts)
        assert made.may_claim(is_dry=True, is_running=True)
        parts.active.begin(claim=a_claim(is_alone=True))
        made.claimed(has_found=True)
        return parts.ready.is_holding, made.may_claim(is_dry=False, is_running=True)

    assert asyncio.run(run()) == (True, False)
