"""Streams of events under an outage: none is counted that has ended, and none hangs."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import psutil
import pytest
from support import queued, raw_clients, servers, web_servers
from support.projects import until

from scrapy_itemgraph.web.streams import MOST, MOST_OF_TOKEN

EVENTS = "/api/v1/crawls/a/events"
TOKENS = 5
AT_ONCE = b"\1\0\0\0\0\0\0\0"  # SO_LINGER: closed by a reset


@pytest.mark.slow
@pytest.mark.server
def test_streams_that_end_however_make_room_for_others(project):
    """Beyond their number one is refused; closed, cut and unread ones leave as much room again."""
    with servers.own_postgres() as server:
        project.url = server.url
        project.write("")
        project.scrapy("itemgraph", "init")
        queued.add(project, "a")
        bearers = [
            web_servers.run(server.url, "token", "add", f"t{number}", "--role", "read")["token"]
            for number in range(TOKENS)
        ]
        with web_servers.serving(server.url, "--crawl", "a") as web:
            process = psutil.Process(web.process.pid)
            before = process.num_fds()
            for number in range(3):
                with ExitStack() as stack:
                    found = [
                        stack.enter_context(opened(web, bearer))
                        for bearer in bearers
                        for _ in range(MOST_OF_TOKEN + 5)
                    ]
                    answers = [one.recv(1 << 10)[9:12] for one in found]
                    assert sorted(set(answers)) == [b"200", b"503"], number
                    assert answers.count(b"200") == MOST
                    assert answers[: MOST_OF_TOKEN + 5].count(b"200") == MOST_OF_TOKEN
                    server.stop()
                    until(lambda: web.ask("GET", "/healthz").status_code == 503)
                    server.start()
                    until(lambda: web.ask("GET", "/healthz").status_code == 200)
                    for one in found[number::3]:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                until(lambda: process.num_fds() < before + 20, lambda: str(process.num_fds()))
            web.process.terminate()
            assert web.process.wait(30) == 0


def opened(web, bearer):
    """Return a connection at which a stream was asked for."""
    at = urlsplit(web.url)
    one = socket.create_connection((at.hostname, at.port), timeout=raw_clients.PATIENCE)
    one.sendall(raw_clients.head("GET", EVENTS, f"Authorization: Bearer {bearer}"))
    return one
