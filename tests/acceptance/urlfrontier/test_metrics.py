"""Numbers for Prometheus, under the names of upstream's server."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import httpx
from support import certificates, frontier, proxies
from support.frontier import batch, discovered, known
from support.frontier_doors import add_token, scraped, tls

from scrapy_itemgraph.urlfrontier.access import FRESH

A, B = "http://a.example/", "http://b.example/"
NAMES = {
    "frontier_getURLs_calls_total",
    "frontier_getURLs_total",
    "frontier_getURLs_latency_seconds_count",
    "frontier_getURLs_latency_seconds_sum",
    "frontier_putURLs_calls_total",
    "frontier_putURLs_total",
    "frontier_putURLs_discovered_total",
    "frontier_putURLs_ignored_total",
    "frontier_putURLs_completed_total",
    "frontier_putDiscovered_calls_total",
}


def test_calls_are_counted(database):
    """UF-16: after known calls each number is exact, and has upstream's name."""
    with frontier.serving(database, "--metrics-port", "0") as served:
        before = scraped(served)
        assert {name for name, *_ in before} == NAMES
        assert set(before.values()) == {0}

        served.client.put(discovered(A), discovered(A), known(B, 0), discovered("http:///x"))
        served.client.put(known(B + "later", 5))
        served.client.put_batches(batch("one", A, A + "2", A + "2"), batch("two"))
        assert len(served.client.get()) == 3
        assert served.client.get() == []

        found = scraped(served)
        assert found.pop(("frontier_getURLs_latency_seconds_sum",)) > 0
        assert found == {
            ("frontier_getURLs_calls_total",): 2,
            ("frontier_getURLs_total",): 3,
            ("frontier_getURLs_latency_seconds_count",): 2,
            ("frontier_putURLs_calls_total",): 2,
            ("frontier_putURLs_total",): 8,
            ("frontier_putURLs_discovered_total", "true"): 5,
            ("frontier_putURLs_discovered_total", "false"): 2,
            ("frontier_putURLs_ignored_total",): 3,
            ("frontier_putURLs_completed_total",): 1,
            ("frontier_putDiscovered_calls_total",): 1,
        }
        code, said = served.stop()
        assert code == 0
        assert said.count("\n") == 1
        assert "Not stored, and acked as SKIPPED: 1 URL " in said


def test_numbers_are_for_those_who_may_read(database):
    """UF-1: where there are tokens one is needed, to read is enough, and nothing else is there."""
    secret = add_token(database, "grafana", "read")
    with frontier.serving(database, "--metrics-port", "0") as served:
        url = f"http://{served.said['metrics']}"
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert scraped(served, headers={"authorization": f"Bearer {secret}"})
        assert httpx.get(f"{url}/elsewhere").status_code == 404
        assert httpx.post(f"{url}/metrics").status_code == 405


def test_who_may_read_is_not_known_while_the_database_is_away(engine):
    """UF-1: an unknown token gets 503 then, and no address of it; a known one gets the numbers."""
    with proxies.proxy(engine) as (way, url):
        secret = add_token(url, "grafana", "read")
        serving = frontier.serving(url, "--metrics-port", "0", "-s", "ITEMGRAPH_PATIENCE=2s")
        with serving as served:
            way.lead(("127.0.0.1", 9))
            way.cut()
            time.sleep(FRESH)  # so long it is known who has a token

            stranger = {"authorization": "Bearer itg_unknown"}
            answer = httpx.get(f"http://{served.said['metrics']}/metrics", headers=stranger)
            assert answer.status_code == 503
            assert answer.text.startswith("the database does not answer")
            assert scraped(served, headers={"authorization": f"Bearer {secret}"})


def test_strangers_at_the_port_of_numbers_cost_nothing(database):
    """UF-16: who is silent, or sends no HTTP or too much of it, is in nobody's way."""
    with frontier.serving(database, "--metrics-port", "0") as served, ExitStack() as stack:
        host, port = served.said["metrics"].rsplit(":", 1)

        def answer(sent):
            found = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            found.sendall(sent)
            return found.recv(12) if sent else b""

        answer(b"")
        assert answer(b"\x16\x03\x01 no HTTP\r\n\r\n") == b"HTTP/1.1 400"
        assert answer(b"GET /metrics HTTP/1.1\r\nx: " + b"x" * 20_000) == b"HTTP/1.1 431"
        head = httpx.head(f"http://{host}:{port}/metrics")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 100
        assert scraped(served)


def test_numbers_are_sent_as_all_else_is(database, tmp_path):
    """UF-1: a server that speaks TLS tells its numbers by TLS, too."""
    authority = certificates.Authority(tmp_path)
    options = tls(authority.pair("server"))
    with frontier.serving(database, "--metrics-port", "0", *options) as served:
        answer = httpx.get(
            f"https://{served.said['metrics']}/metrics",
            verify=certificates.trusting(authority.path),
        )
        assert answer.status_code == 200


def test_a_port_that_is_taken_is_refused(database):
    """UF-1: one line says which port is taken."""
    with frontier.serving(database, "--metrics-port", "0") as served:
        port = served.said["metrics"].rpartition(":")[2]

        assert f"port {port}" in frontier.refusal(database, "--metrics-port", port)
