"""A crawl to which anything happens, twice: on the model and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from model import closed_runs
from model.both import Both
from model.histories import (
    EVERYTHING,
    GENTLE_STARTS,
    INSIDE,
    OUTSIDE,
    STARTS,
    additions,
    any_ends,
    batches,
    blob_names,
    contents,
    endings,
    ends,
    kinds,
    names,
    periods,
    rarely,
    requests,
    some,
    some_task,
    tags,
    task_names,
)

from scrapy_itemgraph.model import operations as ops

if TYPE_CHECKING:
    from model.operations import Enqueue

SITES = ("a.example", "b.example/2", "c.example")  # of which items have URLs


class AnyHistory(RuleBasedStateMachine):
    """A crawl to which anything happens, twice; `connection` and `folders` are the test's."""

    connection: Any
    folders: Any

    def __init__(self) -> None:
        super().__init__()
        self.transaction = self.connection.begin()
        self.both = Both(self.connection, STARTS[0], next(self.folders))

    def teardown(self) -> None:
        self.transaction.rollback()

    @initialize(
        pasts=st.lists(st.lists(endings, max_size=3), min_size=4, max_size=4),
        nices=st.permutations([None, None, -1, 1]),
        limit=st.sampled_from([-1, -1, None, 1, 2]),
    )
    def begin(
        self, pasts: list[list[str]], nices: list[int | None], limit: int | None = -1
    ) -> None:
        """Make four items, each with a past: how what there was to do of it ended.

        The crawl tracks depth, with a limit or none, unless that is below 0.
        """
        if limit != -1:
            self.both.track_depth(limit)
        for name, outcomes, nice in zip("ABCD", pasts, nices, strict=True):
            self.both.apply(
                ops.CreateItem(name, ["page"], {"by": name}, nice=nice),
                ops.AttachBlob("page", name.encode(), id=name),
            )
            if outcomes:
                self.run_some(outcomes, allowed=len(outcomes) > 1)
            self.both.let_pass(0.5, staged=True)

    # From outside, and by workers

    @rule(given=some(OUTSIDE, *EVERYTHING, most=2))
    def act_from_outside(self, given: tuple[Any, ...]) -> None:
        self.both.apply(*given)
        self.both.compare()  # also before anybody has noticed what is due

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

    @rule(end=ends(some(INSIDE, "names", "results", most=3)))
    def run_one_that_renames_or_merges(self, end: dict[str, Any]) -> None:
        self._end_one(end)

    @rule(end=ends(some(INSIDE, "results", "data", most=3)))
    def run_one_that_updates(self, end: dict[str, Any]) -> None:
        self._end_one(end)

    @rule(end=ends(some(INSIDE, "blobs", "names", most=3)))
    def run_one_that_attaches(self, end: dict[str, Any]) -> None:
        self._end_one(end)

    @rule(end=ends(some(INSIDE, "requests", most=3)))
    def run_one_that_yields_requests(self, end: dict[str, Any]) -> None:
        self._end_one(end)

    @rule(
        given=some(INSIDE, *EVERYTHING, most=2) | st.just((ops.Expire(),)),
        end=any_ends,
        hours=st.sampled_from([0, 2.5]),
    )
    def change_an_item_under_its_claim(
        self, given: tuple[Any, ...], end: dict[str, Any], hours: float
    ) -> None:
        """Let others do to an item that is claimed what its own execution might do."""
        claim = self._a_claim()
        if claim is not None:
            self.both.apply(*(_of(claim.item.id, one) for one in given))
            if hours:
                self.both.let_pass(hours, staged=True)
            self.both.notice()
            self.both.end([(claim, end)])

    @rule(
        outcomes=st.lists(endings, min_size=4, max_size=5),
        between=some(OUTSIDE, "results", "data", most=2),
        merge=st.sampled_from(kinds(names)["names"][2:5]).flatmap(lambda kind: kind),
    )
    def run_some_and_merge(
        self, outcomes: list[str], between: tuple[Any, ...], merge: ops.Operation
    ) -> None:
        """Merge where there is something to merge: results, failures, claims."""
        self.run_some(outcomes[:2], allowed=True)
        self.both.let_pass(0.25, staged=True)
        self.both.apply(*between)
        self.both.notice()
        self.run_some(outcomes[2:], allowed=False)
        self.both.apply(merge)

    @rule(
        two=st.permutations("ABCD"),
        name=blob_names,
        given=st.tuples(contents, contents),
        before=some(OUTSIDE, "blobs", most=2),
        how=st.sampled_from(["later", "at once", "at once", "deleted"]),
    )
    def attach_and_merge(
        self,
        two: list[str],
        name: str,
        given: tuple[bytes, bytes],
        before: tuple[Any, ...],
        how: str,
    ) -> None:
        """Merge two items that have contents of one name, perhaps in one transaction.

        What was attached there cannot be deleted there.
        """
        first, second, *_ = two
        one, other = (
            ops.AttachBlob(name, content, id=item)
            for item, content in zip((first, second), given, strict=True)
        )
        merge = ops.MergeItem(first, id=second)
        if how == "deleted":
            self.both.apply(other, merge, ops.DeleteItem(first))
        elif how == "at once":
            self.both.apply(one, other, merge)
        else:
            self.both.apply(one)
            self.both.let_pass(0.25, staged=True)
            self.both.apply(*before)
            self.both.apply(other, merge)

    @rule(now=st.booleans())
    def collect(self, now: bool) -> None:
        """Delete the contents that no item has."""
        self.both.collect(now=now)

    @rule(given=requests, again=st.booleans())
    def start_with_a_request(self, given: Enqueue, again: bool) -> None:
        """Begin a run whose `start()` yields a request; `again`: as an earlier one did."""
        self.both.begin_run()
        self.both.apply(given)
        if again:
            self.run_all()
            self.both.begin_run()
            self.both.apply(replace(given, url="http://later.example/"))

    @rule(
        pages=some(OUTSIDE, "requests", most=3),
        ends=st.lists(any_ends, max_size=2),
        between=st.just(()) | some(OUTSIDE, *EVERYTHING, most=2),
        continues=st.booleans(),
        links=some(OUTSIDE, "requests", most=3),
    )
    def close_the_run(
        self,
        pages: tuple[Any, ...],
        ends: list[dict[str, Any]],
        between: tuple[Any, ...],
        continues: bool,
        links: tuple[Any, ...],
    ) -> None:
        """Let the spider close its run, processes come to their end, and another one go on.

        What is new has the crawl go on. Then links lead to what was left.
        """
        self.both.apply(*pages)
        claims = self.both.claim(len(ends)) if ends else []
        closed_runs.close(self.both)
        self.both.end(list(zip(claims, ends, strict=False)))
        self.both.notice()
        closed_runs.hold_left(self.both)
        self.both.compare()
        closed_runs.act(self.both, between)
        closed_runs.start(self.both, continues=continues)
        self.both.apply(*links)

    @rule(name=st.none() | st.sampled_from(["R", "S", "A", "b"]), ends_too=st.booleans())
    def redirect(self, name: str | None, ends_too: bool) -> None:
        claims = self.both.claims or self.both.claim(1)
        if claims:
            claim = self.both.claims[-1][0]
            self.both.redirect(claim, name, f"http://r.example/{name}")
            if ends_too:
                self.both.end([(self.both.claims.pop()[0], {})])

    @rule()
    def refile(self) -> None:
        if self.both.claims:
            self.both.refile(*self.both.claims.pop(), "refiled.example")

    @rule(batch=batches, newest=st.booleans())
    def commit_a_batch(self, batch: list[dict[str, Any]], newest: bool) -> None:
        """End some claims, living or lost, and act from outside, all at once."""
        if newest:
            self.both.claims.reverse()
        if not self.both.claims:
            self.both.claim(len(batch))
        self.both.end(self._with_claims(batch))

    @rule(number=st.integers(1, 3))
    def release(self, number: int) -> None:
        given, self.both.claims = self.both.claims[:number], self.both.claims[number:]
        self.both.release(*(claim for claim, _ in given))

    @rule(limit=st.integers(1, 2), alone=st.booleans())
    def die(self, limit: int, alone: bool) -> None:
        self.both.die(1 if alone else limit, alone=alone)

    @rule(
        act=st.sampled_from(["end", "end", "redirect", "refile", "release"]),
        end=any_ends,
        alone=st.booleans(),
    )
    def go_on_with_what_another_has_claimed_since(
        self, act: str, end: dict[str, Any], alone: bool
    ) -> None:
        """Let a worker that was taken for dead go on with what another has claimed since."""
        before = len(self.both.claims)
        self.both.die(1, alone=False)
        if len(self.both.claims) == before:
            return
        lost, worker = self.both.claims.pop()
        successors = self.both.claim(1000)
        if act == "redirect":
            self.both.redirect(lost, "zombie", "http://r.example/zombie")
        elif act == "refile":
            self.both.refile(lost, worker, "refiled.example")
        elif act == "release":
            self.both.release(lost)
        else:
            ends = [] if alone else [(claim, {}) for claim in successors[:1]]
            self.both.end([*ends, (lost, end)])

    @rule(outcome=endings, times=st.integers(1, 4))
    def die_again_and_again(self, outcome: str, times: int) -> None:
        """Let workers die on the same, first beside others, then alone; then run what is left."""
        for alone in (False, False, True, True, True)[: times + 1]:
            self.both.die(1, alone=alone)
        self.both.end([(claim, {"outcome": outcome}) for claim in self.both.claim(1, alone=True)])

    # Time

    @rule(hours=periods, staged=st.booleans())
    def let_time_pass(self, hours: float, staged: bool) -> None:
        self.both.let_pass(hours, staged=staged)

    @rule(off=st.sampled_from([-0.25, 0.0, 0.25]), staged=st.booleans())
    def let_time_pass_to_what_comes_next(self, off: float, staged: bool) -> None:
        """Go to just before a result expires or a wait is over, or to just after."""
        hours = self.both.model.next_change()
        if hours is not None and hours + off > 0:
            self.both.let_pass(hours + off, staged=staged)

    @rule(batch=batches, hours=periods)
    def commit_before_time_is_noticed(self, batch: list[dict[str, Any]], hours: float) -> None:
        if self.both.claims:
            self.both.let_pass(hours, staged=False)
            self.commit_a_batch(batch, newest=False)

    # Code and people

    @rule(start=st.integers(0, len(STARTS) - 1))
    def start_anew(self, start: int) -> None:
        self.both.start(STARTS[start])
        self.both.sweep()

    @rule(start=st.integers(0, len(STARTS) - 1), limit=st.integers(2, 9))
    def start_anew_with_all_to_do(self, start: int, limit: int) -> None:
        """Let what there is to choose from be much: all results are expired, and code is new."""
        self._expire_all()
        self.both.start(STARTS[start])
        self.both.sweep()
        self.both.claim(limit)

    @rule(start=st.sampled_from([1, 2]), tag=st.sampled_from(["page", "list"]))
    def stop_a_task_and_let_it_go_on(self, start: int, tag: str) -> None:
        """Let tasks fail until they stop; then the items that failed call for them no more."""
        self.both.start(STARTS[start])
        self.both.sweep()
        self._expire_all()
        failed: dict[str, str] = {}  # tasks, and the items that they failed on
        for _ in range(2):  # what others depend on is first
            ends = []
            for claim in self.both.claim(1000):
                is_fragile = self.both.model.tasks[claim.task].max_failures is not None
                if is_fragile and claim.task not in failed:
                    failed[claim.task] = claim.item.id
                    ends.append((claim, {"outcome": "failed"}))
                else:
                    ends.append((claim, {"outcome": "released" if is_fragile else "ok"}))
            self.both.end(ends)
        self.both.claim(1000)
        self.both.apply(*(ops.RemoveTag(tag, id=item) for item in failed.values()))
        self.both.claim(1000)

    @rule(start=st.integers(0, len(STARTS) - 1), outcomes=st.lists(endings, min_size=1, max_size=3))
    def start_anew_amid_executions(self, start: int, outcomes: list[str]) -> None:
        """Let executions end that began before the code changed."""
        claims = self.both.claim(len(outcomes))
        self.both.start(STARTS[start])
        self.both.sweep()
        self.both.end(
            [
                (claim, {"outcome": outcome, "allow_failure": True})
                for claim, outcome in zip(claims, outcomes, strict=False)
            ]
        )

    @rule(start=st.sampled_from(GENTLE_STARTS), steps=st.integers(0, 3), batch=batches)
    def commit_amid_a_sweep(self, start: int, steps: int, batch: list[dict[str, Any]]) -> None:
        if not self.both.claims:
            return  # what may be claimed amid a sweep is not said
        self.both.start(STARTS[start])
        for _ in range(steps):
            self.both.sweep_step()
        self.commit_a_batch(batch, newest=True)
        self.both.sweep()

    @rule(old=tags, new=tags)
    def rename_a_tag(self, old: str, new: str) -> None:
        self.both.rename_tag(old, new)
        self.both.sweep()

    @rule(task=some_task, retry=st.booleans())
    def handle(self, task: str | None, retry: bool) -> None:
        self.both.handle(task, retry=retry)

    @rule(
        name=names,
        led=st.lists(names, min_size=1, max_size=3),
        between=st.just(()) | some(OUTSIDE, "names", "data", most=2),
    )
    def lead_to_known(self, name: str, led: list[str], between: tuple[Any, ...]) -> None:
        """Have pages lead to others, change what has their names, and bring them back."""
        claims = self.both.claim(len(led))
        ends = [{"outcome": "known", "led_to": one} for one in led]
        self.both.end(list(zip(claims, ends, strict=False)))
        self.both.apply(*between)
        self.both.handle_led(name)

    @rule(
        task=some_task,
        retry=st.booleans(),
        outcomes=st.lists(endings, max_size=2),
        between=st.just(()) | some(OUTSIDE, "results", "data", most=2),
    )
    def handle_and_undo(
        self, task: str | None, retry: bool, outcomes: list[str], between: tuple[Any, ...]
    ) -> None:
        """Handle failures, and undo that after something has run, or was changed, since."""
        self.run_some(["failed", "failed", "refused"], allowed=False)
        self.both.let_pass(0.25, staged=True)
        self.both.handle(task, retry=retry)
        self.both.let_pass(0.25, staged=True)
        if outcomes:
            self.run_some(outcomes, allowed=False)
        self.both.apply(*between)
        self.both.notice()
        self.both.unhandle(0.35, task)

    @rule(name=names, nice=st.none() | st.integers(-2, 2))
    def set_nice(self, name: str, nice: int | None) -> None:
        self.both.set_nice(name, nice)

    @rule(limit=st.sampled_from([None, 0, 1, 2]))
    def set_depth_limit(self, limit: int | None) -> None:
        """Let pages be as deep as that, where depth is tracked."""
        if self.both.model.tracks_depth:
            self.both.track_depth(limit)

    @rule(
        name=names,
        hold=st.sampled_from([None, "skipped", "skipped", "stashed"]),
        freed=st.sampled_from(["skipped", "stashed", "left"]),
    )
    def set_aside(self, name: str, hold: str | None, freed: str) -> None:
        """Skip or stash an item, or free it; while it is claimed, as well."""
        self.both.set_aside(name, hold, freed)

    @rule(
        name=names,
        outcomes=st.lists(endings, min_size=1, max_size=3),
        between=some(OUTSIDE, "results", "names", most=2),
    )
    def set_aside_amid_executions(
        self, name: str, outcomes: list[str], between: tuple[Any, ...]
    ) -> None:
        """Let executions of what is set aside end, and others change it; then free it."""
        claims = self.both.claim(len(outcomes))
        for claim in claims:
            self.both.set_aside(claim.item.id, "stashed", "")
        self.both.set_aside(name, "skipped", "")
        self.both.end([(one, {"outcome": end}) for one, end in zip(claims, outcomes, strict=False)])
        self.both.apply(*between)
        self.both.notice()
        self.both.set_aside(name, None, "skipped")

    @rule(patterns=st.lists(st.sampled_from(SITES), max_size=2, unique=True), applied=st.booleans())
    def change_rules(self, patterns: list[str], applied: bool) -> None:
        """Put rules in force that skip websites, or none any more; apply them to what waits."""
        self.both.notice()
        self.both.put_rules(patterns)
        if applied:
            self.both.apply_rules()

    @rule(name=names, site=st.sampled_from(SITES), patterns=st.sets(st.sampled_from(SITES)))
    def change_rules_beside_a_person(self, name: str, site: str, patterns: set[str]) -> None:
        """Skip a page by hand, have rules skip some, and take back what they have skipped."""
        self.both.apply(ops.CreateItem(name, ["page"]))
        self.both.apply(ops.UpdateData({"url": f"http://{site}/x"}, id=name))
        self.both.notice()
        self.both.set_aside(name, "skipped", "")
        for wanted in (sorted(patterns), []):
            self.both.put_rules(wanted)
            self.both.apply_rules()
        self.both.check()
        self.both.set_aside(name, None, "skipped")

    @rule(outcomes=st.lists(st.one_of(st.just("skipped"), endings), min_size=1, max_size=3))
    def skip_at_their_turn(self, outcomes: list[str]) -> None:
        """Let executions end as rules have it, beside others."""
        claims = self.both.claim(len(outcomes))
        self.both.end([(one, {"outcome": end}) for one, end in zip(claims, outcomes, strict=False)])

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

    def _expire_all(self) -> None:
        """Make all results stale."""
        items = [item.name for item in self.both.model.items.values()]
        self.both.apply(*(ops.Expire(id=name) for name in items))

    def _a_claim(self) -> Any:
        """Return the newest claim that lives, or make one; None if there is nothing to claim."""
        claims = self.both.claims
        living = [one for one in claims if self.both.model.claimed(one[0].token)]
        if not living:
            self.both.claim(1)
            living = claims[-1:] if claims and self.both.model.claimed(claims[-1][0].token) else []
        for one in living[-1:]:
            claims.remove(one)
            return one[0]
        return None

    def _with_claims(self, batch: list[dict[str, Any]]) -> list[tuple[Any, dict[str, Any]]]:
        """Return a batch with the claims that it ends, as far as there are any."""
        claims, found = self.both.claims, []
        for one in batch:
            if one["outcome"] == "outside":
                found.append((None, {"operations": one["operations"]}))
            elif claims:
                found.append((claims.pop(0)[0], one))
        return found

    def _end_one(self, end: dict[str, Any]) -> None:
        claim = self._a_claim()
        if claim is not None:
            self.both.end([(claim, end)])


def _of(name: str, operation: Any) -> Any:
    """Return an operation that names the item it is for."""
    for field in ("id", "to"):
        if getattr(operation, field, name) is None:
            return replace(operation, **{field: name})
    return operation
