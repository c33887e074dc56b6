"""Random histories on the model and on PostgreSQL: the same graph and worklist after each step."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from model.both import Both
from model.item_graph import Task

from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.store.registry import sweeps

pytestmark = pytest.mark.server

# 0 in `make test`: a few histories, always the same. `make model` sets them.
EXAMPLES = int(os.environ.get("ITEMGRAPH_TEST_MODEL", "0"))
STEPS = int(os.environ.get("ITEMGRAPH_TEST_MODEL_STEPS", "30"))
SHRINKS = os.environ.get("ITEMGRAPH_TEST_MODEL_SHRINKS", "1") == "1"
SEED = int(os.environ.get("ITEMGRAPH_TEST_MODEL_SEED", "0"))

PROFILE = settings(
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    max_examples=EXAMPLES or 40,
    stateful_step_count=STEPS,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink] if SHRINKS else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)

# What the code declares, start after start.
STARTS = (
    {
        "parse": Task(("page",), ttl=24),
        "review": Task(("page",), depends_on=("parse",)),
        "index": Task(("list", "page"), ttl=2, nice=5),
    },
    {
        "parse": Task(("page",), ttl=24, version="2"),
        "review": Task(("page", "list"), depends_on=("parse",), version="2", max_failures=1),
        "index": Task(("list",), nice=-5, slot="elsewhere.example"),
    },
    {
        "parse": Task(("page", "list"), version="3", retry_failed_on_version_bump=True),
        "review": Task(("page",), depends_on=("parse", "index"), max_failures=2, ttl=6),
        "index": Task(("page",), exclusive="item"),
    },
    {
        "parse": Task(("page",), version="2", ttl=3),
        "late": Task(("list",), depends_on=("parse",), download=False),
    },
)
# Those that do not let go of failures, which may be made by whoever commits meanwhile.
GENTLE_STARTS = [0, 1, 3]
TASKS = ["parse", "review", "index"]


def joined(into: dict[str, Any], gone: dict[str, Any]) -> dict[str, Any]:
    """Merge two items' data or metadata."""
    return {**gone, **into, "joined": len(into) + len(gone)}


def counted(old: dict[str, Any]) -> dict[str, Any]:
    """Count how often this ran."""
    return {**old, "count": old.get("count", 0) + 1}


def emptied(*_: Any) -> dict[str, Any]:
    """Forget all that was there."""
    return {}


def failing(*_: Any) -> Any:
    """Raise, as what a user wrote might."""
    raise KeyError("price")


names = st.sampled_from(["A", "B", "C", "D", "a", "b", "c"])
tags = st.sampled_from(["page", "page", "list", "other"])
tag_lists = st.lists(tags, max_size=2, unique=True) | st.fixed_dictionaries(
    {}, optional={"page": st.integers(0, 2), "list": st.none(), "other": st.just([1])}
)
data = st.sampled_from(
    [
        {"url": "http://a.example/1", "n": 1},
        {"url": "http://b.example/2", "m": 1},
        {"n": 2, "m": 2},
        {"url": "http://a.example/1", "download_slot": "own"},
        {},
    ]
)
task_names = st.sampled_from(TASKS)
some_task = st.none() | task_names
changes = st.sampled_from(
    [{"n": 3}, {"m": 4}, {"n": 5, "m": 5}, {"url": "http://c.example/"}, counted, emptied, failing]
)
mergers = st.sampled_from([None] * 6 + [joined, emptied, failing])
ttls = st.sampled_from(["1h", "5h", "72h", "never", None])
waits = st.none() | st.sampled_from([timedelta(hours=3), timedelta(hours=30)])
rarely = st.sampled_from([False] * 5 + [True])


def operations(target: st.SearchStrategy[str | None]) -> st.SearchStrategy[ops.Operation]:
    """Every operation, on items that `target` draws; None is the item under work."""
    merge_metadata = st.dictionaries(task_names, st.sampled_from([joined, emptied]), max_size=1)
    return st.one_of(
        st.builds(
            ops.CreateItem,
            names,
            tag_lists,
            data,
            aliases=st.lists(names, max_size=2),
            created_by=st.none() | names,
            nice=st.none() | st.integers(-1, 1),
            not_before=waits,
            fail_if_exists=rarely,
            merge_tags=st.booleans(),
        ),
        st.builds(
            ops.RenameItem,
            names,
            id=target,
            if_taken=st.sampled_from(["error", "merge", "merge"]),
            merge=mergers,
            merge_metadata=merge_metadata,
        ),
        st.builds(ops.MergeItem, names, id=target, merge=mergers, merge_metadata=merge_metadata),
        st.builds(ops.DeleteItem, target, forget=st.sampled_from([True, True, False])),
        st.builds(ops.CreateAlias, names, to=target, fail_if_exists=rarely),
        st.builds(ops.DeleteAlias, names),
        st.builds(ops.AddTag, tags, st.integers(0, 2), id=target),
        st.builds(ops.RemoveTag, tags, id=target),
        st.builds(ops.UpdateData, changes, id=target, upsert=st.booleans()),
        st.builds(ops.UpdateMetadata, changes, id=target, task=task_names),
        st.builds(ops.StoreResult, st.just({"stored": 1}), id=names, task=task_names),
        st.builds(ops.Expire, id=target, task=some_task),
        st.builds(ops.SetTTL, ttls, id=target, task=some_task),
    )


additions = st.lists(
    st.builds(ops.CreateItem, names, tag_lists, data, nice=st.none() | st.just(2)),
    min_size=1,
    max_size=3,
)
# Few at once, for one that cannot be carried out undoes the others.
outside = st.lists(operations(names), min_size=1, max_size=2)
inside = st.lists(operations(st.none() | names), max_size=2)
endings = st.sampled_from(["ok"] * 6 + ["failed"] * 2 + ["retry", "refused", "released"])
ends = st.fixed_dictionaries(
    {
        "operations": inside.map(tuple),
        "outcome": endings,
        "allow_failure": st.booleans(),
        "delay": st.sampled_from([0.0, 3.0]),
    }
)
acts = st.fixed_dictionaries({"operations": outside.map(tuple), "outcome": st.just("outside")})
batches = st.lists(st.one_of(ends, ends, ends, acts), min_size=1, max_size=4)
periods = st.sampled_from([0.5, 1.5, 5.5, 30.5])


class AnyHistory(RuleBasedStateMachine):
    """A crawl to which anything happens, twice; `connection` is set by the test."""

    connection: Any

    def __init__(self) -> None:
        super().__init__()
        self.transaction = self.connection.begin()
        self.both = Both(self.connection, STARTS[0])
        self.both.apply(*(ops.CreateItem(name, ["page"]) for name in "ABCD"))

    def teardown(self) -> None:
        self.transaction.rollback()

    @rule(given=outside)
    def act_from_outside(self, given: list[ops.Operation]) -> None:
        self.both.apply(*given)

    @rule(given=additions)
    def add_in_bulk(self, given: list[ops.CreateItem]) -> None:
        self.both.add(*given)

    @rule(limit=st.integers(1, 5), alone=rarely)
    def claim(self, limit: int, alone: bool) -> None:
        self.both.claim(1 if alone else limit, alone=alone)

    @rule(outcomes=st.lists(endings, min_size=1, max_size=4), allowed=st.booleans())
    def run_some(self, outcomes: list[str], allowed: bool) -> None:
        claims = self.both.claim(len(outcomes))
        self.both.end(
            [
                (claim, {"outcome": outcome, "allow_failure": allowed})
                for claim, outcome in zip(claims, outcomes, strict=False)
            ]
        )

    @rule()
    def run_all(self) -> None:
        """Run what there is, round after round, as a crawl that nothing disturbs."""
        for _ in range(3):
            self.both.end([(claim, {}) for claim in self.both.claim(1000)])

    @rule(batch=batches, newest=st.booleans())
    def commit_a_batch(self, batch: list[dict[str, Any]], newest: bool) -> None:
        """End some claims, living or lost, and act from outside, all at once."""
        claims = self.both.claims
        if newest:
            claims.reverse()
        if not claims:
            self.both.claim(len(batch))
        ends = []
        for one in batch:
            if one["outcome"] == "outside":
                ends.append((None, {"operations": one["operations"]}))
            elif claims:
                ends.append((claims.pop(0)[0], one))
        self.both.end(ends)

    @rule(number=st.integers(1, 3))
    def release(self, number: int) -> None:
        given, self.both.claims = self.both.claims[:number], self.both.claims[number:]
        self.both.release(*(claim for claim, _ in given))

    @rule(limit=st.integers(1, 2), alone=st.booleans())
    def die(self, limit: int, alone: bool) -> None:
        self.both.die(1 if alone else limit, alone=alone)

    @rule(hours=periods, staged=st.booleans())
    def let_time_pass(self, hours: float, staged: bool) -> None:
        self.both.let_pass(hours, staged=staged)

    @rule(batch=batches, hours=periods)
    def commit_before_time_is_noticed(self, batch: list[dict[str, Any]], hours: float) -> None:
        if self.both.claims:
            self.both.let_pass(hours, staged=False)
            self.commit_a_batch(batch, newest=False)

    @rule(start=st.integers(0, len(STARTS) - 1))
    def start_anew(self, start: int) -> None:
        self.both.start(STARTS[start])
        self.both.sweep()

    @rule(start=st.sampled_from(GENTLE_STARTS), batch=batches)
    def commit_amid_a_sweep(self, start: int, batch: list[dict[str, Any]]) -> None:
        if not self.both.claims:
            return  # what may be claimed amid a sweep is not said
        self.both.start(STARTS[start])
        self.commit_a_batch(batch, newest=True)
        self.both.sweep()

    @rule(old=tags, new=tags)
    def rename_a_tag(self, old: str, new: str) -> None:
        self.both.rename_tag(old, new)
        self.both.sweep()

    @rule(task=some_task, retry=st.booleans())
    def handle(self, task: str | None, retry: bool) -> None:
        self.both.handle(task, retry=retry)

    @rule(task=task_names, enabled=st.booleans())
    def switch(self, task: str, enabled: bool) -> None:
        self.both.switch(task, enabled=enabled)

    @rule(task=task_names)
    def recompute_ttl(self, task: str) -> None:
        self.both.recompute_ttl(task)
        self.both.sweep()

    @invariant()
    def they_are_the_same(self) -> None:
        self.both.check()


def test_any_history_leaves_what_the_requirements_say(shared_engine, monkeypatch):
    """After each step of random histories the graph and the worklist are those of the model."""
    monkeypatch.setattr(sweeps, "SWEEP_STEP", 2)
    with shared_engine.connect() as connection:
        machine = type("AnyHistoryHere", (AnyHistory,), {"connection": connection})
        if EXAMPLES:
            machine = seed(SEED)(machine)

        run_state_machine_as_test(machine, settings=PROFILE)
