"""The shapes that were proposed for version 3: where they are spoken, and what they say."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress

import grpc
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from support import frontier
from support.frontier import discovered
from support.frontier_v3 import M3, OwnClient

from scrapy_itemgraph.urlfrontier import v3

A, B = "http://a.example/", "http://b.example/"
PROPOSED, OWN = "urlfrontier.URLFrontier", "urlfrontier.v3.URLFrontier"
# Requests that answer without an error where A is known; of streams the only one.
REQUESTS = {
    "BlockQueueUntil": {"key": "a.example"},
    "CountURLs": {},
    "DeleteCrawl": {"crawl_id": "none"},
    "DeleteQueue": {"key": "none"},
    "GetActive": {},
    "GetStats": {},
    "GetURLStatus": {"url": A},
    "GetURLs": {},
    "ListCrawls": {},
    "ListNodes": {},
    "ListQueues": {},
    "ListURLs": {},
    "PurgeURLs": {"days": 10},
    "PutDiscovered": {"id": "one"},
    "PutURLs": {"url": {"url": A}},
    "SetActive": {"state": True},
    "SetCrawlLimit": {"key": "a.example"},
    "SetDelay": {"key": "a.example", "delay_requestable": 1},
    "SetLogLevel": {"level": 3},
}


@pytest.fixture
def own(served):
    """Return a client of version 3, of its own path."""
    with OwnClient(served.address, OWN) as one:
        yield one


def code(client, method, **fields):
    """Return the code with which a call is refused."""
    with pytest.raises(grpc.RpcError) as refused:
        client.ask(method, **fields)
    return refused.value.code()


def put(client, *requests):
    """Put URLs in one stream; return the names and statuses of the acks."""
    acks = [one.ack for one in client.call("PutURLs")(iter(requests), timeout=60)]
    return [(one.id, M3["AckMessage"].Status.Name(one.status)) for one in acks]


def test_each_call_is_answered_under_each_path(served):
    """UF-2: both ports know its own path, and the second one has it under that of 2.6, too."""
    served.client.put(discovered(A))
    assert set(REQUESTS) == set(v3.API.methods)
    for address, service in (
        (served.address, OWN),
        (served.said["v3_address"], OWN),
        (served.said["v3_address"], PROPOSED),
    ):
        with OwnClient(address, service) as client:
            for name, fields in REQUESTS.items():
                method = v3.API.methods[name]
                given = method.takes(**fields)
                call = client.call(name)
                answer = call(iter([given]) if method.takes_stream else given, timeout=60)
                for one in answer if method.gives_stream else [answer]:
                    assert not len(UnknownFieldSet(one))
    assert served.client.get() == []  # what is handed out there is held here


def test_a_port_speaks_of_what_it_speaks(database):
    """UF-2: reflection tells that the path of 2.6 has its calls at one port, 3's at the other."""
    with frontier.serving(database, "--reflection") as served:
        first = shapes(served.client.channel)
        with OwnClient(served.said["v3_address"], OWN) as client:
            second = shapes(client.channel)

    assert first == {PROPOSED: "urlfrontier.Pagination", OWN: "urlfrontier.v3.ListQueuesRequest"}
    assert second == {
        PROPOSED: "urlfrontier.ListQueuesRequest",
        OWN: "urlfrontier.v3.ListQueuesRequest",
    }


def shapes(channel):
    """Return what ListQueues takes, for each service of a port, as reflection tells it."""
    known = ProtoReflectionDescriptorDatabase(channel)
    found = {}
    for name in known.get_services():
        if name.endswith(".URLFrontier"):
            (service,) = known.FindFileContainingSymbol(name).service
            takes = {one.name: one.input_type.lstrip(".") for one in service.method}
            found[name] = takes["ListQueues"]
    return found


def test_without_version_3_there_is_one_port(database):
    """UF-16: --no-v3 listens at no second port; that of 2.6 knows the path of 3 all the same."""
    with frontier.serving(database, "--no-v3") as served:
        assert served.said["v3_address"] is None
        with OwnClient(served.address, OWN) as client:
            assert list(client.ask("ListCrawls").values) == []
        port = served.address.rpartition(":")[2]
        line = frontier.refusal(database, "--v3-port", port)
    assert f"port {port}: Address already in use; --v3-port N" in line
    assert "exclude each other" in frontier.refusal(None, "--no-v3", "--v3-port", "0")


def test_a_second_server_needs_no_second_port(database):
    """UF-16: where 7072 is taken, and nobody asked for it, a server warns and goes without."""
    with socket.socket() as taken, socket.socket() as free:
        with suppress(OSError):  # somebody has it
            taken.bind(("127.0.0.1", 7072))
            taken.listen()
        free.bind(("127.0.0.1", 0))
        number = str(free.getsockname()[1])
        free.close()
        with frontier.serving(database, "--port", number) as served:
            assert served.said["v3_address"] is None
            assert served.client.put(discovered(A)) == [(A, "OK")]
            code, said = served.stop()
    assert code == 0
    assert "port 7072: Address already in use" in said


def test_a_url_alone_was_discovered(own):
    """UF-15: a bare URL is discovered and acked by itself; an item says more, and wins."""
    item, request = M3["URLItem"], M3["PutURLsRequest"]
    bare = request(url={"url": A})
    never = request(
        url={"url": A}, item=item(known={"info": {"url": B}, "refetchable_from_date": 0}, id="b")
    )
    nothing = request(url={"url": A}, item=item(id="none"))

    found = put(own, bare, bare, never, nothing, request())

    assert sorted(found) == sorted(
        [
            (A, "STATUS_OK"),
            (A, "STATUS_SKIPPED"),
            ("b", "STATUS_OK"),
            ("none", "STATUS_SKIPPED"),
            ("", "STATUS_SKIPPED"),
        ]
    )
    assert [one.url.url for one in own.ask("GetURLs")] == [A]
    assert own.ask("GetURLStatus", url=B).url.known.refetchable_from_date == 0


def test_batches_have_statuses_of_version_3(own):
    """UF-3: a batch is acked by the statuses of 3, in order; an empty one by its name."""
    request = M3["PutDiscoveredRequest"]
    batches = [
        request(id="one", items=[{"url": A}, {"url": "http:///"}, {"url": A}]),
        request(id="probe"),
    ]
    found = {one.id: list(one.statuses) for one in own.call("PutDiscovered")(iter(batches))}

    assert found == {"one": [1, 2, 2], "probe": []}


def test_what_is_false_or_0_is_said(own):
    """UF-14: states and numbers of removed URLs are always set, also where they are 0."""
    own.ask("SetActive", state=False)

    active = own.ask("GetActive")
    assert active.HasField("state")
    assert active.state.value is False
    for method in ("DeleteCrawl", "DeleteQueue", "PurgeURLs"):
        answer = own.ask(method)
        assert answer.HasField("urls_removed")
        assert answer.urls_removed.value == 0


def test_a_block_has_a_timestamp(own):
    """UF-4, UF-6: a queue is blocked until a timestamp; none, or one that is past, ends it."""
    put(own, M3["PutURLsRequest"](url={"url": A}))
    for over in ({}, {"time": {"seconds": 1}}, {"time": {"seconds": -1, "nanos": 5}}):
        own.ask("BlockQueueUntil", key="a.example", time={"seconds": 253_402_300_799})
        assert list(own.ask("ListQueues").values) == []
        own.ask("BlockQueueUntil", key="a.example", **over)
        assert list(own.ask("ListQueues").values) == ["a.example"]


def test_any_crawl_is_asked_unless_one_is_said(own):
    """UF-11: any_crawl_id says any, also where it is false; a key goes with a crawl."""
    request = M3["PutURLsRequest"]
    put(own, request(url={"url": A}), request(url={"url": B, "crawl_id": "other"}))

    assert own.ask("GetURLs", any_crawl_id=False, key="a.example") == []
    assert own.ask("GetURLs", crawl_id="none") == []
    (other,) = own.ask("GetURLs", crawl_id="other")
    assert (other.url.url, other.url.crawl_id) == (B, "other")
    assert [one.url.url for one in own.ask("GetURLs", any_crawl_id=False)] == [A]


def test_a_level_of_logs_has_a_name(own):
    """UF-3: no level is an invalid argument; a number beyond all of them changes nothing."""
    assert code(own, "SetLogLevel") is grpc.StatusCode.INVALID_ARGUMENT
    own.ask("SetLogLevel", level=99)


@pytest.mark.parametrize(
    ("number", "level"),
    [(1, logging.DEBUG), (2, logging.DEBUG), (3, logging.INFO), (4, logging.WARNING), (5, 40)],
)
def test_levels_begin_with_1(number, level):
    """UF-3: levels have the numbers of 2.6 and one more."""
    request = v3.API.messages["SetLogLevelRequest"](level=number)

    assert v3.CODEC.log_level(request) == level


def test_urls_that_come_to_the_wrong_port_are_not_stored(served):
    """UF-1: the log warns of what version 3 reads of them; a long one cannot be read at all."""
    with frontier.Client(served.said["v3_address"]) as wrong:
        assert len(wrong.put(discovered(A, crawl="W"))) == 1
        with pytest.raises(grpc.RpcError) as ended:
            wrong.put(discovered(A + "x" * 300, crawl="W"))
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(served.client.ask("ListCrawls").values) == []
    assert "Not stored, and acked as SKIPPED: 1 URL " in served.stop()[1]
