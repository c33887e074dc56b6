"""The application in a server that somebody has already, below a path of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from support.graphs import Crawl
from support.web_servers import asked

from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def outer(database, engine) -> Iterator[Starlette]:
    """Yield an application with ours below /graph, on a database with one crawl."""
    with engine.begin() as connection:
        Crawl.of(connection).work("a/b")
    with Graphs.open(database) as graphs:
        yield Starlette(routes=[Mount("/graph", create_app(graphs))])


def test_paths_and_links_are_below_where_it_is_mounted(outer):
    """Ids with slashes are found, pages link to what is below the path, and files are there."""
    assert asked(outer, "GET", "/graph/items/a%2Fb").json()["id"] == "a/b"
    assert asked(outer, "GET", "/items/a%2Fb").status_code == 404
    page = asked(outer, "GET", "/graph/", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert 'href="/graph/static/cockpit.css"' in page.text
    assert asked(outer, "GET", "/graph/static/cockpit.css").status_code == 200
    assert asked(outer, "GET", "/graph/api/v1/openapi.json").json()["servers"] == [
        {"url": "/graph"}
    ]


def test_it_protects_itself(outer):
    """Without tokens only this machine is served; other names and other sites are refused."""
    assert asked(outer, "GET", "/graph/items/a%2Fb", client=("192.0.2.1", 1)).status_code == 403
    assert asked(outer, "GET", "/graph/items/a%2Fb", host="evil").status_code == 421
    headers = {"origin": "http://evil"}
    assert asked(outer, "DELETE", "/graph/items/a%2Fb", headers=headers).status_code == 403
    assert asked(outer, "GET", "/graph/healthz", host="evil").status_code == 200
    assert asked(outer, "GET", "/graph/graph/healthz", host="evil").status_code == 421
    assert asked(outer, "GET", "/graph/items/a%2Fhealthz", host="evil").status_code == 421


def test_a_body_of_another_length_than_declared_is_refused(outer):
    """Whatever server it is mounted in, a body that lacks bytes of its length changes nothing."""
    sent = {"content": b'{"data": {"cut": 1}}', "headers": {"content-type": "application/json"}}
    sent["headers"]["content-length"] = "21"
    answer = asked(outer, "POST", "/graph/items/a%2Fb", **sent)

    assert answer.status_code == 400
    assert "cut off" in answer.json()["detail"]
    assert "cut" not in asked(outer, "GET", "/graph/items/a%2Fb").json()["data"]


def test_a_browser_is_sent_to_the_form_below_the_path(outer, database):
    """The form, what it leads to, and its cookie are below the path."""
    with Graphs.open(database) as graphs:
        secret = graphs.served.tokens.add("anna", "read")
    page = "/graph/crawls/books/overview"
    sent = asked(outer, "GET", page, headers={"accept": "text/html"})
    form = {"token": secret, "then": page}
    answer = asked(outer, "POST", "/graph/login", data=form)

    assert sent.headers["location"].startswith("/graph/login?then=%2Fgraph%2Fcrawls")
    assert answer.headers["location"] == page
    assert "Path=/graph" in answer.headers["set-cookie"]


def test_an_error_that_nobody_foresaw_is_a_500_without_its_text(outer, monkeypatch):
    """What goes wrong in our code is a problem that tells nothing, with all headers."""
    monkeypatch.setattr("scrapy_itemgraph.graph.ItemGraph.show", lambda *_, **__: 1 / 0)

    async def ask():
        transport = httpx.ASGITransport(outer, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as one:
            return await one.get("/graph/items/a%2Fb")

    answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "content-security-policy" in answer.headers
