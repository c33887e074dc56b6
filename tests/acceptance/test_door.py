"""Who gets in over HTTP, as a real Chromium asks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import cockpits
import pytest
from web_servers import crawl_of

from scrapy_itemgraph import ItemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

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
