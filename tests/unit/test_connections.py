"""Twisted's pools tell whose download asks them for a connection, and wait as they are told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scrapy import Request
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.web.client import HTTPConnectionPool

from scrapy_itemgraph.connections import Connections, traveller


class Traveller:
    """Notes what it is told, and wants to leave so many seconds later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.told: list[str] = []

    def connecting(self) -> None:
        self.told.append("connecting")

    def connected(self) -> float:
        self.told.append("connected")
        return self.seconds


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_pool_tells_of_connections_and_holds_them_until_the_request_may_leave(seconds):
    """The request is written when its turn has come, and not before."""
    clock = MemoryReactorClock()
    pool, made = HTTPConnectionPool(clock), Deferred()
    pool._newConnection = lambda *_: made
    handlers = SimpleNamespace(_get_handler=lambda _: SimpleNamespace(_pool=pool))
    connections, who, got = Connections(handlers), Traveller(seconds), []
    for _ in range(2):  # it is wrapped once
        connections.watch(Request("http://a.example/"))
    token = traveller.set(who)
    pool.getConnection("key", None).addCallback(got.append)
    traveller.reset(token)

    assert who.told == ["connecting"]
    made.callback("connection")
    assert who.told == ["connecting", "connected"]
    assert got == ([] if seconds else ["connection"])
    clock.advance(seconds)
    assert got == ["connection"]
