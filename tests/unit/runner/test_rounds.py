"""A runner's rounds: what they say when they fail, and when they are over."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

from scrapy_itemgraph.exceptions import MissingRightError
from scrapy_itemgraph.runner import supervisor
from scrapy_itemgraph.runner.supervisor import Supervisor


def test_a_round_that_fails_as_before_is_said_once(caplog, monkeypatch):
    """A failure of each kind is one line, with a traceback only where nobody knows its meaning."""
    monkeypatch.setattr(supervisor, "_RETRY", 0)
    failures = [MissingRightError("no right"), ValueError("odd")]
    graph, options = SimpleNamespace(), SimpleNamespace()

    async def rounds():
        one = Supervisor(graph, options)
        one._prune_logs = lambda: asyncio.sleep(0)
        for failure in [each for each in failures for _ in range(5)]:

            async def look(failure=failure):
                raise failure

            one._look = look
            await one._round()

    with caplog.at_level(logging.ERROR):
        asyncio.run(rounds())

    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
    assert [str(record.args[1]) for record in caplog.records] == [str(each) for each in failures]


def test_a_runner_that_was_told_to_end_does_not_wait_for_what_nobody_can_end():
    """It waits for its processes, but for one that has outlived its SIGKILL."""

    async def within():
        one = Supervisor(SimpleNamespace(), SimpleNamespace())
        one._signals = 1
        children = [SimpleNamespace(outlives_kill=False), SimpleNamespace(outlives_kill=True)]
        one._children = dict(enumerate(children))
        before = one._is_over()
        del one._children[0]
        return before, one._is_over()

    assert asyncio.run(within()) == (False, True)
