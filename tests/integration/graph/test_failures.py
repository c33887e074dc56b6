"""Failures in groups of those that are alike, handled and put back."""

from __future__ import annotations

import pytest
from support import graphs, oracle
from support.graphs import ERROR

from scrapy_itemgraph import CreateItem, Expire, MergeItem, StoreResult
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store import open_failures
from scrapy_itemgraph.store.admin import counting, crawl_changes, failure_groups

pytestmark = pytest.mark.server

TASKS = {"parse": {"tags": ["page"]}, "index": {"tags": ["page"]}}


def error(message, kind="ValueError"):
    """Return an error."""
    return ErrorRecord(type=kind, message=message, place="shop.spiders.Shop.parse")


@pytest.fixture
def graph(engine):
    """Yield a graph with three groups of failures, one of them refusals."""
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection, **TASKS)
        crawl.do(*(CreateItem(f"P{number}", ["page"]) for number in range(6)))
        for number in range(4):
            claim = crawl.claimed(f"P{number}")
            crawl.end(claim, outcome=Outcome.FAILED, error=error(f"no price in row {number}"))
        crawl.end(crawl.claimed("P4"), outcome=Outcome.FAILED, error=error("no title"))
        crawl.end(crawl.claimed("P5"), outcome=Outcome.REFUSED, error=error("", "offsite"))
        crawl.failed("P0", "index")
        other = graphs.Crawl(connection, "other")
        other.register(**TASKS)
        other.failed("X")
    yield ItemGraph(engine, "books")
    with engine.connect() as connection:
        oracle.assert_worklist_is_true(connection, crawl.id)


def shown(graph):
    """Return the groups: the task, the example's message, how many."""
    return [(one.task, one.example.error["message"], one.count) for one in graph.failures.groups()]


def test_failures_that_are_alike_are_one_group(graph):
    """The latest group comes first, each with its last failure; refusals are apart."""
    assert shown(graph) == [
        ("index", ERROR.message, 1),
        ("parse", "", 1),
        ("parse", "no title", 1),
        ("parse", "no price in row 3", 4),
    ]
    last = graph.failures.groups()[-1]
    assert (last.is_estimated, last.is_refusal) == (False, False)
    assert last.first_at <= last.last_at
    assert [one.item for one in graph.failures.list(group=last.group)] == ["P0", "P1", "P2", "P3"]
    first = graph.failures.list(group=last.group, limit=1)
    assert [
        one.item for one in graph.failures.list(group=last.group, after=first[0].id, limit=2)
    ] == [
        "P1",
        "P2",
    ]
    assert graph.failures.list(task="index", group=last.group) == []
    (other,) = graph.of("other").failures.groups()
    assert other.example.item == "X"


def test_it_is_told_when_failures_of_groups_were(graph, monkeypatch):
    """The newest of each group that is asked for, in seconds, the latest first."""
    *_, last = graph.failures.groups()
    monkeypatch.setattr(failure_groups, "MOST_TIMES", 3)

    times = graph.failures.times([last.group])

    assert list(times) == [last.group]
    assert times[last.group][0] == int(last.last_at.timestamp())
    assert sorted(times[last.group], reverse=True) == times[last.group]
    assert len(times[last.group]) == 3
    assert graph.failures.times([]) == {}


def test_failures_of_an_item_are_found_by_it(graph):
    """Each task has its open failure; what was handled is none."""
    (index,) = graph.failures.list(task="index")
    first = graph.failures.list(task="parse")[0]

    assert graph.failures.of_item("P0") == {"parse": first.id, "index": index.id}
    graph.failures.handle(first.id)
    assert graph.failures.of_item("P0") == {"index": index.id}
    with pytest.raises(NotFoundError):
        graph.failures.of_item("nobody")


def test_many_alike_are_an_estimate(graph, monkeypatch):
    """A group of more than can be counted quickly is an estimate, and says so."""
    monkeypatch.setattr(counting, "MOST", 3)
    assert [one.is_estimated for one in graph.failures.groups()] == [False, False, False, True]


def test_a_group_is_handled_and_put_back(graph):
    """Handling lets the pairs run again; undoing it makes all as it was."""
    before, worklist = shown(graph), {(row.item, row.task) for row in graph.worklist()}
    group = graph.failures.groups()[-1].group
    since = graph.database.now()

    assert graph.failures.handle(group=group) == 4
    assert len(graph.failures.groups()) == 3
    assert {(row.item, row.task) for row in graph.worklist()} - worklist == {
        (f"P{number}", "parse") for number in range(4)
    }

    assert graph.failures.unhandle(since, group=group) == 4
    assert shown(graph) == before
    assert {(row.item, row.task) for row in graph.worklist()} == worklist


def test_what_has_run_or_runs_is_not_put_back(graph, engine):
    """Undoing leaves alone what was done, or claimed, since it was handled."""
    since = graph.database.now()
    assert graph.failures.handle() == 7
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.done("P0")
        crawl.claim_pair("P1")
        crawl.failed("P2")

    assert graph.failures.unhandle(since) == 4

    assert {(one.item, one.task) for one in graph.failures.list()} == {
        ("P2", "parse"),
        ("P3", "parse"),
        ("P4", "parse"),
        ("P5", "parse"),
        ("P0", "index"),
    }
    assert graph.failures.unhandle(since) == 0


def test_what_was_stored_or_expired_since_is_not_put_back(graph):
    """A result that somebody stored stays good, and who expired a pair wants it to run."""
    since = graph.database.now()
    graph.failures.handle()
    graph.apply([StoreResult({"n": 1}, id="P0", task="parse"), Expire(id="P1", task="parse")])

    assert graph.failures.unhandle(since) == 5

    left = {(one.item, one.task) for one in graph.failures.list()}
    assert left.isdisjoint({("P0", "parse"), ("P1", "parse")})
    states = {row.task: row.state for row in graph.results("P0")}
    assert states["parse"] == "fresh"
    assert ("P1", "parse") in {(row.item, row.task) for row in graph.worklist()}


def test_only_what_was_asked_for_is_put_back(graph):
    """Undoing may be of one failure, of a task, or of what was handled since a moment."""
    first = graph.failures.list()[0]
    graph.failures.handle(task="index")
    since = graph.database.now()
    graph.failures.handle(task="parse", retry=False)

    assert graph.failures.unhandle(since, failure=first.id) == 1
    assert graph.failures.unhandle(since, task="index") == 0
    assert graph.failures.unhandle(since, task="parse") == 5
    with pytest.raises(NotFoundError):
        graph.failures.unhandle(since, task="pars")


def test_a_good_result_that_a_merge_brought_since_is_not_held(graph, engine):
    """The failure was of the result that went."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.done("good")
    since = graph.database.now()
    graph.failures.handle()
    graph.apply([MergeItem(into="P0", id="good")])

    assert graph.failures.unhandle(since) == 6

    assert ("P0", "parse") not in {(one.item, one.task) for one in graph.failures.list()}
    states = {row.task: row.state for row in graph.results("P0")}
    assert states["parse"] == "fresh"


@pytest.mark.parametrize("is_of_group", [True, False])
def test_what_fails_while_failures_are_handled_is_left(graph, monkeypatch, is_of_group):
    """A page that fails again while a step after the first one runs is not handled unseen."""
    monkeypatch.setattr(crawl_changes, "STEP", 1)
    group = graph.failures.groups()[-1].group if is_of_group else None
    look, steps = open_failures.look, []

    def and_one_fails_again(connection, *args, **kwargs):
        steps.append(kwargs)
        if len(steps) == 2:
            crawl = graphs.Crawl(connection)
            crawl.register(**TASKS)
            crawl.end(crawl.claimed("P0"), outcome=Outcome.FAILED, error=error("no price in row 0"))
        return look(connection, *args, **kwargs)

    monkeypatch.setattr(open_failures, "look", and_one_fails_again)

    assert graph.failures.handle(group=group) == (4 if is_of_group else 7)
    monkeypatch.setattr(open_failures, "look", look)
    left = [(one.item, one.task) for one in graph.failures.list()]
    assert left[-1] == ("P0", "parse")
    assert len(left) == (4 if is_of_group else 1)
