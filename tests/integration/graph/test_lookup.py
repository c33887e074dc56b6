"""Looking around in a crawl: work page by page, items by what they have, crawls from above."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph import CreateItem, MergeItem
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.admin import item_search, neighbours, work_pages

pytestmark = pytest.mark.server

TASKS = {"parse": {"tags": ["page"]}, "index": {"tags": ["list"], "nice": 5}}


@pytest.fixture
def graph(engine):
    """Yield the graph of a crawl with work in every state, in two slots."""
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection, **TASKS)
        crawl.do(
            *(
                CreateItem(f"P{number}", ["page"], {"url": f"http://a.example/{number}"})
                for number in range(5)
            ),
            CreateItem("L", ["list"], {"url": "http://b.example/list"}),
            CreateItem("LATER", ["page"], {"url": "http://b.example/"}, not_before=timedelta(1)),
            CreateItem("BAD", ["page"], {"url": "http://b.example/bad"}),
            CreateItem("TRIED", ["page"], {"url": "http://a.example/tried"}),
            CreateItem("TAKEN", ["page"], {"url": "http://a.example/taken"}),
        )
        crawl.failed("BAD")
        crawl.end(crawl.claimed("TRIED"), outcome=Outcome.RETRY, delay=timedelta(hours=2))
        crawl.claim_pair("TAKEN")
    return ItemGraph(engine, "books")


def items_of(page):
    """Return the items of a page."""
    return [row.item for row in page.rows]


def test_outstanding_work_is_shown_page_by_page_in_its_order(graph):
    """The pages together are the worklist, each piece once, however long they are."""
    whole = [row.item for row in graph.worklist()]
    assert len(whole) == 8
    for limit in (1, 3, 7, 8, 100):
        found, after = [], None
        while True:
            page = graph.lookup.work(after=after, limit=limit)
            found += items_of(page)
            assert len(page.rows) <= limit
            after = page.after
            if after is None:
                break
        assert found == whole


@pytest.mark.parametrize(
    ("state", "items"),
    [
        ("ready", ["P0", "P1", "P2", "P3", "P4", "L"]),
        ("delayed", ["LATER", "TRIED"]),
        ("claimed", ["TAKEN"]),
        ("held", ["BAD"]),
    ],
)
def test_work_is_shown_by_its_state(graph, state, items):
    """Each piece of work is in one state; claims name their worker."""
    page = graph.lookup.work(state=state)

    assert items_of(page) == items
    assert {row.state for row in page.rows} == {state}
    assert all((row.worker is not None) == (state == "claimed") for row in page.rows)
    assert page.after is None


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ({"slot": "b.example"}, ["LATER", "L"]),
        ({"task": "index"}, ["L"]),
        ({"slot": "b.example", "state": "held"}, ["BAD"]),
        ({"slot": "a.example", "state": "held"}, []),
        ({"slot": "a.example", "state": "claimed", "task": "parse"}, ["TAKEN"]),
        ({"slot": "b.example", "state": "ready", "task": "parse"}, []),
    ],
)
def test_work_is_shown_by_task_and_slot(graph, given, items):
    """Task, slot and state may be combined."""
    assert items_of(graph.lookup.work(**given)) == items


def test_claimed_and_held_work_has_pages(graph, engine):
    """Work that is claimed or held has pages as well."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.failed("P3")
        crawl.failed("P4")
        crawl.claim(2)
    for state, count in (("held", 3), ("claimed", 3)):
        first = graph.lookup.work(state=state, limit=2)
        second = graph.lookup.work(state=state, limit=2, after=first.after)
        assert len({*items_of(first), *items_of(second)}) == count
        assert second.after is None


def test_held_work_of_a_slot_goes_on_where_a_look_ended(graph, engine, monkeypatch):
    """A page that looked at nothing of the slot says where to go on, and the last that it ends."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.failed("P3")
        crawl.failed("P4")
    monkeypatch.setattr(work_pages, "MOST_LOOKED_AT", 1)
    found, pages, after = [], 0, None
    while pages == 0 or after is not None:
        page = graph.lookup.work(state="held", slot="b.example", limit=1, after=after)
        found += items_of(page)
        pages, after = pages + 1, page.after

    assert found == ["BAD"]
    assert pages == 2


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"state": "open"}, OperationError, "the states are ready, delayed, claimed, held"),
        ({"slot": "c.example"}, NotFoundError, "no work has named the slot 'c.example'"),
        ({"task": "pars"}, NotFoundError, "did you mean 'parse'"),
        ({"after": "x"}, OperationError, "no place to go on from"),
        ({"after": '[1, "a", 3]'}, OperationError, "no place to go on from"),
        ({"after": "[1, 2]"}, OperationError, "no place to go on from"),
        ({"after": "[1, 2, 1e400]"}, OperationError, "no place to go on from"),
        ({"after": "[1, 99999999999, 3]"}, OperationError, "no place to go on from"),
    ],
)
def test_what_cannot_be_shown_is_refused(graph, given, error, message):
    """An unknown state, slot or task, and a place that is none, are named."""
    with pytest.raises(error, match=message.replace("'", ".")):
        graph.lookup.work(**given)


@pytest.mark.parametrize(
    ("wanted", "kind", "items"),
    [
        ("P", "prefix", ["P4", "P3", "P2", "P1", "P0"]),
        ("AT", "part", ["LATER"]),
        ("a.example/ta", "part", ["TAKEN"]),
        ("also-", "prefix", ["P1"]),
        ("so-known", "part", ["P1"]),
        ('$.url ? (@ like_regex "list$")', "path", ["L"]),
        ("$.price", "path", []),
        ("\0", "part", []),
        ("%", "part", []),
    ],
)
def test_items_are_found_by_what_they_have(graph, wanted, kind, items):
    """By the beginning or a part of a name, an alias or a URL, or by a path into the data."""
    graph.apply([CreateItem("X"), MergeItem("P1", id="X")])
    graph.apply([CreateItem("also-known", aliases=["K"]), MergeItem("P1", id="also-known")])

    found = graph.lookup.search(wanted, kind)

    assert [one.item for one in found.items] == items
    assert found.is_whole


@pytest.mark.parametrize(
    ("wanted", "url"), {"é": r"\u00e9", "/": r"\/", '"': r"\"", "\\": r"\\"}.items()
)
def test_a_part_of_a_url_is_found_however_json_writes_it(graph, engine, wanted, url):
    """A URL is looked for as it reads, and no other part of the data is."""
    with engine.begin() as connection:
        data = f'{{"url": "http://c.example{url}z", "other": "http://c.example/other"}}'
        connection.execute(
            sa.text("UPDATE items SET data = :data WHERE name = 'L'"), {"data": data}
        )

    assert [one.item for one in graph.lookup.search(f"c.example{wanted}z").items] == ["L"]
    assert not graph.lookup.search("c.example/other").items


@pytest.mark.parametrize(("wanted", "kind"), [("P", "prefix"), ("P", "part"), ("$.url", "path")])
def test_a_search_looks_at_the_newest_and_says_so(graph, monkeypatch, wanted, kind):
    """Of a crawl with more items than are looked at only the newest are found, and it says so."""
    monkeypatch.setattr(item_search, "MOST_LOOKED_AT", 7)

    found = graph.lookup.search(wanted, kind)

    assert {"P0", "P1", "P2"}.isdisjoint(one.item for one in found.items)
    assert "P4" in {one.item for one in found.items}
    assert not found.is_whole


def test_data_that_is_no_jsonb_is_passed_over(graph):
    """A NUL in some item's data does not end a search by path."""
    graph.apply([CreateItem("NUL", data={"a": "b\\u0000"}), CreateItem("Z", data={"a": 1})])
    with graph._transactions._engine.begin() as connection:
        connection.exec_driver_sql(
            """UPDATE items SET data = '{"a": "x\\u0000"}' WHERE name = 'NUL'"""
        )

    assert [one.item for one in graph.lookup.search("$.a", "path").items] == ["Z"]


@pytest.mark.parametrize("path", ["$.a ? (", "price > 1", "", '$.a ? (@ like_regex "(")'])
def test_what_is_no_path_is_refused(graph, path):
    """A JSON path that cannot be read is an error that shows one."""
    with pytest.raises(OperationError, match="this is no JSON path"):
        graph.lookup.search(path, "path")


def test_an_unknown_kind_of_search_is_refused(graph):
    """There are three kinds of search."""
    with pytest.raises(OperationError, match="there are prefix, part, path"):
        graph.lookup.search("a", "regex")


def test_neighbours_are_who_made_an_item_and_what_it_made(graph, engine):
    """What an execution made is found though nothing indexes it, also when its maker was merged."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.do(*(CreateItem(f"NOISE{number}") for number in range(50)))
        crawl.done("P0", *(CreateItem(f"CHILD{number}") for number in range(3)))
        crawl.do(*(CreateItem(f"MORE{number}") for number in range(50)))
        crawl.do(MergeItem("P1", id="P0"))

    children = {f"CHILD{number}" for number in range(3)}
    assert {one.item for one in graph.lookup.neighbours("P0").created} == children
    assert {one.item for one in graph.lookup.neighbours("P1").created} == children
    assert graph.lookup.neighbours("CHILD1").created_by.item == "P1"
    assert graph.lookup.neighbours("CHILD1").created == []
    assert graph.lookup.neighbours("NOISE1").created_by is None
    some = graph.lookup.neighbours("P1", limit=2)
    assert (len(some.created), some.has_more) == (2, True)


def test_neighbours_miss_what_was_made_far_from_a_commit_of_their_maker(graph, engine, monkeypatch):
    """What was made beyond so many items, or a minute, of a commit is not found from its maker."""
    monkeypatch.setattr(neighbours, "MOST_LOOKED_AT", 20)
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.done("P0", CreateItem("CHILD"))
        crawl.do(CreateItem("SOON", created_by="P0"))
        crawl.do(*(CreateItem(f"NOISE{number}") for number in range(30)))
        crawl.do(CreateItem("FAR", created_by="P0"), CreateItem("OF L", created_by="L"))
    assert {one.item for one in graph.lookup.neighbours("P0").created} == {"CHILD", "SOON"}
    assert graph.lookup.neighbours("FAR").created_by.item == "P0"
    assert graph.lookup.neighbours("OF L").created_by.item == "L"
    assert graph.lookup.neighbours("L") == (None, [], False)  # no execution of it was committed

    monkeypatch.undo()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE items SET created_at = created_at + interval '61 s' WHERE name = 'SOON'"
        )
    assert {one.item for one in graph.lookup.neighbours("P0").created} == {"CHILD", "FAR"}


def test_nice_moves_outstanding_work(graph):
    """A lower number lets an item have its turn earlier, and None as its task says."""
    graph.set_nice("P4", -1)
    assert next(iter(graph.worklist())).item == "P4"
    graph.set_nice("P4", None)
    assert next(iter(graph.worklist())).item == "P0"
    with pytest.raises(OperationError, match="32 bits"):
        graph.set_nice("P4", 2**40)
    with pytest.raises(NotFoundError):
        graph.set_nice("P9", 1)


def test_crawls_are_seen_from_above(graph, engine):
    """Each crawl has its state and its numbers; they come by name."""
    with engine.begin() as connection:
        graphs.Crawl(connection, "another").do(CreateItem("A"))
        connection.exec_driver_sql(
            "UPDATE processes SET stopped_at = now(), reason = 'shutdown', lease_until = now()"
        )
        connection.exec_driver_sql("UPDATE crawls SET run = 1 WHERE name = 'books'")
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at) "
            "SELECT id, 1, now() FROM crawls WHERE name = 'books'"
        )

    another, books = graph.crawls.overview()

    assert (another.crawl, another.state, another.items) == ("another", "never run", 1)
    assert (books.crawl, books.state, books.workers) == ("books", "interrupted", 0)
    assert (books.items, books.waiting, books.later, books.claimed) == (10, 6, 2, 1)
    assert (books.failures, books.held, books.reason) == (1, 1, "shutdown")
    assert [one.crawl for one in graph.crawls.overview(after="another")] == ["books"]
    assert graph.crawls.overview("books") == [books]
