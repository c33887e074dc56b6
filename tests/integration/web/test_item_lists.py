"""Lists of items and of what was done, over HTTP and as pages."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from conftest import new_database
from support import web_servers

API = "/api/v1/crawls/books"


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with items that have data, and a page of a plain callback."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(**web_servers.TASKS, callbacks={"parse_list": {}})
        crawl.end(
            crawl.claimed("BOOK:1", data={"title": "Tea", "price": 3, "size": {"a": 1}}),
            items_scraped=4,
        )
        crawl.failed("BOOK:2", data={"title": "<b>Rock</b>", "site": "http://b.example/"})
        page = {"url": "http://a.example/list", "request": {"callback": "parse_list"}}
        crawl.item("REQ:0123abcd", tags=["callback:parse_list"], data=page)
        crawl.connection.commit()
        yield url


def pages(web, path) -> str:
    """Return a page as text."""
    answer = web.ask("GET", path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_items_over_http(web):
    """Tag and state restrict the list; a row has what `graph.items` gives."""
    everything = web.get(f"{API}/items")
    held = web.get(f"{API}/items?state=held&tag=page&since=2020-01-01")
    first = web.get(f"{API}/items?limit=2")
    second = web.get(f"{API}/items?limit=2&after={first['next']}")

    assert [one["id"] for one in everything["rows"]] == ["BOOK:1", "BOOK:2", "REQ:0123abcd"]
    assert everything["next"] is None
    assert everything["rows"][0]["states"] == {"parse": "fresh", "reviews": "never run"}
    assert everything["rows"][2]["url"] == "http://a.example/list"
    assert [one["id"] for one in held["rows"]] == ["BOOK:2"]
    assert [one["id"] for one in first["rows"] + second["rows"]] == [
        one["id"] for one in everything["rows"]
    ]
    assert web.ask("GET", f"{API}/items?state=done").status_code == 422
    assert web.ask("GET", f"{API}/items?since=soon").status_code == 422


def test_a_misspelt_tag_is_not_found_over_http(web):
    """Lists of items and of work name the tag that was meant; other tags are free."""
    for path in ("items?tag={}", "work?tag={}", "tags/{}/worklist"):
        misspelt = web.ask("GET", f"{API}/{path.format('paeg')}")
        assert misspelt.status_code == 404
        assert misspelt.json()["detail"] == "no item has the tag 'paeg'; did you mean 'page'?"
        assert web.ask("GET", f"{API}/{path.format('sold')}").status_code == 200


def test_what_was_done_over_http(web):
    """The latest execution comes first, with how many items it scraped."""
    (done,) = web.get(f"{API}/done")["rows"]

    assert (done["item"], done["task"], done["scraped"]) == ("BOOK:1", "parse", 4)
    assert web.get(f"{API}/done?since=2100-01-01")["rows"] == []
    assert web.ask("GET", f"{API}/done?task=none").status_code == 404


def test_the_page_of_items_has_columns_of_their_data(web):
    """Columns are those that are common, or chosen in the address, which keeps them."""
    usual = pages(web, "/crawls/books/items")
    chosen = pages(web, "/crawls/books/items?column=title&column=site&tag=page")

    heads = re.findall(r'<th scope="col" class="data"><bdi>(.*?)</bdi>', usual)
    assert set(heads) == {"title", "price", "size", "site"}
    assert re.findall(r'<th scope="col" class="data"><bdi>(.*?)</bdi>', chosen) == ["title", "site"]
    assert "http://a.example/list</bdi>" in usual
    assert "REQ:0123abcd</bdi>" not in usual
    assert "<b>Rock" not in usual
    assert 'href="http://b.example/"' in chosen
    assert "--tag page --column title --column site -O items.csv" in chosen
    assert "export -O scraped.csv" in usual
    assert "export -O scraped.csv" not in chosen


def test_the_page_of_items_is_filtered(web):
    """By tag, state and time; what does not fit is said."""
    held = pages(web, "/crawls/books/items?state=held&since=1h")
    of_callback = pages(web, "/crawls/books/items?task=parse_list")
    none = pages(web, f"/crawls/books/items?tag={quote('no such')}")

    assert "BOOK:2" in held
    assert "BOOK:1" not in held
    assert "http://a.example/list" in of_callback
    assert "BOOK:" not in of_callback
    assert "--task parse_list -O items.csv" in of_callback
    assert "Nothing fits" in none
    assert "no such" in none


def test_the_page_of_what_was_done_last(web):
    """Each row has the page, the callback or task, when it ended, and the items scraped."""
    done = pages(web, "/crawls/books/done")

    (row,) = re.findall(r"<th scope=\"row\".*?</tr>", done, re.DOTALL)
    assert "BOOK:1" in row
    assert "parse" in row
    assert 'data-name="items scraped">4<' in row
    assert "Nothing was done" in pages(web, "/crawls/books/done?task=reviews")
