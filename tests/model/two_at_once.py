"""A crawl to which anything happens, two transactions at once, on the model and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from model import overlap_acts
from model.any_history import AnyHistory
from model.both import Both
from model.histories import (
    GENTLE_STARTS,
    STARTS,
    additions,
    batches,
    blob_names,
    names,
    some_task,
)
from model.overlaps import MOMENTS, Claim, Collect, Commit, Overlap

from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.store.admin import crawl_changes

if TYPE_CHECKING:
    from collections.abc import Callable

# What people, workers and sweeps do in a transaction of its own.
ACTS = [
    "handle",
    "unhandle",
    "set_nice",
    "add",
    "redirect",
    "refile",
    "release",
    "take over",
    "sweep",
]

# What somebody outside does meanwhile to an item that an act is about.
CHANGES: dict[str, Callable[[str], ops.Operation]] = {
    "no tag": lambda name: ops.RemoveTag("page", id=name),
    "another website": lambda name: ops.UpdateData({"url": "http://c.example/"}, id=name),
    "expired": lambda name: ops.Expire(id=name),
    "stored": lambda name: ops.StoreResult({"stored": 1}, id=name, task="parse"),
    "deleted": ops.DeleteItem,
}


class TwoAtOnce(AnyHistory):
    """The same, with transactions that overlap; `actors` are two more connections."""

    actors: Any

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.both = Both(self.connection, STARTS[0], next(self.folders))

    def teardown(self) -> None:
        for actor in self.actors:
            actor.rollback()
        self.connection.rollback()
        crawl_changes.restart(self.connection, self.both.ours.id)
        self.connection.execute(sa.text("DELETE FROM crawls"))
        self.connection.execute(sa.text("DELETE FROM blob_contents"))
        self.connection.commit()

    @rule(first=batches, second=batches, moment=st.sampled_from(list(MOMENTS)))
    def commit_two_at_once(
        self, first: list[dict[str, Any]], second: list[dict[str, Any]], moment: str
    ) -> None:
        """Commit a batch while another is held at some moment of its transaction."""
        if len(self.both.claims) < len(first) + len(second):
            self.both.claim(len(first) + len(second))
        self._overlap(
            *(Commit(self.both, self._with_claims(one)) for one in (first, second)), moment
        )

    @rule(batch=batches, limit=st.integers(1, 3), moment=st.sampled_from(list(MOMENTS)))
    def claim_amid_a_commit(self, batch: list[dict[str, Any]], limit: int, moment: str) -> None:
        commit = Commit(self.both, self._with_claims(batch))
        self._overlap(commit, Claim(self.both, limit), moment)

    @rule(
        batch=batches,
        limit=st.integers(1, 3),
        moment=st.sampled_from(["its commit", "it takes what it found"]),
    )
    def commit_amid_a_claim(self, batch: list[dict[str, Any]], limit: int, moment: str) -> None:
        commit = Commit(self.both, self._with_claims(batch))
        self._overlap(Claim(self.both, limit), commit, moment)

    @rule(
        batch=batches,
        moment=st.sampled_from(["its commit", "it locks contents", "it attaches"]),
        last=st.lists(st.builds(ops.DetachBlob, blob_names, id=names), max_size=2),
    )
    def collect_amid_a_commit(
        self, batch: list[dict[str, Any]], moment: str, last: list[ops.Operation]
    ) -> None:
        commit = Commit(self.both, [*self._with_claims(batch), (None, {"operations": last})])
        self._overlap(commit, Collect(self.both), moment)
        self.both.note_collected()

    @rule(batch=batches, moment=st.sampled_from(["its commit", "it deletes contents"]))
    def commit_amid_a_collection(self, batch: list[dict[str, Any]], moment: str) -> None:
        commit = Commit(self.both, self._with_claims(batch))
        self._overlap(Collect(self.both), commit, moment)
        self.both.note_collected()

    @rule(
        kind=st.sampled_from(ACTS),
        batch=batches,
        moment=st.sampled_from(list(MOMENTS)),
        is_first=st.booleans(),
        name=names,
        task=some_task,
        given=additions,
    )
    def act_amid_a_commit(
        self,
        kind: str,
        batch: list[dict[str, Any]],
        moment: str,
        is_first: bool,
        **drawn: Any,
    ) -> None:
        """Let people, workers or a sweep act beside a commit, perhaps of the same claims."""
        act = self._act(kind, **drawn)
        if act is not None:
            commit = Commit(self.both, self._with_claims(batch))
            self._overlap(*((act, commit) if is_first else (commit, act)), moment)

    @rule(
        kinds=st.tuples(st.sampled_from(ACTS), st.sampled_from(ACTS)),
        moment=st.sampled_from(list(MOMENTS)),
        name=names,
        task=some_task,
        given=additions,
    )
    def act_twice_at_once(self, kinds: tuple[str, str], moment: str, **drawn: Any) -> None:
        first, second = (self._act(kind, **drawn) for kind in kinds)
        if first is not None and second is not None:
            self._overlap(first, second, moment)

    def act_amid_a_change_of_its_item(self, kind: str, change: str, *, is_first: bool) -> None:
        """Let people or a sweep act on an item beside somebody who changes that item."""
        name, act = self._sweep_of_one() if kind == "sweep" else self._handling_of_one(kind)
        commit = Commit(self.both, [(None, {"operations": (CHANGES[change](name),)})])
        self._overlap(*((act, commit) if is_first else (commit, act)), "its commit")

    def _handling_of_one(self, kind: str) -> tuple[str, Any]:
        """Return an item whose failure is to be handled, or was, with the act that concerns it."""
        self._expire_all()
        self.both.notice()
        act = self._act(kind, name="A", task=None, given=[])
        concerned = (
            item.name
            for item in self.both.model.items.values()
            for result in item.results.values()
            if (result.open if kind == "handle" else result.handled)
        )
        return next(concerned), act

    def _sweep_of_one(self) -> tuple[str, Any]:
        """Return an item to which a sweep comes first, with the sweep."""
        self.run_all()
        self.both.start(STARTS[GENTLE_STARTS[1]])
        items = self.both.model.items
        return items[min(items)].name, overlap_acts.sweep_step(self.both)

    def _act(
        self, kind: str, name: str, task: str | None, given: list[ops.CreateItem]
    ) -> overlap_acts.Act | None:
        """Return an act of a kind, and bring about what it is about; None where that is not."""
        both = self.both
        if kind in {"redirect", "refile", "release"} and not both.claims:
            both.claim(2)
        if kind in {"redirect", "refile", "release", "sweep"} and not both.claims:
            return None  # what may be claimed amid a sweep is not said
        if kind == "take over":
            both.claim(2, dies=True)
            both.claims.reverse()  # that the commit is of a worker that is taken for dead
            return overlap_acts.take_over(both)
        if kind == "sweep":
            both.start(STARTS[GENTLE_STARTS[len(both.claims) % len(GENTLE_STARTS)]])
            return overlap_acts.sweep_step(both)
        if kind in {"handle", "unhandle"}:
            self.run_some(["failed", "refused"], allowed=False)
            both.let_pass(0.25, staged=True)
        if kind == "unhandle":
            both.handle(task, retry=True)
            both.let_pass(0.25, staged=True)
        makers: dict[str, Any] = {
            "handle": lambda: overlap_acts.handle(both, task, retry=name in "AB"),
            "unhandle": lambda: overlap_acts.unhandle(both, 0.35, task),
            "set_nice": lambda: overlap_acts.set_nice(both, name, len(given)),
            "add": lambda: overlap_acts.add(both, given),
            "redirect": lambda: overlap_acts.redirect(both, both.claims[0][0], name),
            "refile": lambda: overlap_acts.refile(both, *both.claims[0]),
            "release": lambda: overlap_acts.release(both, [one for one, _ in both.claims[:2]]),
        }
        return makers[kind]()

    def _overlap(self, first: Any, second: Any, moment: str) -> None:
        Overlap(self.both, self.actors).run(first, second, moment)
