"""Several servers at one port of a machine: where it is meant, and only there."""

from __future__ import annotations

from support import frontier
from support.frontier import Client, discovered
from support.frontier_doors import scraped


def test_a_port_is_not_shared_by_mistake(database):
    """UF-1: a second server at a port is refused by a line that says why, whichever was told."""
    with frontier.serving(database) as served:
        port = served.address.rpartition(":")[2]
        for options in ((), ("--share-port",)):
            line = frontier.refusal(database, "--port", port, *options)
            assert f"port {port}: Address already in use" in line
    with frontier.serving(database, "--share-port") as served:
        port = served.address.rpartition(":")[2]
        assert "--share-port" in frontier.refusal(database, "--port", port)


def test_servers_share_a_port_when_they_are_told_to(database):
    """UF-1: servers at one port are one node, and both of them answer crawlers."""
    with frontier.serving(database, "--share-port", "--metrics-port", "0") as first:
        port = first.address.rpartition(":")[2]
        again = ("--port", port, "--share-port", "--metrics-port", "0")
        with frontier.serving(database, *again) as second:
            assert second.address == first.address
            calls = 0
            while not all(got(one) for one in (first, second)):
                assert calls < 100
                calls += 1
                with Client(first.address, ("grpc.use_local_subchannel_pool", 1)) as client:
                    assert client.get() == []
            assert got(first) + got(second) == calls
            assert list(first.client.ask("ListNodes").values) == [first.address]
        assert first.client.put(discovered("http://a.example/")) == [("http://a.example/", "OK")]


def got(served):
    """Return how many calls of GetURLs a server has had."""
    return scraped(served)[("frontier_getURLs_calls_total",)]
