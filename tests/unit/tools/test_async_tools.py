"""Turns of the event loop amid long work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

from scrapy_itemgraph.tools import async_tools
from scrapy_itemgraph.tools.async_tools import Turns

MANY = 10_000


@pytest.fixture(autouse=True)
def _always_due(monkeypatch):
    """Let a turn be due at once."""
    monkeypatch.setattr(async_tools, "LONGEST_TURN", 0.0)


async def counted(work):
    """Return how often another task has its turn while work is done."""
    seen = Counter()

    async def beat():
        while True:
            seen["turns"] += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(beat())
    try:
        await work
    finally:
        other.cancel()
    return seen["turns"]


@pytest.mark.parametrize("kind", [list, set, dict.fromkeys])
def test_a_great_many_values_are_let_go_of_in_parts(kind):
    """The container is empty in the end, and the loop has turned meanwhile."""
    container = kind(range(MANY))

    turns = asyncio.run(counted(async_tools.clear_gradually(container)))

    assert not container
    assert turns > 1


def test_a_few_values_stay_where_they_are():
    """They go with their owner, and cost nothing before."""
    container = [1, 2, 3]

    turns = asyncio.run(counted(async_tools.clear_gradually(container)))

    assert container == [1, 2, 3]
    assert turns == 0


def test_what_is_gone_through_in_turns_comes_in_its_order():
    """Each value is there once, and the loop turns between them."""
    found = []

    async def go():
        async for one in Turns().within(range(20)):
            found.append(one)  # noqa: PERF401 - an async comprehension has no turns of its own

    turns = asyncio.run(counted(go()))

    assert found == list(range(20))
    assert turns >= 20


@pytest.mark.parametrize("turns", range(5))
def test_who_waits_for_an_event_is_cancelled_also_as_it_is_set(turns):
    """A cancellation is never lost, whichever turn of the loop it comes in."""

    async def main():
        event = asyncio.Event()

        async def wait_again_and_again():
            while True:
                assert await async_tools.happens(event, 60)
                event.clear()

        waiting = asyncio.ensure_future(wait_again_and_again())
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=1)
        return waiting.cancelled()

    assert asyncio.run(main())


def test_what_does_not_happen_in_time_is_said():
    """Who waits for an event goes on when the time is over."""

    async def main():
        return await async_tools.happens(asyncio.Event(), 0.01)

    assert asyncio.run(main()) is False


CLOSING = """
import asyncio
import os
import signal

from scrapy_itemgraph.tools.async_tools import ignore_signals


class Loop(asyncio.SelectorEventLoop):
    def _close_self_pipe(self):
        super()._close_self_pipe()
        os.kill(os.getpid(), signal.SIGTERM)


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
    ignore_signals()


with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
"""


def test_a_signal_that_comes_as_the_loop_closes_says_nothing():
    """Whoever tells a runner twice to end sees no error of Python, and the exit code is 0."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSING], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
