"""Pages that are gone, over HTTP and in the cockpit: apart from what is held by a failure."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.model.work import ErrorRecord, Outcome

WORDS = ["done", "waiting", "running", "later", "failed", "gone"]
API = "/api/v1/crawls/books"
NOT_FOUND = ErrorRecord(type="http 404", message="Ignoring non-200 response")


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with an item whose page is gone, and one that failed."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(**web_servers.TASKS)
        crawl.end(crawl.claimed("BOOK:gone"), outcome=Outcome.GONE, error=NOT_FOUND)
        crawl.failed("BOOK:failed")
        crawl.connection.commit()
        yield url


def test_what_is_gone_is_counted_and_listed_apart(web):
    """Numbers, lists of work and items, the reason, and the metrics have it; failures do not."""
    numbers = {one["name"]: one for one in web.get(f"{API}/tasks")}["parse"]
    gone = web.get(f"{API}/work?state=gone")["rows"]
    held = web.get(f"{API}/work?state=held")["rows"]
    items = web.get(f"{API}/items?state=gone")["rows"]
    failures = web.get(f"{API}/failures")
    metrics = web.ask("GET", "/metrics").text

    assert (numbers["held"], numbers["gone"], numbers["failures"]) == (1, 1, 1)
    assert [(one["item"], one["state"]) for one in gone] == [("BOOK:gone", "gone")]
    assert [one["item"] for one in held] == ["BOOK:failed"]
    assert [one["id"] for one in items] == ["BOOK:gone"]
    assert "BOOK:gone" not in str(failures)
    assert 'itemgraph_gone{crawl="books",task="parse"} 1.0' in metrics


def test_pages_of_the_cockpit_show_what_is_gone(web):
    """The worklist has a filter for it, and the tasks lead there."""
    worklist = web.ask("GET", "/crawls/books/worklist?state=gone").text
    tasks = web.ask("GET", "/crawls/books/tasks").text
    explained = web.ask("GET", "/crawls/books/explain?id=BOOK:gone").text

    assert "BOOK:gone" in worklist
    assert "BOOK:failed" not in worklist
    assert "1 gone" in tasks
    assert "state=gone" in tasks
    assert "its page is gone" in explained


def test_pages_have_the_words_of_the_command_line(web):
    """Crawls, a crawl's tasks and its worklist say where work stands as `status` does."""
    for path in ("/", "/crawls/books"):
        shown = web.ask("GET", path).text
        found = re.findall(rf"<th[^>]*>({'|'.join(WORDS)})</th>", shown)
        assert found == [word for word in WORDS if word in found]  # none without a number
        assert {"done", "waiting", "gone"} <= set(found) or path == "/"
    listed = web.ask("GET", "/crawls/books/worklist").text
    assert {"waiting", "running", "later", "gone"} <= set(
        re.findall(r"<option[^>]*>(\w+)<", listed)
    )
    assert not re.search(r">[^<]*\b(claimed|backoff|delayed)\b", shown + listed)


def test_pages_that_are_gone_are_asked_again_over_http(web, filled):
    """Of a task, of an item, or all; nothing is done without a word which."""

    def ask(**given):
        return web.ask("POST", f"{API}/gone/handle", given)

    def end(name):
        with web_servers.crawl_of(filled) as crawl:
            crawl.end(crawl.claimed(name), outcome=Outcome.GONE, error=NOT_FOUND)

    assert ask().status_code == ask(all=True, task="parse").status_code == 422
    assert ask(item="nowhere").status_code == 404
    assert ask(task="parse", item="BOOK:gone").json() == {"handled": 1}
    assert ask(all=True).json() == {"handled": 0}
    end("BOOK:gone")
    assert ask(all=True).json() == {"handled": 1}
    end("BOOK:gone")
    page = "/crawls/books/worklist?state=gone"
    assert "Ask all of them again…" in web.ask("GET", page).text
    said = web.ask(
        "POST",
        "/crawls/books/ask-again",
        content=urlencode({"task": "parse", "back": page}),
        headers={
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
        },
        follow_redirects=True,
    ).text
    assert "1 page is asked again by the next run" in said
    assert "Nothing fits" in said


def test_results_are_expired_over_http(web, filled):
    """Of a task, a tag, both together, or all, as the command does; the answer counts them."""
    with web_servers.crawl_of(filled) as crawl:
        crawl.done("DONE")

    def ask(**given):
        return web.ask("POST", f"{API}/expire", given)

    assert ask().status_code == ask(all=True, tag="page").status_code == 422
    assert ask(task="pars").json()["detail"].endswith("did you mean 'parse'?")
    misspelt = ask(tag="paeg")
    assert misspelt.status_code == ask(tag="paeg", dry_run=True).status_code == 404
    assert misspelt.json()["detail"] == "no item has the tag 'paeg'; did you mean 'page'?"
    assert ask(task="parse", tag="nothing").json() == {
        "task": "parse",
        "tag": "nothing",
        "expired": 0,
    }
    assert ask(task="parse", tag="page").json()["expired"] >= 1
    (result,) = [one for one in web.get("/items/DONE/operations") if one["task"] == "parse"]
    assert result["state"] == "stale"
    assert ask(all=True).json()["expired"] >= 1


def test_pages_that_led_to_a_known_page_are_brought_back_over_http(web, filled):
    """By its URL or id, alone; as `handle --led-to` does."""
    with web_servers.crawl_of(filled) as crawl:
        crawl.done("LOGIN")
        crawl.end(crawl.claimed("LED"), outcome=Outcome.KNOWN, led_to="LOGIN")

    def ask(**given):
        return web.ask("POST", f"{API}/failures/handle", given)

    assert ask(led_to="LOGIN", all=True).status_code == 422
    assert ask(led_to="LOGIN", retry=False).status_code == 422
    assert ask(led_to="nowhere").status_code == 404
    assert ask(led_to="LOGIN").json() == {"handled": 1, "retry": True}
    assert ask(led_to="LOGIN").json() == {"handled": 0, "retry": True}
