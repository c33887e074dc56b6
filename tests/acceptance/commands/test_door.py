"""Who gets in over HTTP, as a real Chromium asks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from conftest import new_database
from support import cockpits
from support.web_servers import crawl_of

from scrapy_itemgraph import ItemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import expect

EVIL = "evil.example"  # whose name leads to this machine
ASK = """async ([method, path]) => {
    const body = method == "POST" ? '{"data": {"url": "http://192.0.2.1/"}}' : undefined;
    const headers = {"content-type": "application/json"};
    return (await fetch(path, {method, body, headers})).status;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for this file alone."""
    with cockpits.chromium(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as one:
        yield one


@pytest.fixture
def books(database) -> str:
    """Return a database with a crawl that has one item."""
    with crawl_of(database) as crawl:
        crawl.work("A")
    return database


@pytest.fixture
def other(server_url, template) -> Iterator[str]:
    """Yield another database."""
    with new_database(server_url, template) as url:
        yield url


def test_a_website_whose_name_leads_here_neither_writes_nor_reads(browser, books) -> None:
    """A page under another site's name, all the same origin for the browser, gets no item."""
    with cockpits.cockpit(books) as address:
        page = browser.new_page()
        page.goto(f"http://{EVIL}:{urlsplit(address).port}/healthz")

        assert page.evaluate(ASK, ["GET", "/healthz"]) == 200
        for method in ("POST", "GET"):
            for path in ("/items/B", "/items/B%2Fhealthz", "/items/B%2F%68ealthz"):
                assert page.evaluate(ASK, [method, path]) == 421
        page.close()
    with ItemGraph.open(books, "books") as graph:
        assert graph.status()["items"] == 1


def test_a_browser_is_logged_in_at_two_servers_of_a_host(browser, books, other) -> None:
    """Cookies go to all ports of a host; logging in or out at one server ends none elsewhere."""
    secrets = []
    for url in (books, other):
        with ItemGraph.open(url) as graph:
            secrets.append(graph.tokens.add("anna", "operate"))
    with cockpits.cockpit(books) as first, cockpits.cockpit(other) as second:
        context = browser.new_context()
        page = context.new_page()
        for address, secret in zip((first, second), secrets, strict=True):
            page.goto(f"{address}/")
            page.get_by_label("Token").fill(secret)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
        kept = {one["name"]: one["value"] for one in context.cookies()}
        assert kept.keys() == {f"itemgraph_session_{urlsplit(one).port}" for one in (first, second)}
        assert not set(kept.values()) & set(secrets)
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("h1")).to_have_text("Log in")
        page.goto(f"{first}/")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        context.close()
