"""Pages that are set aside, over HTTP and in the cockpit."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from conftest import new_database
from support import web_servers

API = "/api/v1/crawls/books"
FORM = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with three pages of which one failed."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(**web_servers.TASKS)
        for name in ("one", "junk/two", "junk/three"):
            crawl.work(name, data={"url": f"https://books.example/{name}"})
        crawl.failed("broken", data={"url": "https://books.example/broken"})
        crawl.connection.commit()
        yield url


def test_pages_are_set_aside_and_freed_over_http(web):
    """MNB-7: some by their URLs, or all with a part; who says neither, or no part, is refused."""

    def ask(verb, **given):
        return web.ask("POST", f"{API}/pages/{verb}", given)

    assert ask("skip").status_code == ask("unskip", pages=["one"], all=True).status_code == 422
    for verb in ("skip", "stash", "unskip", "unstash"):
        assert ask(verb, url_part="").status_code == 422
    assert ask("skip", pages=["https://books.example/none"]).status_code == 404
    assert ask("skip", tag="paeg").status_code == ask("stash", tag="paeg").status_code == 404
    assert ask("skip", url_part="/junk/").json() == {"pages": 2}
    assert ask("stash", pages=["https://books.example/one"]).json() == {"pages": 1}
    listed = web.get(f"{API}/work?state=skipped&task=parse")["rows"]
    (numbers,) = [one for one in web.get(f"{API}/tasks") if one["name"] == "parse"]
    assert [one["url"] for one in listed] == [
        "https://books.example/junk/two",
        "https://books.example/junk/three",
    ]
    assert (numbers["skipped"], numbers["stashed"], numbers["failures"]) == (2, 1, 1)
    assert 'itemgraph_skipped{crawl="books",task="parse"} 2.0' in web.ask("GET", "/metrics").text
    assert ask("unskip", url_part="three").json() == {"pages": 1}
    assert ask("unstash", all=True).json() == {"pages": 1}
    assert ask("unskip", pages=["junk/two"]).json() == {"pages": 1}


def test_a_page_gets_more_attempts_over_http(web):
    """MNB-7: the answer names its tasks, and its open failure is handled."""
    given = {"page": "https://books.example/broken", "attempts": 4}

    answer = web.ask("POST", f"{API}/pages/tries", given).json()

    assert answer == {"attempts": 4, "tasks": ["parse"]}
    assert web.get(f"{API}/failures")["rows"] == []
    assert web.ask("POST", f"{API}/pages/tries", given | {"attempts": 0}).status_code == 422


def test_a_dripfeed_is_set_and_read_over_http(web):
    """MNB-7: null is nobody's word."""
    before = web.get(f"{API}/dripfeed")
    answer = web.ask("PUT", f"{API}/dripfeed", {"pages": 9}).json()

    assert (before, answer, web.get(f"{API}/dripfeed")) == (
        {"pages": None},
        {"pages": 9},
        {"pages": 9},
    )


def test_pages_are_set_aside_in_the_cockpit(web):
    """MNB-7: by a button of the page or by a part of the URL; what is aside can be freed."""

    def press(**fields):
        return web.ask(
            "POST",
            "/crawls/books/set-aside",
            content=urlencode({"back": "/crawls/books/worklist?state=skipped", **fields}),
            headers=FORM,
            follow_redirects=True,
        ).text

    assert "one is skipped." in press(id="one", hold="skipped")
    assert "2 pages are skipped now." in press(part="/junk/", hold="skipped")
    shown = web.ask("GET", "/crawls/books/item?id=one").text
    assert "Free: skipped no more" in shown
    assert "pages unskip" in shown
    said = press(id="one", hold="skipped", free="1")
    assert "one is skipped no more." in said
    assert "pages are skipped, stashed or left" in press(id="one", hold="burnt")
    assert "Skip</button>" in web.ask("GET", "/crawls/books/item?id=one").text


def test_depths_are_told_and_limited_over_http_and_in_the_cockpit(web):
    """MNB-9: null where they are not tracked; from a limit on they are, and shown by depth."""
    before = web.get(f"{API}/depth")
    answer = web.ask("PUT", f"{API}/depth", {"limit": 0}).json()
    shown = web.ask("GET", "/crawls/books").text

    assert before is None
    assert (answer["limit"], answer["is_set"], answer["is_at_work"]) == (0, True, True)
    assert web.get(f"{API}/depth")["limit"] == 0
    assert web.ask("PUT", f"{API}/depth", {"limit": -1}).status_code == 422
    assert "pages by depth" in shown
    assert "0 too deep, the limit is 0" in shown
