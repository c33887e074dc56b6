"""Bodies whose connection breaks, at each of their bytes: nothing of them is carried out."""

from __future__ import annotations

from support import raw_clients, web_servers
from support.raw_clients import FORM, head

NAMES = ["PAGE:1", "PAGE:12", "PAGE:123"]
DELETE = "/crawls/books/delete"
MERGE = "/items/PAGE:1"
ADD = "/api/v1/crawls/books/operations"
MERGED = b'{"data": {"cut": 1}}   '  # whole before it has ended
APPLIED = b'{"operations": [{"op": "deleteItem", "id": "PAGE:1"}]} \n'
BODIES = [
    (DELETE, FORM, b"id=PAGE:123"),
    (MERGE, "application/json", MERGED),
    (ADD, "application/json", APPLIED),
]


def test_a_body_that_is_cut_off_does_nothing(database):
    """A form or JSON, of a declared length or in chunks, cut at any byte, changes nothing."""
    with web_servers.crawl_of(database) as crawl:
        for name in NAMES:
            crawl.work(name)
    with web_servers.serving(database, "--crawl", "books") as server:
        for path, media_type, body in BODIES:
            for framing, sent in (
                (f"Content-Length: {len(body)}", body),
                ("Transfer-Encoding: chunked", raw_clients.chunked(body, 8)),
            ):
                begin = head("POST", path, f"Content-Type: {media_type}", framing)
                for length in range(len(sent)):
                    raw_clients.cut(server, begin + sent[:length])
        assert server.ask("GET", "/healthz").status_code == 200
        assert server.stop() == (0, "")  # what is under way has ended

    found = web_servers.rows(database, "SELECT name, data FROM items ORDER BY name")
    assert [(row.name, "cut" in row.data) for row in found] == [(name, False) for name in NAMES]


def test_a_body_that_is_whole_is_carried_out(database):
    """The same requests, sent to their end in pieces, do what they say."""
    with web_servers.crawl_of(database) as crawl:
        for name in NAMES:
            crawl.work(name)
    with web_servers.serving(database, "--crawl", "books") as server:
        for path, media_type, body in reversed(BODIES):
            begin = head(
                "POST",
                path,
                f"Content-Type: {media_type}",
                "Transfer-Encoding: chunked",
                "Connection: close",
            )
            with raw_clients.connection(server) as one:
                for byte in begin + raw_clients.chunked(body):
                    one.sendall(bytes([byte]))
                assert raw_clients.read(one)[9:12] in {b"200", b"201", b"303"}

    found = web_servers.rows(database, "SELECT name, data FROM items ORDER BY name")
    assert [(row.name, row.data.get("cut")) for row in found] == [("PAGE:1", 1), ("PAGE:12", None)]
