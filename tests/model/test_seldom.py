"""Histories that chance seldom makes, step by step, on the model and on PostgreSQL."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from model import overlap_acts
from model.any_history import AnyHistory
from model.histories import STARTS
from model.operations import Enqueue
from model.overlaps import Collect, Commit, Overlap
from model.two_at_once import TwoAtOnce
from support.races import actors

from scrapy_itemgraph.model import operations as ops

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

NEW = [[], [], [], []]  # no item has a past


@pytest.fixture
def history(shared_engine, tmp_path) -> Iterator[AnyHistory]:
    """Yield a history of one transaction after another, with the items A to D, as new as can be."""
    with shared_engine.connect() as connection:
        folders = (tmp_path / str(number) for number in itertools.count())
        given = {"connection": connection, "folders": folders}
        machine = type("AnyHistoryHere", (AnyHistory,), given)()
        machine.begin(pasts=NEW, nices=[None] * 4)
        yield machine
        machine.teardown()


@pytest.fixture
def overlapping(engine, tmp_path) -> Iterator[TwoAtOnce]:
    """Yield a history of transactions that overlap, with the items A to D, as new as can be."""
    with engine.connect() as connection, actors(engine, 2) as two:
        folders = (tmp_path / str(number) for number in itertools.count())
        given = {"connection": connection, "folders": folders, "actors": two}
        machine = type("TwoAtOnceHere", (TwoAtOnce,), given)()
        machine.begin(pasts=NEW, nices=[None] * 4)
        yield machine
        machine.teardown()


def test_a_try_that_ended_ends_a_row_of_deaths(history):
    """SRAP-27: deaths alone count in a row: a try between them begins the row anew."""
    both = history.both
    both.apply(*(ops.DeleteItem(name) for name in "BCD"))
    both.apply(ops.AddTag("list", 0, id="A"), ops.RemoveTag("page", id="A"))
    for alone in False, False, True, True:
        both.die(1, alone=alone)
        history.they_are_the_same()
    (claim,) = both.claim(1, alone=True)
    both.end([(claim, {"outcome": "retry"})])
    history.they_are_the_same()
    both.die(1, alone=True)
    history.they_are_the_same()


def test_refusals_do_not_stop_a_task(history):
    """SRAP-28: `max_failures` counts failures, not what a website refused."""
    both = history.both
    both.start(STARTS[1])
    both.sweep()
    history.run_all()
    both.apply(*(ops.Expire(id=name, task="review") for name in "ABCD"))
    first, *others = both.claim(1000)
    assert first.task == "review"
    both.end([(first, {"outcome": "refused"}), *((one, {"outcome": "released"}) for one in others)])
    assert both.claim(1000)
    history.they_are_the_same()


def test_a_time_to_live_that_is_over_when_it_is_set_is_noticed_at_once(history):
    """SRAP-51: a time to live shorter than a result's age makes the result stale at once."""
    both = history.both
    history.run_all()
    both.let_pass(10, staged=True)
    history.they_are_the_same()
    both.apply(ops.SetTTL("1h", id="A", task="review"))
    both.compare()  # before anybody has noticed what is due


def test_a_version_bump_lets_go_of_failures_without_the_tag(history):
    """SRAP-20: what failed is let go of also where no tag calls for the task any more."""
    both = history.both
    claims = both.claim(1000)
    both.end([(claim, {"outcome": "failed"}) for claim in claims])
    both.apply(*(ops.RemoveTag("page", id=name) for name in "ABCD"))
    both.start(STARTS[2])
    both.sweep()
    history.they_are_the_same()


@pytest.mark.parametrize("again", ["in each run", "if gone", "never"])
@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("between", [(), (ops.CreateItem("new", ["page"]),)])
def test_links_free_what_a_spider_left_as_it_closed_its_run(history, again, continues, between):
    """In the next run and in the same one, if work has opened that again; a ttl is not left."""
    both = history.both
    history.run_all()
    pages = [
        Enqueue("R", "read", "http://r.example/2"),
        Enqueue("S", "follow", "http://r.example/3"),
    ]
    links = [replace(pages[0], again=again), replace(pages[1], again=again)]
    history.close_the_run(
        pages=tuple(pages), ends=[], between=between, continues=continues, links=()
    )
    assert [item.name for item in both.model.items.values() if "left" in item.holds.values()] == [
        "R"
    ]
    history.they_are_the_same()
    both.apply(*links)
    history.they_are_the_same()
    is_left = any("left" in item.holds.values() for item in both.model.items.values())
    assert is_left == (again == "never")
    history.run_all()


@pytest.mark.parametrize("moment", ["its commit", "it attaches"])
def test_contents_that_are_named_are_not_collected(overlapping, moment):
    """Contents of a commit that are old and had no item until then stay, while it goes on."""
    both = overlapping.both
    both.apply(ops.AttachBlob("page", b"old", id="A"))
    both.apply(ops.DetachBlob("page", id="A"))
    both.let_pass(30.5, staged=True)
    attach = Commit(both, [(None, {"operations": (ops.AttachBlob("page", b"old", id="A"),)})])
    both.let_pass(30.5, staged=True)
    Overlap(both, overlapping.actors).run(attach, Collect(both), moment)
    both.note_collected()
    overlapping.they_are_the_same()


@pytest.mark.parametrize(
    "moved",
    [
        (ops.DeleteAlias("a"), ops.CreateAlias("a", to="B")),
        (ops.MergeItem("B", id="a"),),
        (ops.DeleteItem("a"), ops.CreateItem("a")),
    ],
    ids=["to another item", "by a merge", "to a new item"],
)
@pytest.mark.parametrize("moment", ["its commit", "it locks items"])
def test_a_name_that_moves_meanwhile_is_resolved_anew(overlapping, moment, moved):
    """What is meant for an item goes to the one that has its name when it is locked."""
    both = overlapping.both
    both.apply(ops.CreateAlias("a", to="A"))
    update = Commit(both, [(None, {"operations": (ops.UpdateData({"n": 3}, id="a"),)})])
    move = Commit(both, [(None, {"operations": moved})])
    Overlap(both, overlapping.actors).run(update, move, moment)
    overlapping.they_are_the_same()


@pytest.mark.parametrize("moment", ["its commit", "it locks claims", "it locks what it concerns"])
def test_a_redirect_beside_the_deletion_of_its_item(overlapping, moment):
    """A redirect takes no name for an item that somebody deletes meanwhile."""
    both = overlapping.both
    both.claim(1)
    ((claim, _),) = both.claims
    redirect = overlap_acts.redirect(both, claim, "x")
    delete = Commit(both, [(None, {"operations": (ops.DeleteItem(claim.item.id),)})])
    Overlap(both, overlapping.actors).run(redirect, delete, moment)
    overlapping.they_are_the_same()
