"""Whoever serves with a role of the database that may not do all of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import urls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.web_servers import Server

C = "/api/v1/crawls/books"
OURS = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
WRITES = [
    ("POST", "/items/add", {"data": {}}),
    ("POST", "/items/BOOK", {"data": {"title": "One"}}),
    ("POST", "/items/BOOK/operations/parse/expire", None),
    ("POST", f"{C}/items/BOOK/expire", None),
    ("PUT", f"{C}/items/BOOK/ttl", {"ttl": "2d"}),
    ("PUT", f"{C}/items/BOOK/nice", {"nice": -5}),
    ("POST", f"{C}/operations", {"operations": [{"op": "addTag", "id": "BOOK", "tag": "rare"}]}),
    ("POST", f"{C}/failures/handle", {"all": True}),
    ("POST", f"{C}/failures/unhandle", {"since": "2026-01-01T00:00Z"}),
    ("POST", f"{C}/gone/handle", {"all": True}),
    ("POST", f"{C}/pages/stash", {"pages": ["BOOK"]}),
    ("POST", f"{C}/pages/unstash", {"all": True}),
    ("POST", f"{C}/pages/skip", {"url_part": "nothing"}),
    ("POST", f"{C}/pages/unskip", {"all": True}),
    ("PUT", f"{C}/dripfeed", {"pages": None}),
    ("PUT", f"{C}/depth", {"limit": None}),
    ("POST", f"{C}/expire", {"task": "parse"}),
    ("POST", f"{C}/tasks/parse/disable", None),
    ("POST", f"{C}/tasks/parse/enable", None),
    ("POST", f"{C}/tasks/parse/recompute-ttl", None),
    ("PUT", "/api/v1/slots/a.example/block", {"for": "1h"}),
    ("DELETE", "/api/v1/slots/a.example/block", None),
    ("PUT", "/api/v1/slots/a.example/delay", {"seconds": 2}),
    ("PUT", "/api/v1/limits/a.example", {"concurrency": 2}),
    ("DELETE", "/items/BOOK", None),
]


@pytest.fixture(scope="module")
def serving_as(server_url, template) -> Iterator[Callable[[RoleKind], Server]]:
    """Yield a function that has a role of a kind serve a crawl with one item done, one failed."""
    admin = engines.sync_engine(server_url)
    roles: list[str] = []
    with new_database(server_url, template) as url:
        with web_servers.crawl_of(url) as crawl:
            crawl.done("BOOK", data={"url": "https://a.example/1"})
            crawl.failed("FAILED")
            crawl.work("NEW")

        def serving(kind: RoleKind):
            role = f"{kind}_{uuid.uuid4().hex[:8]}"
            roles.append(role)
            with admin.begin() as connection:
                connection.exec_driver_sql(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'sesame'")
            with ItemGraph.open(url) as graph:
                graph.database.grants(kind, role, apply=True)
            of_role = urls.normalise_url(url).set(username=role, password="sesame")
            named = of_role.render_as_string(hide_password=False)
            return web_servers.serving(named, "--crawl", "books")

        yield serving
    with admin.begin() as connection:
        for role in roles:
            connection.exec_driver_sql(f'DROP ROLE "{role}"')
    admin.dispose()


def test_a_role_without_the_right_is_refused_and_told_who_gives_it(serving_as):
    """What would write is 403 for a read-only role, in a sentence with the command; reads work."""
    with serving_as(RoleKind.READ_ONLY) as server:
        for method, path, body in WRITES:
            answer = server.ask(method, path, body)

            assert answer.status_code == 403, (path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert "retry-after" not in answer.headers
            assert "permission denied" in answer.json()["detail"]
            assert "scrapy itemgraph grants KIND read-only_" in answer.json()["detail"]
        assert server.get("/items/BOOK")["data"] == {"url": "https://a.example/1"}
        assert "<main" in server.ask("GET", "/crawls/books").text


def test_a_button_without_the_right_leads_back_and_says_why(serving_as):
    """The page that a button stood on says the same sentence, and not that the database is away."""
    with serving_as(RoleKind.READ_ONLY) as server:
        form = urlencode({"task": "parse", "back": "/crawls/books"})
        page = server.ask(
            "POST",
            "/crawls/books/disable",
            content=form,
            headers=OURS,
            follow_redirects=True,
        )

    assert page.status_code == 200
    assert "scrapy itemgraph grants" in page.text
    assert "database is away" not in page.text


def test_a_scheduler_may_do_all_that_the_api_changes(serving_as):
    """What the API changes is within the rights of a scheduler."""
    with serving_as(RoleKind.SCHEDULER) as server:
        for method, path, body in WRITES:
            answer = server.ask(method, path, body)

            assert answer.status_code < 300, (path, answer.text)
