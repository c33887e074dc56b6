"""Lists of items: by tag, by the state of a task, by when they changed; and what was done last."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support import graphs

from scrapy_itemgraph import UpdateData, UpdateMetadata
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.admin import done_lists, item_pages

pytestmark = pytest.mark.server

TASKS = {"parse": {"tags": ["page"]}, "index": {"tags": ["list"], "ttl": "1h"}}


@pytest.fixture
def crawl(engine):
    """Yield a crawl with items in each state, on a connection that commits before it is read."""
    with engine.connect() as connection:
        crawl = graphs.Crawl.of(connection, **TASKS)
        crawl.done("OLD", task="index", tags=["list"])
        crawl.item("NOTHING")
        crawl.age(hours=2)
        crawl.done("BOTH", UpdateMetadata({"price": 3}), tags=["page", "list"], aliases=["EAN:1"])
        crawl.work("NEW", data={"url": "http://a.example/new", "price": 4})
        crawl.failed("BAD")
        connection.commit()
        yield crawl


@pytest.fixture
def graph(engine, crawl):
    """Yield its graph."""
    return ItemGraph(engine, "books")


def ids(found) -> list[str]:
    """Return the ids of items."""
    return [one.id for one in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["OLD", "NOTHING", "BOTH", "NEW", "BAD"]),
        ({"tag": "page"}, ["BOTH", "NEW", "BAD"]),
        ({"tag": "none"}, []),
        ({"state": "never run"}, ["BOTH", "NEW"]),
        ({"state": "fresh"}, ["BOTH"]),
        ({"state": "stale"}, ["OLD"]),
        ({"state": "held"}, ["BAD"]),
        ({"state": "held", "tag": "list"}, []),
        ({"state": "fresh", "tag": "list"}, ["BOTH"]),
        ({"task": "index"}, ["OLD", "BOTH"]),
        ({"task": "index", "state": "never run"}, ["BOTH"]),
        ({"task": "parse", "state": "never run"}, ["NEW"]),
        ({"task": "parse", "state": "held"}, ["BAD"]),
        ({"task": "index", "state": "held"}, []),
        ({"task": "index", "tag": "page"}, ["BOTH"]),
        ({"after": "BOTH"}, ["NEW", "BAD"]),
        ({"after": "EAN:1", "limit": 1}, ["NEW"]),
        ({"limit": 2}, ["OLD", "NOTHING"]),
        ({"limit": 0}, []),
    ],
)
def test_items_are_gone_through_by_what_they_have(graph, given, expected):
    """Task, tag, state, place and number may be combined; the order is that of their making."""
    assert ids(graph.items(**given)) == expected


def test_items_of_a_task_that_several_tags_call_for(graph, crawl, monkeypatch):
    """Any of the tags will do, and each item comes once."""
    crawl.register(**TASKS, both={"tags": ["page", "list"]})
    crawl.connection.commit()

    assert ids(graph.items(task="both")) == ["OLD", "BOTH", "NEW", "BAD"]
    assert ids(graph.items(task="both", tag="list", state="never run")) == ["OLD", "BOTH"]
    monkeypatch.setattr(item_pages, "MOST_LOOKED_AT", 1)
    assert ids(graph.items(task="both", limit=3)) == ["OLD", "BOTH", "NEW"]


def test_an_item_of_a_list_has_what_its_tasks_made(graph):
    """States and metadata stand by task, and when the last of them completed."""
    both, new = graph.items(after="NOTHING", limit=2)

    assert both.states == {"parse": "fresh", "index": "never run"}
    assert both.metadata == {"parse": {"price": 3}}
    assert (both.aliases, both.tags) == (("EAN:1",), {"page": None, "list": None})
    assert both.completed_at is not None
    assert (new.url, new.method, new.completed_at) == ("http://a.example/new", None, None)


def test_items_that_changed_since_a_moment(graph, crawl):
    """An item counts when it was made or changed since, or a task of it completed."""
    since = graph.database.now() - timedelta(hours=1)
    assert ids(graph.items(since=since)) == ["BOTH", "NEW", "BAD"]

    crawl.do(UpdateData({"a": 1}, id="NOTHING"))
    crawl.done("OLD", task="index")
    crawl.connection.commit()

    assert ids(graph.items(since=since)) == ["OLD", "NOTHING", "BOTH", "NEW", "BAD"]
    assert ids(graph.items(since=since, state="fresh")) == ["OLD", "BOTH"]


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("state", [None, "never run", "held", "fresh"])
def test_pages_have_each_item_once(graph, crawl, monkeypatch, newest_first, state):
    """However many are looked at for a page, and shown on it, the pages together are the list."""
    for number in range(9):
        crawl.failed(f"F{number}")
        crawl.work(f"W{number}")
    crawl.connection.commit()
    whole = ids(graph.items(state=state))
    assert len(whole) > 0
    for most, limit in ((1, 1), (2, 1), (3, 2), (4, 7), (100, 100)):
        monkeypatch.setattr(item_pages, "MOST_LOOKED_AT", most)
        found, after = [], None
        while True:
            page = graph.lookup.items(
                state=state, after=after, limit=limit, newest_first=newest_first
            )
            assert page.is_full == (len(page.rows) == limit)
            found += ids(page.rows)
            after = page.after
            if after is None:
                break
        assert (found[::-1] if newest_first else found) == whole


def test_a_page_ends_when_enough_was_looked_at(graph, monkeypatch):
    """Where few fit, a page says where to look further, and all are found in the end."""
    monkeypatch.setattr(item_pages, "MOST_LOOKED_AT", 2)
    first = graph.lookup.items(state="fresh", limit=1)
    assert (first.rows, first.is_full) == ([], False)
    second = graph.lookup.items(state="fresh", limit=1, after=first.after)

    assert ids(second.rows) == ["BOTH"]
    assert ids(graph.items(state="fresh")) == ["BOTH"]


def test_what_cannot_be_listed_is_said(graph):
    """An unknown state, and a place that is none, are errors that name them."""
    with pytest.raises(OperationError, match="the states are never run, fresh, stale, held"):
        list(graph.items(state="done"))
    with pytest.raises(NotFoundError, match="did you mean 'parse'"):
        list(graph.items(task="pars"))
    with pytest.raises(NotFoundError, match="'NONE' does not exist"):
        list(graph.items(after="NONE"))


def test_what_was_done_last_is_listed_with_what_it_scraped(graph, crawl):
    """Executions that ended well, the latest first, by task and since a moment, page by page."""
    crawl.end(crawl.claimed("NEW"), items_scraped=7)
    crawl.connection.commit()
    done = graph.lookup.done()
    since = graph.database.now() - timedelta(hours=1)

    assert [(row.item, row.task, row.scraped) for row in done] == [
        ("NEW", "parse", 7),
        ("BOTH", "parse", 0),
        ("OLD", "index", 0),
    ]
    assert done[0].url == "http://a.example/new"
    assert [row.item for row in graph.lookup.done(since=since)] == ["NEW", "BOTH"]
    assert [row.item for row in graph.lookup.done("index")] == ["OLD"]
    assert [row.item for row in graph.lookup.done(before=done[0].number, limit=1)] == ["BOTH"]
    with pytest.raises(NotFoundError, match="did you mean 'parse'"):
        graph.lookup.done("pars")


def test_what_was_done_is_looked_for_among_the_last_attempts(graph, crawl, monkeypatch):
    """Attempts of any outcome and crawl count as looked at."""
    monkeypatch.setattr(done_lists, "MOST_LOOKED_AT", 1)

    assert graph.lookup.done() == []
    crawl.end(crawl.claimed("NEW"), outcome=Outcome.OK)
    crawl.connection.commit()
    assert [row.item for row in graph.lookup.done()] == ["NEW"]


def test_the_tags_that_call_for_tasks_are_known_without_counting(graph):
    """A page that lets people choose a tag or a task asks for these alone."""
    assert graph.tasks.tags() == {"index": ["list"], "parse": ["page"]}
