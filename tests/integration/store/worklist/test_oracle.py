"""Whatever happens to a graph, its worklist is what the notes say: invariants 1 and 2."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import graphs
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.registry import sweeps
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims

pytestmark = pytest.mark.server

# 1 in `make test`; more looks further, and not at the same examples every time.
DEPTH = int(os.environ.get("ITEMGRAPH_TEST_DEPTH", "1"))

PROFILE = settings(
    derandomize=DEPTH == 1,
    database=None,
    deadline=None,
    max_examples=30 * DEPTH,
    stateful_step_count=30,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

# What the code declares, start after start: versions, tags, dependencies, slots and nice change.
STARTS = (
    {
        "parse": {"tags": ["page"], "ttl": "1d"},
        "review": {"tags": ["page"], "depends_on": ["parse"]},
        "index": {"tags": ["list", "page"], "ttl": "2h", "nice": 5},
    },
    {
        "parse": {"tags": ["page"], "ttl": "1d", "version": "2"},
        "review": {"tags": ["page", "list"], "depends_on": ["parse"], "version": "2"},
        "index": {"tags": ["list"], "nice": -5, "slot": "elsewhere.example"},
    },
    {
        "parse": {"tags": ["page", "list"], "version": "3", "retry_failed_on_version_bump": True},
        "review": {"tags": ["page"], "depends_on": ["parse", "index"], "max_failures": 1},
        "index": {"tags": ["page"], "exclusive": "item"},
    },
    {
        "parse": {"tags": ["page"], "version": "2"},
        "late": {"tags": ["list"], "depends_on": ["parse"], "download": False},
    },
)
TASKS = ["parse", "review", "index"]


def a_failing_merge(*_: Any) -> Any:
    """Raise, as a merger of a user might."""
    raise KeyError("price")


names = st.sampled_from(["A", "B", "C", "D", "a", "b"])
tags = st.sampled_from(["page", "list", "other"])
tag_lists = st.lists(tags, max_size=2, unique=True)
data = st.sampled_from(
    [{"url": "http://a.example/1"}, {"url": "http://b.example/2", "n": 1}, {"n": 2}]
)
task_names = st.sampled_from(TASKS)
some_task = st.none() | task_names
merges = st.sampled_from([{"n": 3}, {"url": "http://c.example/"}, a_failing_merge])
ttls = st.sampled_from(["1h", "3d", "never", None])
waits = st.none() | st.just(timedelta(hours=3))


def operations(target: st.SearchStrategy[str | None]) -> st.SearchStrategy[ops.Operation]:
    """Every operation, on items that `target` draws; None is the item under work."""
    return st.one_of(
        st.builds(
            ops.CreateItem,
            names,
            tag_lists,
            data,
            aliases=st.lists(names, max_size=2),
            nice=st.none() | st.integers(-1, 1),
            not_before=waits,
            fail_if_exists=st.sampled_from([False, False, False, True]),
            merge_tags=st.booleans(),
        ),
        st.builds(
            ops.RenameItem, names, id=target, if_taken=st.sampled_from(["error", "merge", "merge"])
        ),
        st.builds(ops.MergeItem, names, id=target),
        st.builds(ops.DeleteItem, target, forget=st.sampled_from([True, True, False])),
        st.builds(ops.CreateAlias, names, to=target, fail_if_exists=st.booleans()),
        st.builds(ops.DeleteAlias, names),
        st.builds(ops.AddTag, tags, st.none() | st.just(1), id=target),
        st.builds(ops.RemoveTag, tags, id=target),
        st.builds(ops.UpdateData, merges, id=target, upsert=st.booleans()),
        st.builds(ops.UpdateMetadata, merges, id=target, task=task_names),
        st.builds(ops.StoreResult, st.just({"stored": 1}), id=names, task=task_names),
        st.builds(ops.Expire, id=target, task=some_task),
        st.builds(ops.SetTTL, ttls, id=target, task=some_task),
    )


outside = st.lists(operations(names), min_size=1, max_size=4)
inside = st.lists(operations(st.none() | names), max_size=3)
endings = st.sampled_from(
    [Outcome.OK] * 6
    + [Outcome.FAILED, Outcome.FAILED, Outcome.RETRY]
    + [Outcome.REFUSED, Outcome.RELEASED]
)


class AnyCrawl(RuleBasedStateMachine):
    """A crawl to which anything happens; `connection` is set by the test."""

    connection: Any

    def __init__(self) -> None:
        super().__init__()
        self.transaction = self.connection.begin()
        self.crawl = graphs.Crawl.of(self.connection, **STARTS[0])
        self.claims: list[tuple[Any, int]] = []
        for name in "ABCD":
            self.crawl.item(name, tags=["page"])

    def teardown(self) -> None:
        self.transaction.rollback()

    @rule(given=outside)
    def act_from_outside(self, given: list[ops.Operation]) -> None:
        self.crawl.end(None, *given)

    @rule(limit=st.integers(1, 5), lease=st.sampled_from([60, 60, 60, -1]))
    def claim(self, limit: int, lease: int) -> None:
        worker = self.crawl.new_worker(timedelta(seconds=lease))
        self.claims += [(one, worker) for one in self.crawl.claim(limit, worker=worker)]

    @rule(outcomes=st.lists(endings, min_size=1, max_size=4), allowed=st.booleans())
    def run_some(self, outcomes: list[Outcome], allowed: bool) -> None:
        claims = self.crawl.claim(len(outcomes))
        pairs = zip(claims, outcomes, strict=False)
        self.crawl.commit(
            *(graphs.changeset(one, outcome=end, allow_failure=allowed) for one, end in pairs)
        )

    @rule()
    def run_all(self) -> None:
        """Run what there is, round after round, as a crawl that nothing disturbs."""
        for _ in range(3):
            self.crawl.commit(*(graphs.changeset(one) for one in self.crawl.claim()))

    @rule(given=st.data(), number=st.integers(1, 4))
    def commit_a_batch(self, given: st.DataObject, number: int) -> None:
        """End some claims, the oldest first or the newest, and act from outside, all at once."""
        if given.draw(st.booleans()):
            self.claims.reverse()
        if not self.claims:
            self.claim(number, 60)
        taken, self.claims = self.claims[:number], self.claims[number:]
        batch = [
            graphs.changeset(
                one,
                *given.draw(inside),
                outcome=given.draw(endings),
                allow_failure=given.draw(st.booleans()),
                delay=given.draw(waits),
            )
            for one, _ in taken
        ]
        if given.draw(st.booleans()):
            batch.insert(
                given.draw(st.integers(0, len(batch))),
                graphs.changeset(None, *given.draw(outside)),
            )
        living = set(self.crawl.rows("SELECT item_id, task_id, token FROM work"))

        applied = self.crawl.commit(*batch)

        for one, became in zip(batch, applied, strict=True):
            if one.claim and (one.claim.item_id, one.claim.task_id, one.claim.token) not in living:
                assert became.outcome is None, "a zombie committed"

    @rule(number=st.integers(1, 3))
    def release(self, number: int) -> None:
        given, self.claims = self.claims[:number], self.claims[number:]
        self.crawl.release(*(one for one, _ in given))

    @rule()
    def refile(self) -> None:
        if self.claims:
            (one, worker) = self.claims.pop()
            with graphs.committed(self.connection):
                slot = stored_slots.intern_slots(self.connection, ["refiled.example"])[
                    "refiled.example"
                ]
                queue = queues.intern(self.connection, self.crawl.id, slot)
                claims.refile(self.connection, one, queue, worker)

    @rule()
    def bury_the_dead(self) -> None:
        self.crawl.take_over()

    @rule(hours=st.sampled_from([1, 5, 30]))
    def let_time_pass(self, hours: int) -> None:
        self.crawl.age(hours=hours)

    @rule(start=st.sampled_from(STARTS))
    def start_anew(self, start: dict[str, Any]) -> None:
        self.crawl.register(swept=False, **start)

    @rule(old=tags, new=tags)
    def rename_a_tag(self, old: str, new: str) -> None:
        with graphs.committed(self.connection):
            sweeps.rename_tags(self.connection, {old: new})

    @rule(start=st.sampled_from(STARTS))
    def start_and_sweep_by_step(self, start: dict[str, Any]) -> None:
        self.crawl.register(swept=False, **start)
        self.sweep(10)

    @rule(steps=st.integers(1, 4))
    def sweep(self, steps: int) -> None:
        for _ in range(steps):
            self.crawl.sweep_step()
            oracle.assert_worklist_is_true(self.connection, self.crawl.id)

    @rule()
    def sweep_all(self) -> None:
        self.crawl.sweep()

    @rule(task=some_task, retry=st.booleans())
    def handle(self, task: str | None, retry: bool) -> None:
        self.crawl.handle(task, retry=retry)

    @rule(task=task_names, enabled=st.booleans())
    def switch(self, task: str, enabled: bool) -> None:
        with graphs.committed(self.connection):
            task_id = self.crawl.task_id(task)
            stored_tasks.set_enabled(self.connection, self.crawl.id, task_id, enabled=enabled)

    @invariant()
    def the_worklist_is_true(self) -> None:
        oracle.assert_worklist_is_true(self.connection, self.crawl.id)


def test_the_worklist_is_true_after_anything(shared_engine, monkeypatch):
    """SRAP-3, SRAP-4, SRAP-14, SRAP-15: names and work are true after any sequence of events."""
    monkeypatch.setattr(sweeps, "SWEEP_STEP", 2)
    with shared_engine.connect() as connection:
        machine = type("AnyCrawlHere", (AnyCrawl,), {"connection": connection})

        run_state_machine_as_test(machine, settings=PROFILE)


@settings(PROFILE, max_examples=40 * DEPTH)
@given(
    first=outside,
    batch=st.lists(st.tuples(inside, endings, st.booleans()), min_size=2, max_size=4),
)
def test_a_batch_does_what_its_changesets_do_one_by_one(shared_engine, first, batch):
    """A batch leaves the same graph and worklist as its changesets in transactions of their own."""
    with shared_engine.connect() as connection, connection.begin() as transaction:
        crawl = graphs.Crawl.of(connection, **STARTS[0])
        for name in "ABC":
            crawl.item(name, tags=["page"])
        crawl.end(None, *first)
        claims = crawl.claim(len(batch))
        changesets = [
            graphs.changeset(claim, *given, outcome=outcome, allow_failure=allowed)
            for claim, (given, outcome, allowed) in zip(claims, batch, strict=False)
        ]

        alone = connection.begin_nested()
        for one in changesets:
            crawl.commit(one)
        expected = _comparable(crawl)
        alone.rollback()
        crawl.commit(*changesets)

        assert _comparable(crawl) == expected
        transaction.rollback()


def _comparable(crawl: graphs.Crawl) -> Any:
    return graphs.graph_state(crawl.connection, crawl.id), sorted(crawl.worklist())
