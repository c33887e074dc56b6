"""Messages of a URL frontier that are too large, or are none."""

from __future__ import annotations

import json
import socket

import grpc
import pytest
import sqlalchemy as sa
from support import frontier
from support.frontier import M, batch, discovered
from support.projects import until

from scrapy_itemgraph.urlfrontier import v2

POISON = "http://a.example/poison"
LARGE = 5 * 2**20  # bytes; a client of gRPC takes 4 MiB unless it is told otherwise
KINDS = {"PutURLs": "stream_stream", "GetStats": "unary_unary", "GetURLs": "unary_stream"}


def metadata(size):
    """Return metadata with so many bytes."""
    return {"metadata": {"a": ["x" * size]}}


def test_what_no_client_would_take_is_skipped(served, client):
    """A URL with 5 MB of metadata is SKIPPED, one with 4,000,000 bytes comes back to any client."""
    found = client.put(
        discovered(POISON, **metadata(LARGE)),
        discovered("http://a.example/", **metadata(4_000_000)),
    )

    assert dict(found) == {POISON: "SKIPPED", "http://a.example/": "OK"}
    assert client.get() == ["http://a.example/"]
    assert [one.known.info.url for one in client.ask("ListURLs")] == ["http://a.example/"]
    assert "more than 4 MB of metadata" in served.stop()[1]


def test_what_is_stored_and_too_large_is_said_and_blocks_nothing(engine, served, client):
    """A row of an older version is in no answer; its queue goes on, and the log names it."""
    client.put(discovered(POISON), discovered("http://a.example/2"))
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE items SET data = data::jsonb || CAST(:more AS jsonb) WHERE name LIKE :name"
            ),
            {"more": json.dumps({"metadata": {"a": ["x" * LARGE]}}), "name": f"%{POISON}"},
        )

    got: list[str] = []
    until(lambda: got or got.extend(client.get(max_urls_per_queue=1)))
    listed = [one.known.info.url for one in client.ask("ListURLs")]
    with pytest.raises(grpc.RpcError) as refused:
        client.ask("GetURLStatus", url=POISON)

    assert got == ["http://a.example/2"]
    assert listed == ["http://a.example/2"]
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than what a client takes" in refused.value.details()
    assert f"such as {POISON} of the queue a.example" in served.stop()[1]


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("PutURLs", discovered("http://a.example/", name="n" * LARGE)),
        ("PutDiscovered", batch("n" * LARGE, "http://a.example/")),
    ],
)
def test_an_id_that_cannot_be_sent_back_is_refused(client, method, given):
    """An ack repeats the ID of what it acks."""
    with pytest.raises(grpc.RpcError) as refused:
        list(client.call(method)(iter([given]), timeout=frontier.PATIENCE))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "an ID is longer than" in refused.value.details()


def test_malformed_messages_are_counted_on_one_line(served, client):
    """Bytes that are no message, and text that is not UTF-8: INVALID_ARGUMENT, and no traceback."""
    no_message, no_utf_8 = b"\x0a\xff\xff\xff\xff\x01", b"\x0a\x03\xff\xfe\xfd"
    good = M["URLItem"](discovered={"info": {"url": "http://a.example/"}}, ID="good")
    codes = []

    def ask(call, given):
        """Note the statuses of acks."""
        codes.extend(frontier.status(one.status) for one in call(given, timeout=frontier.PATIENCE))

    for method, kind in KINDS.items():
        path = f"/{v2.API.service}/{method}"
        call = getattr(client.channel, kind)(path, bytes, v2.API.methods[method].gives.FromString)
        for bad in (no_message, no_utf_8) if method != "GetURLs" else (no_message,):
            given = iter([good.SerializeToString(), bad]) if method == "PutURLs" else bad
            with pytest.raises(grpc.RpcError) as refused:
                ask(call, given)
            codes.append(refused.value.code())

    said = served.stop()[1]
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert codes.count(invalid) == 5
    assert set(codes) <= {invalid, "OK", "SKIPPED"}
    assert "5 requests that are no messages" in said or said.count("Refused as INVALID") > 1
    assert "Traceback" not in said


def frame(kind, flags, stream, data):
    """Return a frame of HTTP/2."""
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


def test_metadata_that_is_not_utf_8_is_counted(served):
    """A client that sends such metadata, which gRPC's own clients do not, logs no traceback."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"/{v2.API.service}/GetStats".encode(),
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
        b"x-odd": b"\xff\xfe",
    }
    head = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in fields.items()
    )
    host, _, port = served.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=frontier.PATIENCE) as raw:
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        raw.sendall(frame(1, 4, 1, head) + frame(0, 1, 1, bytes(5)))
        came = b""
        while b"metadata is ASCII" not in came and (part := raw.recv(9999)):
            came += part

    said = served.stop()[1]
    assert b"metadata is ASCII" in came
    assert "1 request that" in said
    assert "Traceback" not in said
