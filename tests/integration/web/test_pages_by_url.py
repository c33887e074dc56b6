"""The cockpit and the API name pages by their URLs, and take them so."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.model import page_names
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

SITE = "https://shop.example/list"
DIGEST = re.compile(r"(REQ|START):|[0-9a-f]{20}")
# Targets of links, and hidden fields.
HIDDEN = re.compile(
    r'<script.*?</script>|(?:href|value|src|id|action|integrity|data-[a-z-]+)="[^"]*"',
    re.DOTALL,
)


def page(url, callback, **request):
    """Return the operation that a request becomes, as a page that another one led to."""
    name = page_names.plain_name(url) if not request else f"REQ:{len(url):040x}"
    data = {"url": url, "request": request}
    return EnqueueRequest(id=name, tags=(f"callback:{callback}",), data=data)


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with pages of a plain spider, one of which failed."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(parse={"tags": ["callback:parse"]}, again={"tags": ["callback:again"]})
        crawl.do(
            page(SITE, "parse"),
            page(f"{SITE}/4/", "parse"),
            page(f"{SITE}/search", "again", method="POST", body="q=tea"),
            page(f"{SITE}/failing", "again", method="POST", body="q=tea"),
            page(f"{SITE}/{'long' * 500}", "parse"),
        )
        crawl.failed(page_names.plain_name(f"{SITE}/4/"))
        crawl.failed(f"REQ:{len(f'{SITE}/failing'):040x}", task="again")
        crawl.connection.commit()
        yield url


def read(web, path):
    """Return what a person sees of a page: no targets of links, no hidden fields."""
    answer = web.ask("GET", path, follow_redirects=True)
    assert answer.status_code == 200, path
    return HIDDEN.sub("", answer.text)


def test_pages_of_the_cockpit_show_urls(web):
    """No page shows a digest in the place of a URL; the method is said unless it is GET."""
    number = web.ask("GET", "/api/v1/crawls/books/failures").json()["rows"][0]["id"]
    asked = {
        name: quote(url) for name, url in {"list": f"{SITE}/4/", "post": f"{SITE}/search"}.items()
    }

    for path in (
        *("overview", "worklist", "failures", f"failures/{number}", "items", "done", "tasks"),
        *(f"{kind}?id={url}" for url in asked.values() for kind in ("item", "explain")),
        *(f"search?q={url}" for url in asked.values()),
        "search?by=part&q=shop",
    ):
        assert not DIGEST.search(read(web, f"/crawls/books/{path}")), path
    failures = web.ask("GET", "/crawls/books/failures").text
    assert (
        f"itemgraph simulate --crawl books SPIDER &#39;POST {SITE}/failing&#39;</code>" in failures
    )
    assert f"POST {SITE}/search" in read(web, f"/crawls/books/search?q={asked['post']}")
    assert f"POST {SITE}/search" in read(web, "/crawls/books/worklist")


def test_a_server_without_the_code_says_what_simulates_a_page(filled):
    """Its URL, with the method, is what the command is given: no digest, also of a POST request."""
    post = f"REQ:{len(f'{SITE}/search'):040x}"
    asked = {post: "again", f"{SITE}/4/": "parse", "nowhere": "parse"}
    written = [f"&#39;POST {SITE}/search&#39;", f"{SITE}/4/", "parse nowhere"]

    with Graphs.open(filled) as graphs:
        app = create_app(graphs)
        for (name, task), one in zip(asked.items(), written, strict=True):
            page = f"/crawls/books/simulate?id={quote(name, safe='')}&task={task}"
            shown = web_servers.asked(app, "GET", page).text
            assert f"scrapy itemgraph simulate --crawl books shop {one}</pre>" in shown


def test_the_api_takes_a_url_and_says_what_was_meant(web):
    """A page is read by its URL; of one that is not there a list of what is written alike."""
    found = web.ask("GET", f"/api/v1/crawls/books/items/{quote(SITE, safe='')}")
    near = web.ask("GET", f"/api/v1/crawls/books/items/{quote(f'{SITE}/4', safe='')}")
    asked = web.ask("GET", f"/crawls/books/item?id={quote(f'{SITE}/4')}")

    assert found.json()["url"] == SITE
    assert near.status_code == 404
    assert near.json()["did_you_mean"] == [f"{SITE}/4/"]
    assert asked.status_code == 404
    assert f"/crawls/books/item?id={quote(f'{SITE}/4/', safe='')}" in asked.text
