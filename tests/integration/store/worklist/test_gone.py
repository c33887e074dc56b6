"""Pages that are gone: held without a failure, and asked again when somebody has reason to."""

from __future__ import annotations

import pytest
from support import graphs, oracle

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import Expire, MergeItem, SetTTL, StoreResult
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.work import ErrorRecord, Outcome

NOT_FOUND = ErrorRecord(type="http 404", message="Ignoring non-200 response")


@pytest.fixture
def crawl(connection):
    """Return a crawl with one task."""
    return graphs.Crawl.of(connection)


def gone(crawl, name="A", task="parse", **fields):
    """Let a page turn out to be gone."""
    claim = crawl.claimed(name, task, **fields)
    return crawl.end(claim, outcome=Outcome.GONE, error=NOT_FOUND)


def test_a_page_that_is_gone_is_held_and_no_failure(crawl):
    """SRAP-18: it is not outstanding, no failure is open, and the attempt says what it was."""
    applied = gone(crawl)

    assert applied.outcome is Outcome.GONE
    assert crawl.state("A") == "gone"
    assert crawl.worklist() == []
    assert crawl.failures() == []
    assert crawl.attempts("A") == ["gone"]


def test_what_a_page_left_behind_stays_when_it_is_gone(crawl):
    """Metadata is kept; a failure that was open is superseded; other tasks wait for the page."""
    crawl.register(parse={"tags": ["page"]}, price={"tags": ["page"], "depends_on": ["parse"]})
    crawl.failed("A")
    crawl.do(StoreResult({"title": "A"}, id="A", task="parse"), Expire(id="A", task="parse"))

    gone(crawl)

    result = crawl.result("A")
    assert result.metadata == {"title": "A"}
    assert crawl.failures() == []
    assert crawl.worklist() == []


def test_neither_time_nor_a_version_frees_what_is_gone_for_ever(crawl):
    """Without a time to live it is never asked again by itself, and code does not change that."""
    gone(crawl)

    crawl.age(days=900)
    crawl.register(parse={"tags": ["page"], "version": "2", "retry_failed_on_version_bump": True})

    assert crawl.state("A") == "gone"
    assert crawl.worklist() == []


def test_a_time_to_live_has_it_asked_again(crawl):
    """The task's own, or one that the execution yields; what failed stays held all the same."""
    crawl.register(parse={"tags": ["page"], "ttl": "1d"})
    gone(crawl, "A")
    gone(crawl, "B")
    crawl.do(SetTTL("7d", id="B", task="parse"))
    crawl.failed("C")

    crawl.age(days=2)
    first = crawl.worklist()
    crawl.age(days=6)

    assert first == ["A parse"]
    assert crawl.worklist() == ["A parse", "B parse"]
    assert crawl.state("C") == "held"


def test_a_page_that_was_gone_and_is_back_is_as_any_other(crawl):
    """Expire has it asked; then it is fresh, or a failure like every other."""
    gone(crawl, "A")
    gone(crawl, "B")

    crawl.do(Expire(id="A"), Expire(id="B"))
    outstanding = crawl.worklist()
    crawl.done("A")
    crawl.failed("B")

    assert outstanding == ["A parse", "B parse"]
    assert (crawl.state("A"), crawl.state("B")) == ("fresh", "held")
    assert crawl.failures() == ["B"]


def test_what_is_expired_while_it_is_claimed_is_asked_again_though_it_was_gone(crawl):
    """SRAP-50: the Expire is the later word."""
    claim = crawl.claimed("A")
    crawl.do(Expire(id="A"))

    crawl.end(claim, outcome=Outcome.GONE, error=NOT_FOUND)

    assert crawl.worklist() == ["A parse"]


def test_a_merge_takes_along_that_a_page_is_gone(crawl):
    """The result that is kept keeps its state."""
    crawl.item("B")
    gone(crawl, "A")

    crawl.do(MergeItem(id="A", into="B"))

    assert crawl.state("B") == "gone"


def request(name, run, *, only_gone=False):
    """Return the operation of a link to a page."""
    return EnqueueRequest(
        id=name,
        tags=(tasks.callback_tag("parse"),),
        data={"url": f"http://{graphs.SLOT}/{name}", "request": {}},
        again=run,
        only_gone=only_gone,
    )


def test_a_link_in_a_later_run_has_it_asked_again(crawl):
    """Not one in the same run; of an incremental callback only what was gone is asked again."""
    crawl.register(callbacks={"parse": {}})
    crawl.do(*(request(name, None) for name in "ABC"))
    for name in "AB":
        gone(crawl, name)
    crawl.done("C")
    crawl.do(request("A", 0))
    same_run = crawl.worklist()

    crawl.do(request("A", 1), request("B", 1, only_gone=True), request("C", 1, only_gone=True))

    assert same_run == []
    assert crawl.worklist() == ["A parse", "B parse"]
    assert crawl.state("C") == "fresh"


@pytest.mark.server
def test_people_see_what_is_gone_and_have_it_asked_again(engine):
    """It is counted and listed apart from what is held, explained, and freed of one task or all."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(parse={"tags": ["page"], "ttl": "1d"}, price={"tags": ["page"]})
        gone(crawl, "A")
        gone(crawl, "A", "price")
        crawl.failed("B")
    graph = ItemGraph(engine, "books")
    states = {one["name"]: (one["held"], one["gone"]) for one in graph.status()["tasks"]}
    (overview,) = graph.crawls.overview()
    listed = [(one.item, one.task) for one in graph.lookup.work(state="gone").rows]
    held = [(one.item, one.task) for one in graph.lookup.work(state="held").rows]
    parse, price = graph.explain("A")
    of_one = graph.failures.handle_gone("price")
    of_all = graph.failures.handle_gone()
    left = graph.failures.handle_gone()
    waiting = [(one.item, one.task) for one in graph.worklist()]
    with engine.connect() as connection:
        oracle.assert_worklist_is_true(connection, crawl.id)

    assert states == {"parse": (1, 1), "price": (0, 1)}
    assert (overview.held, overview.gone) == (1, 2)
    assert listed == [("A", "parse"), ("A", "price")]
    assert held == [("B", "parse")]
    assert "its page is gone; it is asked again in 1d" in parse.reasons[0].replace("23h 59m", "1d")
    assert "it is not asked again by itself" in price.reasons[0]
    assert (of_one, of_all, left) == (1, 1, 0)
    assert waiting == [("B", "price"), ("A", "price"), ("A", "parse")]
