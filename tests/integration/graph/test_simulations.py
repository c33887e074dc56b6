"""Simulations: what a changeset would do, in a transaction that is undone."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import pytest
from support import graphs

from scrapy_itemgraph import (
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    RenameItem,
    SetTTL,
    StoreResult,
    UpdateData,
)
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import simulated_changes
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.model.work import Outcome

DECLARED = {"parse": {"tags": ["page"], "ttl": "1d"}, "price": {"tags": ["page"]}}


@pytest.fixture
def crawl(connection):
    """Yield a crawl with two tasks; whatever a test simulates, all stays as it was."""
    return graphs.Crawl.of(connection, **DECLARED)


def rows(crawl):
    """Return what a simulation may not change."""
    names = ("items", "aliases", "tags", "results", "failures", "work", "tasks", "sweeps")
    return [sorted(map(str, crawl.rows(f"SELECT * FROM {name}"))) for name in names]


@contextmanager
def undone(crawl, found):
    """Undo what the block does, and note what it found."""
    before = rows(crawl)
    try:
        with crawl.connection.begin_nested():
            yield
    except simulated_changes.UndoneError as error:
        found.append(error.found)
    assert rows(crawl) == before


def code_of(crawl, declared=DECLARED, name=None):
    """Return what a start of the crawl's spider would register, by default in that crawl."""
    return simulated_changes.Code(
        crawl=name or crawl.name,
        spider=crawl.spider,
        tasks=tasks.discover(graphs.spider(**declared)),
        default_ttl=None,
        of_callback=lambda callback: tasks.of_callback(callback, {}),
        limits_of=lambda _: (),
        of_all=(),
    )


def simulate(crawl, name, *operations, declared=DECLARED, **fields):
    """Simulate that the task `parse` of an item ends with operations."""
    code = code_of(crawl, declared)
    plan = SimulationPlan(task="parse", item=name)
    found = []
    with undone(crawl, found):
        simulated_changes.look(crawl.connection, plan, code)
    changeset = graphs.changeset(found[0].claim, *operations, **fields)
    with undone(crawl, found):
        simulated_changes.simulate(
            crawl.connection, plan, code, changeset, met=(), worker_id=crawl.worker
        )
    return found[1]


def kinds(simulation):
    """Return what became of each item, by the id that it had or has."""
    return {(one.before or one.after).id: one.kind for one in simulation.changes}


def test_nothing_of_a_simulation_stays(crawl):
    """Merges, deletions and their like are compared, and undone (SRAP-36)."""
    crawl.work("A")
    crawl.item("B")
    crawl.item("C")

    simulation = simulate(crawl, "A", UpdateData({"n": 1}, id="C"), MergeItem(into="B"))

    assert kinds(simulation) == {"A": "merged", "B": "changed", "C": "changed"}
    (merged,) = [one for one in simulation.changes if one.kind == "merged"]
    assert merged.into == "B"
    assert kinds(simulate(crawl, "A", DeleteItem())) == {"A": "deleted"}
    assert kinds(simulate(crawl, "A", RenameItem(to="D"))) == {"A": "renamed"}


def test_work_is_what_refresh_makes(crawl):
    """What would be outstanding afterwards is shown; what somebody else has claimed is too."""
    crawl.work("A")
    crawl.claim()

    simulation = simulate(crawl, "A", SetTTL("1h"), Expire(task="price"))

    (change,) = simulation.changes
    assert simulation.applied.outcome is Outcome.OK
    assert list(change.before.work) == ["parse", "price"]
    assert list(change.after.work) == ["price"]
    parse = change.after.results["parse"]
    assert parse.expires_at - parse.completed_at == timedelta(hours=1)


def test_tasks_are_those_of_the_code(crawl):
    """A version and a task that no start has registered count, and stay unregistered."""
    crawl.done("A")
    newer = {**DECLARED, "parse": {**DECLARED["parse"], "version": "2"}, "new": {"tags": ["page"]}}

    (change,) = simulate(crawl, "A", UpdateData({"n": 1}), declared=newer).changes

    assert change.before.results["parse"].state == "stale"
    assert change.after.results["parse"].version == "2"
    assert list(change.before.work) == ["new", "parse", "price"]
    assert list(change.after.work) == ["new", "price"]


def test_an_operation_that_cannot_be_is_told(crawl):
    """The failure would hold the pair, and nothing else changes."""
    crawl.work("A")

    simulation = simulate(crawl, "A", UpdateData({"n": 1}), MergeItem(into="nobody"))

    assert simulation.applied.outcome is Outcome.FAILED
    assert simulation.applied.failed_at == 1
    (change,) = simulation.changes
    assert change.after.data == change.before.data
    assert change.after.results["parse"].state == "held"


def test_a_retry_waits(crawl):
    """Work that would be tried again has the moment from which on."""
    crawl.work("A")

    simulation = simulate(crawl, "A", outcome=Outcome.RETRY, delay=timedelta(minutes=1))

    (change,) = simulation.changes
    assert change.before.work["parse"].not_before is None
    assert change.after.work["parse"].not_before is not None


def test_an_item_that_does_not_exist_is_told_with_the_near_miss(crawl):
    """The line names an item that is nearly called so."""
    crawl.item("SHELF:1")

    with pytest.raises(NotFoundError, match="did you mean 'SHELF:1'"):
        simulate(crawl, "SHELF:2")


def test_what_is_given_is_there_before_and_needs_a_new_crawl(crawl):
    """Items and results are made in a crawl of their own, with the tasks of the code."""
    given = graphs.changeset(
        None, CreateItem("A", ["page"]), StoreResult({"n": 1}, id="A", task="price")
    ).operations
    plan = SimulationPlan(task="parse", item="A", given=given)
    code, found = code_of(crawl, name="new"), []

    simulated_changes.lay(crawl.connection, plan, code)
    with undone(crawl, found):
        simulated_changes.look(crawl.connection, plan, code)

    assert found[0].claim.item.tags == {"page": None}
    assert crawl.rows("SELECT metadata FROM results")[0].metadata == {"n": 1}
    with pytest.raises(OperationError, match="the crawl 'new' exists"):
        simulated_changes.lay(crawl.connection, plan, code)


def test_what_cannot_be_given_is_told(crawl):
    """An operation that cannot be carried out is named, as it is anywhere."""
    given = graphs.changeset(None, StoreResult({}, id="A", task="price")).operations
    plan = SimulationPlan(task="parse", item="A", given=given)

    with pytest.raises(OperationError, match="there is no item 'A'"):
        simulated_changes.lay(crawl.connection, plan, code_of(crawl, name="new"))


def test_a_plain_callback_is_registered_and_claimed(crawl):
    """Its task is that of a crawl, and so is the item that stores its request."""
    data = {"url": "https://a.example/", "request": {"callback": "parse_author"}}
    made = EnqueueRequest(id="REQ:1", tags=("callback:parse_author",), data=data)
    plan = SimulationPlan(task="parse_author", item="REQ:1", given=(made,))
    code, found = code_of(crawl, name="new"), []

    simulated_changes.lay(crawl.connection, plan, code)
    with undone(crawl, found):
        simulated_changes.look(crawl.connection, plan, code)

    assert (found[0].claim.task, found[0].claim.slot) == ("parse_author", "a.example")
    assert found[0].callbacks == {"parse_author"}


def test_an_item_that_another_crawl_has_is_told_with_that_crawl(connection, crawl):
    """The error names the crawl, its arguments, and the option that leads there."""
    other = graphs.Crawl(connection, "books:cat=a")
    other.register(**DECLARED)
    other.item("BOOK")
    connection.exec_driver_sql(
        f"""UPDATE crawls SET arguments = '{{"cat": "books"}}' WHERE id = {other.id}"""
    )

    with pytest.raises(NotFoundError) as error:
        simulate(crawl, "BOOK")

    assert f"the crawl {other.name} has it (spider arguments: -a cat=books)" in str(error.value)
