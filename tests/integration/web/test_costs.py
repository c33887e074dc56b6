"""What an act will have fetched is told before it is done, over HTTP and in the cockpit."""

from __future__ import annotations

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.model.work import ErrorRecord, Outcome

API = "/api/v1/crawls/books"
NOT_FOUND = ErrorRecord(type="http 404", message="Ignoring non-200 response")


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with two failed items, two done ones of two tasks, and one that is gone."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.register(**web_servers.TASKS)
        for name in ("BOOK:1", "BOOK:2"):
            crawl.failed(name)
        for name in ("BOOK:3", "BOOK:4"):
            crawl.done(name)
        crawl.end(crawl.claimed("BOOK:gone"), outcome=Outcome.GONE, error=NOT_FOUND)
        crawl.connection.commit()
        yield url


@pytest.mark.parametrize(
    ("path", "given", "did", "pages"),
    [
        ("failures/handle", {"all": True}, "handled", 2),
        ("failures/handle", {"all": True, "retry": False}, "handled", 0),
        ("gone/handle", {"all": True}, "handled", 1),
        ("expire", {"task": "parse"}, "expired", 5),
    ],
)
def test_a_dry_run_tells_how_many_pages_are_fetched_and_changes_nothing(
    web, path, given, did, pages
):
    """The same answer as that of the act, which did nothing; failures stay open."""
    before = web.get(f"{API}/tasks")

    answer = web.ask("POST", f"{API}/{path}", {**given, "dry_run": True}).json()

    assert answer["cost"] == {"pages": pages, "is_more": False}
    assert answer[did] == 0
    assert web.get(f"{API}/tasks") == before


def test_pages_that_come_within_a_depth_are_counted_before(web, filled, engine_of):
    """By the limit of now and the wanted one; where depths are not tracked nothing is said."""
    nothing = web.ask("PUT", f"{API}/depth", {"limit": 1, "dry_run": True})
    web.ask("PUT", f"{API}/depth", {"limit": 1})
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO depths (item_id, crawl_id, depth) SELECT id, crawl_id, 2 FROM items "
            "WHERE name IN ('BOOK:1', 'BOOK:2') ON CONFLICT (item_id) DO UPDATE SET depth = 2"
        )

    answer = web.ask("PUT", f"{API}/depth", {"limit": 3, "dry_run": True}).json()

    assert nothing.json() is None
    assert answer["cost"] == {"pages": 2, "is_more": False}
    assert answer["limit"] == 1


def test_a_button_says_what_it_costs(web):
    """That which handles all failures that filters choose has the number of pages."""
    shown = web.ask("GET", "/crawls/books/failures?task=parse").text

    assert "Handle all that these filters choose: 2 pages to fetch</button>" in shown
