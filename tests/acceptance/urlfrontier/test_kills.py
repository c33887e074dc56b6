"""A frontier that is killed in mid-stream: what was acked is there, and nothing is half there."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from functools import partial

import grpc
import pytest
from support import certificates, frontier, servers
from support.frontier import discovered, known
from support.frontier_doors import tls
from support.projects import until

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

pytestmark = pytest.mark.server

KILLS = 20 if os.environ.get("ITEMGRAPH_TEST_SLOW") == "1" else 2

# URLs that are there without anything that says whether they are to be fetched, or the reverse.
HALVES = """
    SELECT i.name FROM items i
    WHERE NOT EXISTS (SELECT FROM work w WHERE w.item_id = i.id)
        AND NOT EXISTS (
            SELECT FROM results r WHERE r.item_id = i.id AND r.completed_at IS NOT NULL)
        OR NOT EXISTS (SELECT FROM tags g WHERE g.item_id = i.id)
        OR NOT EXISTS (SELECT FROM aliases a WHERE a.item_id = i.id)
    UNION ALL
    SELECT a.name FROM aliases a WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = a.item_id)
    UNION ALL
    SELECT w.item_id::text FROM work w WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = w.item_id)
"""


@pytest.fixture(scope="module")
def server():
    """Yield a PostgreSQL of the module's own, with our schema."""
    with servers.own_postgres() as one:
        engine = engines.sync_engine(one.url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        yield one


def rows(server, statement):
    """Return what a statement answers."""
    engine = engines.sync_engine(server.url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql(statement)]
    engine.dispose()
    return found


class Putting:
    """A client that puts URLs, half of them known by then, and knows what was acked to it."""

    def __init__(self, client, number):
        self.acked = {}  # the date of what is known, None of what was discovered, by URL
        self._client = client
        self._number = number
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._put)
        self._thread.start()

    def _put(self):
        sent = {}

        def items():
            number = 0
            while not self._is_ending.is_set():
                url = f"http://h{number % 50}.example/{self._number}/{number // 2}"
                date = None if number % 2 == 0 else (number // 2) % 3
                sent[str(number)] = url, date
                make = discovered if date is None else partial(known, date=date)
                yield make(url, name=str(number))
                number += 1

        with suppress(grpc.RpcError):
            for ack in self._client.call("PutURLs")(items()):
                if frontier.status(ack.status) == "OK":
                    url, date = sent[ack.ID]
                    self.acked[url] = date if date is not None else self.acked.get(url)

    def until_acked(self, more):
        """Wait until so many more URLs are acked."""
        goal = len(self.acked) + more
        until(lambda: len(self.acked) >= goal, lambda: f"{len(self.acked)} of {goal}")

    def end(self):
        """Send nothing more, and wait for the acks."""
        self._is_ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def assert_is_there(server, acked):
    """Show that all that was acked is there as it was acked, and nothing is half there."""
    assert rows(server, HALVES) == []
    dates = dict(rows(server, "SELECT data ->> 'url', data ->> 'refetchable_from_date' FROM items"))
    lost = [
        url
        for url, date in acked.items()
        if url not in dates or (date is not None and dates[url] != str(date))
    ]
    assert lost == []


def test_what_a_killed_server_acked_is_there(server):
    """UF-5: `kill -9` in mid-stream loses no acked URL; the next server goes on with them."""
    acked = {}
    for number in range(KILLS):
        with frontier.serving(server.url) as one:
            putting = Putting(one.client, f"server-{number}")
            putting.until_acked(200)
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
            putting.end()
            acked |= putting.acked
        assert_is_there(server, acked)


@pytest.mark.slow
def test_killed_servers_with_tls_and_renewed_certificates_lose_nothing(server, tmp_path):
    """UF-5: under a stream a certificate is renewed and its server killed; the next goes on."""
    acked = {}
    for number in range(KILLS):
        authority = certificates.Authority(tmp_path, f"authority{number % 2}")
        pair = authority.pair("server")
        trusted = grpc.ssl_channel_credentials(authority.path.read_bytes())
        with frontier.serving(server.url, *tls(pair)) as one:
            with frontier.Client(one.address, credentials=trusted) as client:
                putting = Putting(client, f"tls-{number}")
                putting.until_acked(100)
                with socket.create_connection(one.address.rsplit(":", 1)) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                renewed = certificates.Authority(tmp_path, f"renewed{number}")
                renewed.pair("server")
                new = grpc.ssl_channel_credentials(renewed.path.read_bytes())
                with frontier.Client(one.address, credentials=new) as other:
                    url = f"http://renewed.example/{number}"
                    assert other.put(discovered(url)) == [(url, "OK")]
                putting.until_acked(100)
                one.process.send_signal(signal.SIGKILL)
                one.process.wait()
                putting.end()
            acked |= putting.acked
        assert_is_there(server, acked)


def test_a_stream_outlives_a_postgresql_that_crashes(server):
    """UF-5: acks come late, the stream goes on, and all that was acked is there."""
    with frontier.serving(server.url) as one:
        putting = Putting(one.client, "postgresql")
        for _ in range(KILLS):
            putting.until_acked(200)
            server.stop()
            server.start()
        putting.until_acked(200)
        putting.end()
        assert_is_there(server, putting.acked)


def test_what_was_said_and_what_is_held_outlives_a_killed_server(server):
    """UF-6, UF-7, UF-8: a hold, a block, a delay and a pause are as they were."""
    with frontier.serving(server.url) as one:
        client = one.client
        client.put(*[discovered(f"http://{host}.kept.example/") for host in "abc"])
        assert client.get(key="a.kept.example", crawlID="DEFAULT", delay_requestable=600) == [
            "http://a.kept.example/"
        ]
        later = int(time.time()) + 600
        client.ask("BlockQueueUntil", key="b.kept.example", time=later)
        client.ask("SetDelay", delay_requestable=7)
        client.ask("SetActive", state=False)
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
    with frontier.serving(server.url) as one:
        client = one.client
        assert not client.ask("GetActive").state
        assert client.get(key="c.kept.example", crawlID="DEFAULT") == []
        client.ask("SetActive", state=True)
        assert rows(server, "SELECT default_delay FROM frontier") == [(7,)]
        for host in "ab":
            assert client.get(key=f"{host}.kept.example", crawlID="DEFAULT") == []
        assert client.get(key="c.kept.example", crawlID="DEFAULT") == ["http://c.kept.example/"]
