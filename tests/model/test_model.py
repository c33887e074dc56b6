"""Random histories on the model and on PostgreSQL: the same graph and worklist after each step."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test
from model.any_history import AnyHistory
from model.histories import EXAMPLES, PROFILE, SEED
from model.two_at_once import TwoAtOnce
from support.races import actors

from scrapy_itemgraph.store.registry import item_sweeps

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.server


def _folders(path: Path) -> Any:
    """Return folders for the contents of each history."""
    return (path / str(number) for number in itertools.count())


def test_any_history_leaves_what_the_requirements_say(shared_engine, monkeypatch, tmp_path):
    """After each step of random histories the graph and the worklist are those of the model."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    with shared_engine.connect() as connection:
        given = {"connection": connection, "folders": _folders(tmp_path)}
        machine = type("AnyHistoryHere", (AnyHistory,), given)
        if EXAMPLES:
            machine = seed(SEED)(machine)

        run_state_machine_as_test(machine, settings=PROFILE)


def test_two_transactions_at_once_leave_what_one_after_the_other_would(
    engine, monkeypatch, tmp_path
):
    """Whatever the interleaving of two transactions, the outcome is that of one of their orders."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    with engine.connect() as connection, actors(engine, 2) as two:
        given = {"connection": connection, "folders": _folders(tmp_path), "actors": two}
        machine = type("TwoAtOnceHere", (TwoAtOnce,), given)
        if EXAMPLES:
            machine = seed(SEED)(machine)
        histories = max(1, PROFILE.max_examples // 4)

        run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=histories))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("handle", ["no tag", "another website"]),
        ("unhandle", ["expired", "stored"]),
        ("sweep", ["no tag", "deleted"]),
    ],
)
def test_who_acts_on_an_item_waits_for_whoever_changes_it(
    engine, monkeypatch, tmp_path, kind, changes
):
    """What people and sweeps do of an item is done before or after it is changed, not amid that."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    with engine.connect() as connection, actors(engine, 2) as two:
        given = {"connection": connection, "folders": _folders(tmp_path), "actors": two}
        machine = type("TwoAtOnceHere", (TwoAtOnce,), given)
        for change, is_first in itertools.product(changes, [False, True]):
            history = machine()
            history.begin(pasts=[["ok"], [], ["failed"], ["ok", "ok"]], nices=[None, None, -1, 1])
            history.act_amid_a_change_of_its_item(kind, change, is_first=is_first)
            history.they_are_the_same()
            history.teardown()
