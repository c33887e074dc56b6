"""Pages whose redirect led to a known page, while that is merged, renamed, deleted or failed."""

from __future__ import annotations

import pytest
from support import graphs, oracle

from scrapy_itemgraph import CreateAlias, DeleteItem, Expire, MergeItem, RenameItem
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.tasks import callback_tag
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.admin import crawl_changes

pytestmark = pytest.mark.server

LED = ["P1", "P2", "P3"]
TAGS = (callback_tag("parse"),)


def begun(connection) -> graphs.Crawl:
    """Return the crawl of the plain callback `parse`."""
    crawl = graphs.Crawl(connection)
    crawl.register(callbacks={"parse": {}})
    return crawl


def lead(crawl: graphs.Crawl, *names: str, to: str = "LOGIN") -> None:
    """End pages whose redirect led to a known page."""
    for name in names:
        claim = crawl.claimed(name, tags=TAGS)
        (applied,) = crawl.commit(graphs.changeset(claim, outcome=Outcome.KNOWN, led_to=to))
        assert applied.outcome is Outcome.KNOWN


@pytest.fixture
def graph(engine):
    """Yield the graph of a crawl in which three pages led to LOGIN; check its worklist then."""
    with engine.begin() as connection:
        crawl = begun(connection)
        crawl.done("LOGIN", tags=TAGS)
        crawl.work("HOME", tags=TAGS)
        lead(crawl, *LED)
    yield ItemGraph(engine, "books")
    with engine.connect() as connection:
        oracle.assert_worklist_is_true(connection, crawl.id)


def outstanding(graph: ItemGraph) -> list[str]:
    """Return the pages that wait, but HOME."""
    return sorted(one.item for one in graph.worklist() if one.item != "HOME")


def test_pages_that_led_to_a_known_page_are_done_until_they_are_brought_back(graph):
    """They are fresh, and `explain` says where they led; brought back once, they wait."""
    before = outstanding(graph)
    (told,) = graph.explain("P1", "parse")

    assert before == []
    assert (told.state, told.is_eligible) == ("fresh", False)
    assert "its redirect led to LOGIN, which the crawl has" in told.reasons[0]
    assert graph.failures.handle(led_to="LOGIN") == 3
    assert outstanding(graph) == LED
    assert graph.failures.handle(led_to="LOGIN") == 0


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (MergeItem("HOME", id="LOGIN"), "HOME"),
        (RenameItem("HOME", id="LOGIN", if_taken="merge"), "HOME"),
        (RenameItem("SIGNIN", id="LOGIN"), "SIGNIN"),
    ],
)
def test_where_pages_led_follows_merges_and_renames(graph, operation, name):
    """What led to the item that went leads to the one that stayed."""
    graph.apply([operation])

    assert graph.failures.handle(led_to=name) == 3
    assert set(outstanding(graph)) - {name} == set(LED)


def test_a_page_that_led_to_a_deleted_one_stays_done(graph):
    """`explain` says that it was deleted, and nothing brings the page back but its own expiry."""
    graph.apply([DeleteItem("LOGIN")])
    (told,) = graph.explain("P1", "parse")

    with pytest.raises(NotFoundError, match="LOGIN"):
        graph.failures.handle(led_to="LOGIN")
    assert outstanding(graph) == []
    assert "which was deleted since" in told.reasons[0]


def test_the_page_that_took_the_name_comes_back_too(graph, engine):
    """A page that has the name by its own redirect led there first, and may have failed by it."""
    with engine.begin() as connection:
        crawl = begun(connection)
        crawl.failed("P0", tags=TAGS)
        crawl.do(CreateAlias("WALL", to="P0"))
        lead(crawl, "P4", to="WALL")

    assert graph.failures.handle(led_to="P0") == 1
    assert outstanding(graph) == ["P4"]
    with engine.begin() as connection:
        lead(begun(connection), "P4", to="WALL")
    assert graph.failures.handle(led_to="WALL") == 2
    assert outstanding(graph) == ["P0", "P4"]
    assert graph.failures.list() == []


def test_what_led_to_a_page_comes_back_with_its_failure(graph, engine, monkeypatch):
    """It does so in steps; without a retry it stays done, and so does what led elsewhere."""
    monkeypatch.setattr(crawl_changes, "STEP", 2)
    with engine.begin() as connection:
        crawl = begun(connection)
        crawl.do(Expire(id="LOGIN", task="parse"))
        crawl.failed("LOGIN")
        lead(crawl, "P4", to="HOME")

    assert graph.failures.handle(retry=False) == 1
    assert outstanding(graph) == []
    graph.failures.unhandle()
    assert graph.failures.handle() == 4
    assert outstanding(graph) == ["LOGIN", *LED]


def test_a_failure_forgets_where_a_page_led(graph, engine):
    """A page that is fetched again and fails is held, and is not brought back with another one."""
    with engine.begin() as connection:
        crawl = begun(connection)
        crawl.do(Expire(id="P1", task="parse"))
        crawl.failed("P1")

    assert graph.failures.handle(led_to="LOGIN") == 2
    assert outstanding(graph) == ["P2", "P3"]
