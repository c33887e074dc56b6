"""Twisted's pools tell whose download asks them for a connection, and wait as they are told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scrapy import Request
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.web.client import HTTPConnectionPool

from scrapy_itemgraph.worker.downloads.send_times import ConnectionPools, current_send


class NotedSend:
    """Notes what it is told, and wants to leave so many seconds later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.longer: list[float] = []
        self.told: list[str] = []

    def connecting(self) -> None:
        self.told.append("connecting")

    def connected(self) -> float:
        self.told.append("connected")
        return self.seconds

    def waited(self) -> float:
        self.told.append("waited")
        return self.longer.pop() if self.longer else 0.0


def ask(made: Deferred, who: NotedSend) -> tuple[MemoryReactorClock, list[str]]:
    """Ask a pool for a connection that is made later; return its clock, and what comes of it."""
    clock, got = MemoryReactorClock(), []
    pool = HTTPConnectionPool(clock)
    pool._newConnection = lambda *_: made
    pools = ConnectionPools(SimpleNamespace(_get_handler=lambda _: SimpleNamespace(_pool=pool)))
    for _ in range(2):  # it is wrapped once
        pools.watch(Request("http://a.example/"))
    token = current_send.set(who)
    pool.getConnection("key", None).addCallback(got.append)
    current_send.reset(token)
    return clock, got


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_pool_tells_of_connections_and_holds_them_until_the_request_may_leave(seconds):
    """The request is written when its turn has come, and not before."""
    made, who = Deferred(), NotedSend(seconds)
    clock, got = ask(made, who)

    assert who.told == ["connecting"]
    made.callback("connection")
    assert who.told == ["connecting", "connected"]
    assert got == ([] if seconds else ["connection"])
    clock.advance(seconds)
    assert got == ["connection"]


def test_a_request_that_waited_is_asked_again_whether_it_may_leave():
    """The event loop may have been late, and others may leave at the same moment."""
    made, who = Deferred(), NotedSend(2.0)
    who.longer = [1.0]
    clock, got = ask(made, who)

    made.callback("connection")
    clock.advance(2.0)
    assert got == []
    clock.advance(1.0)
    assert got == ["connection"]
    assert who.told == ["connecting", "connected", "waited", "waited"]
