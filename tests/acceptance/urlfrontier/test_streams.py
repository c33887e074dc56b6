"""Streams of the URL frontier: what comes in is acked, whatever else happens."""

from __future__ import annotations

import time

import grpc
import pytest
from support import frontier, proxies
from support.frontier import M, batch, discovered, known

from scrapy_itemgraph.urlfrontier import v2

BAD = {
    "no host": discovered("http://?x", name="no host"),
    "NUL": discovered("http://a.example/\0", name="NUL"),
    "NUL in metadata": discovered(
        "http://a.example/", name="NUL in metadata", metadata={"a": ["\0"]}
    ),
    "long key": discovered("http://a.example/", name="long key", key="k" * 256),
    "long crawl": discovered("http://a.example/", name="long crawl", crawl="c" * 256),
    "long URL": discovered("http://a.example/" + "x" * 9000, name="long URL"),
    "newline": discovered("http://a.example/\n", name="newline"),
    "nothing": M["URLItem"](ID="nothing"),
}


def test_a_bad_item_does_not_end_a_stream(client):
    """What cannot be stored is skipped, and the stream goes on (UF-5)."""
    stream = client.opened("PutURLs")
    stream.send(*BAD.values())

    assert sorted(stream.read(len(BAD))) == sorted((name, "SKIPPED") for name in BAD)
    stream.send(discovered("http://a.example/good"))
    assert stream.read(1) == [("http://a.example/good", "OK")]
    stream.end()
    assert stream.read(1) == []


def test_a_key_has_up_to_255_units(client):
    """A key may be as long as 255 UTF-16 units, whatever its bytes (UF-16)."""
    found = client.put(
        discovered("http://a.example/1", name="most", key="é" * 255),
        discovered("http://a.example/2", name="more", key="😀" * 128),
    )

    assert dict(found) == {"most": "OK", "more": "SKIPPED"}


def test_the_order_of_a_url_is_kept(client):
    """Of a URL that a stream names again and again the last word counts (UF-5)."""
    dates = [known("http://a.example/", date, name=str(date)) for date in range(1, 3001)]

    found = client.put(discovered("http://b.example/"), *dates, known("http://a.example/", 0))

    assert {status for _, status in found} == {"OK"}
    assert len(found) == 3002
    assert client.get() == ["http://b.example/"]


def test_the_same_url_twice_is_skipped_once(client):
    """What is known already is skipped, in one stream and in the next (UF-5)."""
    url = "http://a.example/"

    assert client.put(discovered(url), discovered(url)) == [(url, "OK"), (url, "SKIPPED")]
    assert client.put_batches(batch("b", url, "http://a.example/2")) == [("b", ["SKIPPED", "OK"])]


def test_more_than_is_in_flight_may_be_sent(client):
    """A stream of many items, and one of many batches, are acked to their ends."""
    urls = [f"http://{number % 50}.example/{number}" for number in range(5000)]

    found = client.put(*map(discovered, urls))
    again = client.put_batches(*(batch(str(at), *urls[at : at + 10]) for at in range(0, 5000, 10)))

    assert sorted(found) == sorted((url, "OK") for url in urls)
    assert dict(again) == {str(at): ["SKIPPED"] * 10 for at in range(0, 5000, 10)}


def test_what_was_read_is_acked_before_the_server_ends(served):
    """A server that is told to end commits and acks what it read; then its streams end."""
    stream = served.client.opened("PutURLs")
    stream.send(discovered("http://a.example/1"))
    assert stream.read(1) == [("http://a.example/1", "OK")]
    began = time.monotonic()
    stream.send(*(discovered(f"http://a.example/{number}") for number in range(2, 500)))
    acked = stream.read(1)

    code, errors = served.stop()
    with pytest.raises(grpc.RpcError) as ended:
        acked += iter(lambda: stream.read(1)[0], None)
    stream.end()

    assert (code, errors) == (0, "")
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert {status for _, status in acked} == {"OK"}
    assert time.monotonic() - began < 60


def test_what_a_call_left_is_handed_out_again(served):
    """URLs that a cancelled call was not sent are there for the next (UF-6)."""
    client = frontier.Client(served.address, ("grpc.http2.bdp_probe", 0))  # a small window
    long = "x" * 2000
    client.put(*(discovered(f"http://{number}.example/{long}") for number in range(1500)))
    call = client.call("GetURLs")(M["GetParams"](delay_requestable=3600))
    first = next(call).url

    call.cancel()

    until, others = time.monotonic() + 30, []
    while not others and time.monotonic() < until:
        others = client.get(delay_requestable=3600)
    client.close()
    assert others
    assert first not in others


def test_streams_outlive_an_outage(engine):
    """Without a database items fail after the patience, calls are unavailable; then all is well."""
    with (
        proxies.proxy(engine) as (way, url),
        frontier.serving(url, "-s", "ITEMGRAPH_PATIENCE=2s") as served,
    ):
        stream = served.client.opened("PutURLs")
        stream.send(discovered("http://a.example/1"))
        assert stream.read(1) == [("http://a.example/1", "OK")]
        before = way.lead(("127.0.0.1", 9))
        way.cut()

        stream.send(discovered("http://a.example/2"))
        assert stream.read(1) == [("http://a.example/2", "FAIL")]
        with pytest.raises(grpc.RpcError) as refused:
            served.client.get()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

        way.lead(before)
        stream.send(discovered("http://a.example/2"))
        assert stream.read(1) == [("http://a.example/2", "OK")]
        assert sorted(served.client.get()) == ["http://a.example/1", "http://a.example/2"]
        stream.end()


def test_a_slow_reader_does_not_get_what_others_hold_by_now(client, served):
    """Of URLs that it has not read when its hold is over it gets none, and ends no other hold."""
    large = {"k": ["x" * 60_000]}
    urls = [f"http://a.example/{number}" for number in range(500)]
    client.put(*(discovered(one, metadata=large) for one in urls))
    slow = client.call("GetURLs")(v2.API.methods["GetURLs"].takes(delay_requestable=2))
    first = next(slow).url
    time.sleep(4)

    with frontier.Client(served.address) as other:
        held = other.get(delay_requestable=300)
        late = {first, *(one.url for one in slow)}
        time.sleep(2)
        again = other.get(delay_requestable=300)

    assert len(held) == 500
    assert len(late) < 500
    assert again == []


def test_a_server_ends_soon_while_the_database_is_away(engine):
    """What it has read is FAIL within seconds of SIGTERM: it is to be sent again (UF-5)."""
    with proxies.proxy(engine) as (way, url), frontier.serving(url) as server:
        server.client.put(discovered("http://a.example/"))
        way.lead(("127.0.0.1", 9))
        way.cut()
        stream = server.client.opened("PutURLs")
        names = [str(number) for number in range(2000)]
        stream.send(*(discovered(f"http://a.example/{one}", name=one) for one in names))
        time.sleep(1)
        began = time.monotonic()
        _, errors = server.stop()

        assert "Traceback" not in errors
        assert time.monotonic() - began < 30
        assert sorted(stream.read(2000)) == sorted((one, "FAIL") for one in names)
