"""Connections with limits: what ends them, and what they count as; in an event loop of the test."""

from __future__ import annotations

import asyncio
import resource
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn

from scrapy_itemgraph.web import connections
from scrapy_itemgraph.web.connections import Connection, Door, affordable, origin

LARGE = 24 << 20  # bytes, more than any socket holds
ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PATIENCE = 30.0  # seconds


async def large(scope, receive, send):
    """Answer with more than a socket holds."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(LARGE)})


async def small(scope, receive, send):
    """Answer, whatever comes after the head."""
    fields = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Look at connections all the time; what takes a second takes too long."""
    monkeypatch.setattr(connections, "_EVERY", 0.01)
    monkeypatch.setattr(connections, "ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(connections, "LINGERS", 1.0)


@asynccontextmanager
async def connected(app):
    """Serve an application, and yield a connection to it."""
    door = Door()
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, door, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        async with asyncio.timeout(PATIENCE):
            yield door, reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
        server.close()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: not door.connections and door._looking is None)


async def until(condition):
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)


def test_an_answer_that_nobody_reads_is_given_up():
    """A connection whose answer waits to be read ends, and so does what was to be sent."""

    async def run():
        async with connected(large) as (door, _, writer):
            writer.transport.pause_reading()
            writer.write(ASK)
            await until(lambda: door.connections)
            await until(lambda: not door.connections)

    asyncio.run(run())


def test_an_answer_that_is_read_slowly_is_sent_whole():
    """A reader that takes some within the time gets all of it, however long that lasts."""

    async def run():
        async with connected(large) as (_, reader, writer):
            writer.write(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            came = 0
            while part := await reader.read(1 << 20):
                came += len(part)
                await asyncio.sleep(0.005)
            assert came > LARGE

    asyncio.run(run())


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_the_rest_of_a_body_that_nobody_reads_is_dropped_for_a_while(method):
    """After an answer that came before the body's end the connection says so, and then it ends."""

    async def run():
        async with connected(small) as (door, reader, writer):
            head = ASK.replace(b"GET", method).replace(
                b"a\r\n", b"a\r\nContent-Length: 99999999\r\n"
            )
            writer.write(head)
            answer = await reader.read()  # to its end
            assert answer.endswith(b"ok")
            sent = 0
            while door.connections:
                writer.write(bytes(1000))
                sent += 1000
                await asyncio.sleep(0.01)
            assert 0 < sent < 99_999_999

    asyncio.run(run())


def test_requests_one_after_the_other_share_a_connection():
    """What is sent at once, or in pieces with the next head, is answered on one connection."""

    async def run():
        async with connected(small) as (_, reader, writer):
            writer.write(ASK * 3 + ASK[:9])
            for left in (ASK[9:], b""):
                await asyncio.sleep(0.05)
                writer.write(left)
            await reader.readexactly(1)
            came = b"H"
            while came.count(b"ok") < 4:
                came += await reader.read(1 << 16)
            assert came.count(b"HTTP/1.1 200") == 4

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "counts_as"),
    [
        ("127.0.0.1", None),
        ("127.9.9.9", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "20010db800000000"),
        ("2001:db8::2:3:4:5", "20010db800000000"),
        ("2001:db8:0:1::1", "20010db800000001"),
        ("fe80::1%eth0", "fe80000000000000"),
        ("somewhere", "somewhere"),
    ],
)
def test_what_counts_as_one_address(host, counts_as):
    """This machine counts as none, an IPv6 network of 64 bits as one, mapped IPv4 as IPv4."""
    assert origin(host) == counts_as


@pytest.mark.parametrize(
    ("files", "most"), [(1024, 500), (756, 500), (755, 499), (300, 44), (64, 16), (-1, 500)]
)
def test_files_are_left_for_others(monkeypatch, caplog, files, most):
    """There are so few connections that the database and pages have files; a warning says so."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    assert affordable(500) == most
    assert bool(caplog.records) == (most < 500)
