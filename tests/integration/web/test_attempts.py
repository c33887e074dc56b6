"""What attempts tell of their pages, over HTTP and in the cockpit."""

from __future__ import annotations

import json

import pytest
from conftest import new_database
from support import web_servers

API = "/api/v1/crawls/books"
TOLD = {
    "status": 404,
    "url": "https://books.example/broken?<b>=1",
    "redirects": ["https://books.example/broken"],
    "received_bytes": 1200,
    "seconds_to_first_byte": 0.25,
    "links": 0,
}
SET = """
    UPDATE attempts SET page = CAST(%s AS json)
    WHERE item_id = (SELECT id FROM items WHERE name = %s)
"""


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with a page that failed, and one whose attempt tells nonsense."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(**web_servers.TASKS)
        for name, told in (("broken", TOLD), ("odd", ["nonsense"])):
            crawl.failed(name, data={"url": f"https://books.example/{name}"})
            crawl.connection.exec_driver_sql(SET, (json.dumps(told), name))
        crawl.connection.commit()
        yield url


def test_attempts_and_failures_tell_of_their_pages_over_http(web):
    """MNB-13: an item's attempts and a failure have what is kept, as it is stored."""
    (attempt,) = web.get(f"{API}/items/broken/attempts")
    failures = {one["item"]: one for one in web.get(f"{API}/failures")["rows"]}

    assert attempt["page"] == failures["broken"]["page"] == TOLD
    assert (attempt["job"], attempt["ruleset"]) == (None, None)


def test_an_items_page_and_a_failures_say_how_it_was_answered(web):
    """MNB-13: the cockpit has it in a line, escaped; what cannot be read breaks no page."""
    said = (
        "http 404 from https://books.example/broken?&lt;b&gt;=1, 1 redirect, 1,200 bytes received"
    )
    failures = {one["item"]: one["id"] for one in web.get(f"{API}/failures")["rows"]}

    item = web.ask("GET", "/crawls/books/item?id=broken").text
    failure = web.ask("GET", f"/crawls/books/failures/{failures['broken']}").text
    odd = web.ask("GET", "/crawls/books/item?id=odd")

    assert f"{said}, 0.250s to the first byte" in item
    assert said in failure
    assert odd.status_code == 200
    assert web.ask("GET", f"/crawls/books/failures/{failures['odd']}").status_code == 200
