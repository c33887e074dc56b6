"""Blobs over HTTP in parts: how a download goes on where it was broken off."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import httpx
import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph import AttachBlob, CreateItem
from scrapy_itemgraph.graph import ItemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.web_servers import Server

SIZE = 3_000_000
CONTENT = random.Random(1).randbytes(SIZE)
PATH = "/items/A/blobs/film"


@pytest.fixture(scope="module", params=["database", "folder"])
def server(request, server_url, template, tmp_path_factory) -> Iterator[Server]:
    """Yield a server of an item with a blob of 3 MB, and with one that has nothing in it."""
    is_folder = request.param == "folder"
    place = str(tmp_path_factory.mktemp("blobs")) if is_folder else "database"
    with new_database(server_url, template) as url:
        with web_servers.crawl_of(url), ItemGraph.open(url, "books", blobs=place) as graph:
            graph.apply(
                [
                    CreateItem("A"),
                    AttachBlob("film", CONTENT, id="A"),
                    AttachBlob("none", b"", id="A"),
                ]
            )
        setting = ("-s", f"ITEMGRAPH_BLOBS={place}")
        with web_servers.serving(url, "--crawl", "books", *setting) as server:
            yield server


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=1048570-1048590", 1_048_570, 1_048_590),
        ("bytes=2999990-", SIZE - 10, SIZE - 1),
        ("bytes=-5", SIZE - 5, SIZE - 1),
        ("bytes=-99999999999", 0, SIZE - 1),
        ("Bytes=7-99999999999", 7, SIZE - 1),
        ("bytes=0-", 0, SIZE - 1),
    ],
)
def test_a_part_is_sent_as_it_is_asked_for(server, wanted, first, last):
    """206, with where the part stands in the whole, and its bytes alone."""
    answer = server.ask("GET", PATH, headers={"range": wanted})

    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{SIZE}"
    assert answer.headers["content-length"] == str(last - first + 1)
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''film"
    assert answer.content == CONTENT[first : last + 1]


@pytest.mark.parametrize("path", [PATH, "/items/A/blobs/none"])
@pytest.mark.parametrize("wanted", ["bytes=3000000-", "bytes=-0", "bytes=99999999999-"])
def test_a_part_that_has_no_byte_is_refused(server, path, wanted):
    """416, with how many bytes there are."""
    answer = server.ask("GET", path, headers={"range": wanted})

    assert answer.status_code == 416
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["content-range"] == f"bytes */{SIZE if path == PATH else 0}"


@pytest.mark.parametrize(
    "wanted",
    ["bytes=9-5", "bytes=0-1,5-6", "items=0-5", "bytes=-", "bytes=a-b", "bytes=" + "9" * 40],
)
def test_what_is_no_single_range_has_the_whole(server, wanted):
    """RFC 9110 lets a server ignore what it does not know; the whole is right for each."""
    answer = server.ask("GET", PATH, headers={"range": wanted})

    assert (answer.status_code, answer.headers["accept-ranges"]) == (200, "bytes")
    assert answer.content == CONTENT


def test_a_part_of_another_content_is_not_taken_for_one_of_this(server):
    """With `If-Range` a download goes on where the content is the same, and else begins anew."""
    etag = server.ask("GET", PATH).headers["etag"]
    same, other, old = (
        server.ask("GET", PATH, headers={"range": "bytes=1-2", "if-range": one})
        for one in (etag, '"another"', "Mon, 23 Nov 2026 00:00:00 GMT")
    )

    assert (same.status_code, same.content) == (206, CONTENT[1:3])
    assert (other.status_code, old.status_code) == (200, 200)
    assert other.content == CONTENT
    assert server.ask("GET", "/items/A/blobs/none").headers["etag"] != etag


def test_a_damaged_content_is_not_sent_to_its_end(database, tmp_path):
    """Whoever asks for it sees that it is not whole, also where its size is right."""
    with (
        web_servers.crawl_of(database),
        ItemGraph.open(database, "books", blobs=tmp_path) as graph,
    ):
        graph.apply([CreateItem("A"), AttachBlob("film", CONTENT, id="A")])
        graph.apply([AttachBlob("small", b"small", id="A")])
    for file in [one for one in tmp_path.rglob("*") if one.is_file()]:
        file.write_bytes(b"!" + file.read_bytes()[1:])
    setting = ("-s", f"ITEMGRAPH_BLOBS={tmp_path}")
    with web_servers.serving(database, "--crawl", "books", *setting) as server:
        small = server.ask("GET", "/items/A/blobs/small")
        with pytest.raises(httpx.RemoteProtocolError):
            server.ask("GET", PATH)

    assert small.status_code == 503
    assert "it is damaged" in small.json()["detail"]
