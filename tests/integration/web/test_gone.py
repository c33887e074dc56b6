"""Pages that are gone, over HTTP and in the cockpit: apart from what is held by a failure."""

from __future__ import annotations

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.model.work import ErrorRecord, Outcome

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
