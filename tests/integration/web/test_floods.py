"""Strangers take nothing: no memory by bodies, no connection for ever, no log."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, closing, suppress

import psutil
import pytest
from conftest import new_database
from support import raw_clients, web_servers
from support.raw_clients import FORM, head

from scrapy_itemgraph.web.connections import SAID_EVERY

MB = 1 << 20
JSON = "Content-Type: application/json"
EVENTS = "/api/v1/crawls/books/events"


@pytest.fixture(scope="module")
def guarded(server_url, template):
    """Yield a database with a crawl and tokens, and a token's header by role."""
    with new_database(server_url, template) as url:
        with web_servers.crawl_of(url) as crawl:
            crawl.work("A")
        made = {
            role: web_servers.run(url, "token", "add", role, "--role", role)["token"]
            for role in ("read", "operate")
        }
        yield url, {role: f"Authorization: Bearer {secret}" for role, secret in made.items()}


@pytest.fixture(scope="module")
def server(guarded):
    """Yield a server that wants tokens."""
    with web_servers.serving(guarded[0], "--crawl", "books") as one:
        yield one


def test_bodies_of_strangers_take_no_memory(server):
    """Forty bodies of 15 MB without a token are refused, and not kept until their end."""
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    begin = head("POST", "/items/A", JSON, f"Content-Length: {15 * MB}")
    with ExitStack() as stack:
        some = [stack.enter_context(raw_clients.connection(server)) for _ in range(40)]
        for one in some:
            with suppress(ConnectionError):
                one.sendall(begin + b" " * (15 * MB - 1))
        took = process.memory_info().rss - before

    assert took < 64 * MB


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize(
    "who",
    [
        (None, "/items/A", b"401"),
        (None, "/crawls/books/delete", b"401"),
        (None, "/nothing", b"401"),
        ("read", "/items/A", b"403"),
        ("read", "/crawls/books/delete", b"403"),
    ],
)
def test_who_has_no_right_is_refused_before_the_body(server, guarded, framing, who):
    """Without a token, or with one that may only read, the answer comes before any of the body."""
    role, path, status = who
    fields = [JSON, framing, *([] if role is None else [guarded[1][role]])]
    with raw_clients.connection(server) as one:
        one.sendall(head("POST", path, *fields))
        answer = raw_clients.read(one)

    assert answer[9:12] == status
    assert b"connection: close" in answer.lower()


def test_a_browser_without_a_session_is_sent_to_the_form_before_the_body(server):
    """A form of somebody whose cookie is over leads to /login, though nothing of it was read."""
    with raw_clients.connection(server) as one:
        one.sendall(head("POST", "/crawls/books/delete", "Accept: text/html", "Content-Length: 9"))
        answer = raw_clients.read(one)

    assert answer[9:12] == b"303"
    assert b"location: /login?then=" in answer


def test_the_answer_reaches_who_sends_the_body_first(server):
    """Who reads only when all is sent, as many clients do, reads the refusal and no reset."""
    with raw_clients.connection(server) as one:
        one.sendall(head("POST", "/items/A", JSON, f"Content-Length: {4 * MB}"))
        for _ in range(4):
            one.sendall(b" " * MB)
        assert raw_clients.read(one)[9:12] == b"401"


def test_a_login_has_64_kilobytes(server):
    """The form that needs no token is small: more is refused, declared or not."""
    for framing, sent in (
        ("Content-Length: 65537", b""),
        ("Transfer-Encoding: chunked", raw_clients.chunked(b"x" * 65537, 65537)),
    ):
        with raw_clients.connection(server) as one:
            one.sendall(head("POST", "/login", f"Content-Type: {FORM}", framing) + sent)
            answer = raw_clients.read(one)
        assert answer[9:12] == b"413"
        assert b"65,536 bytes" in answer
    assert server.ask("POST", "/login", data={"token": "x" * 60_000}).status_code == 401


def test_all_bodies_together_are_bounded(server, guarded):
    """Beyond 128 MB of bodies under way one is told to come later, and then there is room again."""
    fields = [JSON, f"Content-Length: {15 * MB}", guarded[1]["operate"]]
    with ExitStack() as stack:
        some = [stack.enter_context(raw_clients.connection(server)) for _ in range(9)]
        for one in some:
            with suppress(ConnectionError):
                one.sendall(head("POST", "/items/A", *fields) + b" " * (15 * MB - 1))
        answer = raw_clients.read(some[-1])
    assert answer[9:12] == b"503"
    assert b"retry-after: 5" in answer.lower()
    assert b"128 MB together" in answer

    bearer = dict([guarded[1]["operate"].split(": ")])
    until = time.monotonic() + raw_clients.PATIENCE
    while server.ask("POST", "/items/A", {"data": {"a": "x" * 8 * MB}}, headers=bearer).is_error:
        assert time.monotonic() < until


def goes_on(one: socket.socket, sent: bytes) -> bool:
    """Send bytes, and tell whether the connection has not been ended."""
    try:
        one.send(sent)
        return one.recv(1 << 16)[9:12] not in {b"408", b""}
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_heads_that_never_end_are_ended_and_streams_go_on(server, guarded):
    """Silence, half a head and a head byte by byte are ended in seconds, also after an answer."""
    ask = head("GET", "/healthz", guarded[1]["read"])
    with ExitStack() as stack:
        silent, half, slow, second, stream = (
            stack.enter_context(raw_clients.connection(server)) for _ in range(5)
        )
        stream.sendall(head("GET", EVENTS, guarded[1]["read"]))
        second.sendall(ask)
        assert second.recv(1 << 16)[9:12] == b"200"
        half.sendall(ask[:-1])
        began = time.monotonic()
        at = 0
        going = {slow, second}
        for one in going:
            one.setblocking(False)
        while going and time.monotonic() - began < raw_clients.PATIENCE:
            going = {one for one in going if goes_on(one, ask[at : at + 1])}
            at = min(at + 1, len(ask) - 2)
            time.sleep(0.3)

        assert not going
        assert raw_clients.read(silent) == b""
        assert raw_clients.read(half)[9:12] == b"408"
        stream.setblocking(False)
        assert stream.recv(1 << 16)[9:12] == b"200"
        with pytest.raises(BlockingIOError):  # it has not ended; more events may have come
            read_to_end(stream)


def read_to_end(stream) -> None:
    """Read what is there; the end of the stream is the end of it."""
    while stream.recv(1 << 16):
        pass


def test_a_new_connection_takes_the_place_of_the_one_that_waits_longest(guarded):
    """However many connections say nothing, the next request is answered."""
    with web_servers.serving(guarded[0], "--connections", "20") as server, ExitStack() as stack:
        idle = [stack.enter_context(raw_clients.connection(server)) for _ in range(30)]
        assert server.ask("GET", "/healthz").status_code == 200
        for one in idle[:11]:
            assert raw_clients.read(one) == b""
        assert len(psutil.Process(server.process.pid).net_connections("tcp")) <= 21


def test_who_is_too_many_is_refused_in_all_and_by_address(guarded):
    """Beyond the limits 503 says why; one address does not take this machine's connections."""
    others = [
        one.address
        for some in psutil.net_if_addrs().values()
        for one in some
        if one.family is socket.AF_INET and not one.address.startswith("127.")
    ]
    if not others:
        pytest.skip("this machine has no address but its own")
    limits = ["--connections", "4", "--connections-by-address", "2"]
    with (
        web_servers.serving(guarded[0], "--host", "0.0.0.0", *limits) as server,
        ExitStack() as stack,
    ):

        def stream(address: str) -> bytes:
            one = socket.create_connection((address, server.port), timeout=raw_clients.PATIENCE)
            stack.enter_context(closing(one))
            one.sendall(head("GET", EVENTS, guarded[1]["read"]))
            return one.recv(1 << 16)

        assert [stream(others[0])[9:12] for _ in range(3)] == [b"200", b"200", b"503"]
        assert b"from this address are 2 connections" in stream(others[0])
        assert [stream("127.0.0.1")[9:12] for _ in range(3)] == [b"200", b"200", b"503"]
        assert b"there are 4 connections" in stream("127.0.0.1")


def test_without_files_left_one_line_is_said(guarded):
    """At the limit of files connections wait, the log has one line, and it goes on after that."""
    with web_servers.serving(guarded[0]) as server:
        assert server.ask("GET", "/healthz").status_code == 200
        process = psutil.Process(server.process.pid)
        limits = process.rlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 2, limits[1]))
            some = [stack.enter_context(raw_clients.connection(server)) for _ in range(10)]
            used = sum(process.cpu_times()[:2])
            time.sleep(4)  # a second is the time between two tries
            used = sum(process.cpu_times()[:2]) - used
            assert used < 2  # of 4
            process.rlimit(resource.RLIMIT_NOFILE, limits)
            some[-1].sendall(head("GET", "/healthz", "Connection: close"))
            assert raw_clients.read(some[-1])[9:12] == b"200"
        code, errors = server.stop()

    assert SAID_EVERY == 60
    (line,) = errors.splitlines()
    assert code == 0
    assert "Too many open files" in line
    assert "LimitNOFILE" in line
