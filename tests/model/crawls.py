"""What happens to a crawl: claims and how they end, time, deaths, people, and new code."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model.item_graph import Attempt, Handled, ItemGraph, Pair, Refused, Result, Task
from model.operations import Enqueue, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Deaths of workers after which a pair runs alone, and of those in a row while it does (design 4).
DEATHS = 2
DEATHS_ALONE = 3


@dataclass(frozen=True)
class End:
    """How an execution ends (a claim's token), or one call from outside (None)."""

    operations: tuple[Any, ...] = ()
    token: Any = None
    outcome: str = "ok"
    allow_failure: bool = False
    delay: float = 0.0  # hours, of a retry
    led_to: str = "B"  # of what is known


@dataclass(frozen=True)
class Became:
    """What became of it: None for a lost claim, and the kind of an operation's error."""

    outcome: str | None
    error: str | None = None


class Crawl(ItemGraph):
    """An item graph with workers."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.tasks = dict(tasks)
        self.registered = set(tasks)
        self.is_over = False  # the last run
        self.is_continued = False  # work has opened it again
        self.skips: set[str] = set()  # parts of URLs, of the rules in force
        self.ever_skipped: set[str] = set()
        self.found: list[tuple[Pair | None, list[str]]] = []  # what a batch names, and from where

    # Claims

    def is_suspect(self, pair: Pair) -> bool:
        """Tell whether a pair may only run alone: two workers died while they ran it."""
        return self.work[pair].deaths >= DEATHS

    def claim(self, pair: Pair, token: Any, worker: int) -> None:
        """Let a worker take a pair; whether it may is for the test to ask of `claimable`."""
        work = self.work[pair]
        result = self.items[pair.item].results.get(pair.task)
        work.token, work.worker = token, worker
        work.version = self.tasks[pair.task].version
        work.answers = None if result is None else result.expired

    def claimed(self, token: Any) -> Pair | None:
        """Return the pair that a token claims; None when it is lost."""
        return next((pair for pair, work in self.work.items() if work.token == token), None)

    def release(self, tokens: Iterable[Any]) -> None:
        """Give claims back in their place."""
        for token in tokens:
            pair = self.claimed(token)
            if pair is not None:
                self._give_back(pair, "released")
        self._end_step()

    def _give_back(self, pair: Pair, outcome: str) -> None:
        work = self.work[pair]
        self._note(pair.item, pair, work.tries, outcome)
        work.token = work.worker = work.version = work.answers = None

    def _note(self, item: int, pair: Pair, tries: int, outcome: str) -> None:
        """Keep an attempt at a pair as history, on the item that survived it."""
        self.attempts_made += 1
        attempt = Attempt(self.attempts_made, tries + 1, outcome)
        if item in self.items:
            self.items[item].attempts.setdefault(pair.task, []).append(attempt)

    def refile(self, token: Any, slot: str) -> None:
        """Give a claim back whose request goes to another website than its work said."""
        pair = self.claimed(token)
        if pair is not None:
            self._give_back(pair, "released")
            self.work[pair].refiled = slot
        self._end_step()

    # Redirects

    def redirect(self, token: Any, name: str | None, request: dict[str, Any]) -> str:
        """Note where a claim's request was redirected to; return whether it may go on there.

        The name becomes an alias; if another has it, the page is known already.
        """
        pair = self.claimed(token)
        if pair is None:
            return "lost"
        if name is not None and self.names.setdefault(name, pair.item) != pair.item:
            return "taken"
        self.work[pair].request = request
        return "on"

    def bury(self, worker: int) -> None:
        """Let a worker be found dead: its claims go back, and are charged with its death."""
        for pair, work in list(self.work.items()):
            if work.worker != worker:
                continue
            was_alone = self.is_suspect(pair)
            work.deaths += 1
            work.deaths_alone += was_alone
            if work.deaths_alone >= DEATHS_ALONE:
                self._note(pair.item, pair, work.tries, "died")
                self._fail(pair, "failed")
                del self.work[pair]
            else:
                self._give_back(pair, "died")
        self._end_step()

    # Commits

    def commit(self, ends: Sequence[End]) -> list[Became]:
        """End executions, and act from outside, one after the other.

        Of what one of them does nothing is later, the requirements are silent on it. So they are on
        what will be tried again: it is given back first.
        """
        self.stopped = {task for task in self.tasks if self.is_stopped(task)}
        first = [one for one in ends if one.outcome in {"retry", "released", "skipped"}]
        skipped = [self.claimed(one.token) for one in ends if one.outcome == "skipped"]
        before = dict(self.depths)
        self.found = []
        became_of = {one.token: self._commit(one) for one in first}
        became = []
        for one in ends:
            became.append(became_of[one.token] if one in first else self._commit(one))
            self.tick += 1
        for pair in skipped:  # last, as what the batch left of its item calls for
            if pair is not None and pair.item in self.items:
                self._set_aside(pair.item, "skipped")
        if self.tracks_depth:
            self._link(before)
        self._end_step()
        return became

    def _link(self, before: dict[int, int]) -> None:
        """Take note of the links that a batch found; names mean what they mean at its end."""
        for pair, names in self.found:
            for name in names:
                target = self.names.get(name)
                if target is None or target not in self.items:
                    continue
                source = None if pair is None else self.survivor(pair.item)
                if pair is None:
                    self.come_nearer(target, 0)  # a path begins there
                elif source is not None:
                    self.links.setdefault(source, set()).add(target)
                elif pair.item in before:  # it is gone: nothing but this path is left of it
                    self.come_nearer(target, before[pair.item] + 1)
        self.pass_depths_on()

    def track_depth(self, limit: int | None) -> None:
        """Have items know their depth from now on, and those wait that are deeper than a limit."""
        self.tracks_depth, self.depth_limit = True, limit
        self._end_step()

    def _commit(self, end: End) -> Became:
        pair = None if end.token is None else self.claimed(end.token)
        if end.token is not None and pair is None:
            return Became(None)
        if end.outcome in {"ok", "unchanged", "known", "gone", "failed", "refused"}:
            became = self._carried_out(end, pair)
        else:
            became = Became(end.outcome)
            self._tried(end, pair)
        for fenced in [other for other in self.work if other.item not in self.items]:
            del self.work[fenced]
        return became

    def _tried(self, end: End, pair: Pair | None) -> None:
        assert pair is not None
        self._give_back(pair, end.outcome)
        if end.outcome == "retry":
            work = self.work[pair]
            work.tries += 1
            work.deaths_alone = 0
            work.not_before = self.now + end.delay

    def _carried_out(self, end: End, pair: Pair | None) -> Became:
        """Carry out what was yielded, or none of it; then comes the result (design 4)."""
        outcome, error = end.outcome, None
        keeps = outcome in {"ok", "unchanged", "known", "gone"} or end.allow_failure
        run = Run(self)
        version = None
        if pair is not None:
            work = self.work[pair]
            run.own, run.task, run.answers, version = (*pair, work.answers, work.version)
        is_expired = pair is not None and self.is_expired(pair)
        before = copy.deepcopy((self.items, self.names, self.numbers, self.moved))
        if keeps:
            try:
                run.carry_out(end.operations)
            except Refused as refused:
                self.items, self.names, self.numbers, self.moved = before
                run.named = []
                outcome, error, keeps = "failed", refused.kind, False
                if pair is not None:
                    run = Run(self, *pair, run.answers)
                    if self.tasks[pair.task].is_callback:  # its requests go on all the same
                        run.carry_out([one for one in end.operations if isinstance(one, Enqueue)])
                        keeps = True
        self.found.append((pair, run.named))
        tries = 0 if pair is None else self.work.pop(pair).tries
        if pair is not None and run.own is not None:
            survivor = Pair(run.own, pair.task)
            if keeps and outcome != "refused":
                self._complete(survivor, run, version, is_unchanged=outcome == "unchanged")
                if outcome == "known":
                    self.items[run.own].results[pair.task].led_to = end.led_to
            self._hold(survivor, outcome, is_expired=is_expired)
            if keeps and outcome == "failed" and self.tasks[pair.task].is_callback:
                self.items[run.own].results[pair.task].expired = self.tick  # stale, once handled
            self._note(run.own, pair, tries, outcome)
        return Became(outcome, error)

    def is_expired(self, pair: Pair) -> bool:
        """Whether somebody expired a pair since it was claimed."""
        result = self.items[pair.item].results.get(pair.task)
        return result is not None and result.expired not in {None, self.work[pair].answers}

    def _complete(
        self, pair: Pair, run: Run, version: str | None, *, is_unchanged: bool = False
    ) -> None:
        """Complete a result: now, in the version as it was claimed (SRAP-10, SRAP-19).

        One whose page is unchanged keeps the time to live that it was given.
        """
        result = self.items[pair.item].results.setdefault(pair.task, Result(self.tick))
        ttl, is_own = run.ttl or (self.tasks[pair.task].ttl, False)
        if is_unchanged and result.has_own_ttl and run.ttl is None:
            has_moment = result.completed is not None and result.expires is not None
            ttl, is_own = result.expires - result.completed[0] if has_moment else None, True
        result.completed, result.version = (self.now, self.tick), version
        result.run = self.run
        result.led_to = None
        result.expires = None if ttl is None else self.now + ttl
        result.has_own_ttl = is_own
        result.let_run()
        if run.expired is not None:
            result.expired = run.expired
        elif result.expired == run.answers:
            result.expired = None

    def _hold(self, pair: Pair, outcome: str, *, is_expired: bool) -> None:
        """Hold a pair whose execution did not end well."""
        if outcome == "gone" and not is_expired:
            result = self.items[pair.item].results[pair.task]
            result.is_held = result.is_gone = True
            result.expired = self.tick  # stale, once it is freed
        elif outcome not in {"ok", "unchanged", "known", "gone"}:
            self._fail(pair, outcome, is_expired=is_expired)

    def _fail(self, pair: Pair, kind: str, *, is_expired: bool = False) -> None:
        """Hold a pair, unless somebody expired it meanwhile: that is the later word (SRAP-50).

        The requirements are silent on a failed execution that expired its own pair. It is held: a
        page that breaks its parser is not fetched again and again. Nor is one that its workers
        died of.
        """
        result = self.items[pair.item].results.setdefault(pair.task, Result(self.tick))
        result.run = self.run
        result.led_to = None
        if not is_expired:
            result.is_held = True
            result.open.append(kind)

    # Time, people, code

    def _end_step(self) -> None:
        self.settle()
        self.tick += 1

    def next_change(self) -> float | None:
        """Return in how many hours time will change something next, if it will."""
        moments = [one.expires for item in self.items.values() for one in item.results.values()]
        moments += [work.not_before for work in self.work.values()]
        return min((one - self.now for one in moments if one and one > self.now), default=None)

    def let_pass(self, hours: float) -> None:
        """Let time pass; what expires by that is stale (SRAP-23)."""
        self.now += hours
        self._end_step()

    def begin_run(self) -> None:
        """Begin a run: from now on start requests are to be fetched again."""
        self.run += 1
        self.is_over = self.is_continued = False

    def close_run(self) -> None:
        """Let the spider close its run."""
        self.is_over, self.is_continued = True, False

    def leave(self, run: int) -> None:
        """Hold what a run left: what is outstanding of plain callbacks without a time to live."""
        for pair, work in self.work.items():
            task = self.tasks[pair.task]
            if work.token is None and task.is_callback and task.ttl is None:
                item = self.items[pair.item]
                item.holds[pair.task] = "left"
                result = item.results.setdefault(pair.task, Result(self.tick))
                result.run = max(run, 1) - 1  # any link frees it, also one in the same run
        self._end_step()

    def awaken(self) -> None:
        """Let new work open the last run again."""
        if self.is_over:
            self.is_over, self.is_continued = False, True

    def start_run(self, *, continues: bool) -> bool:
        """Start a process when a run is over or continued; tell whether there is nothing to do.

        One that `continues` opens the last run again, and begins none.
        """
        if not continues:
            self.begin_run()
        elif self.is_over and not self.work:
            return True
        else:
            self.awaken()
        return False

    def handle(self, task: str | None, *, retry: bool) -> None:
        """Handle open failures, of a task or all (SRAP-29); with `retry` their pairs may run."""
        concerned: set[int] = set()
        for number, item in self.items.items():
            for name, result in item.results.items():
                if task in {None, name} and result.open:
                    concerned.add(number)
                    result.handled += [
                        Handled(self.now, self.attempts_made, kind) for kind in result.open
                    ]
                    result.open = []
                    result.is_held = result.is_held and not retry
        if retry:
            self._bring_back(concerned)
        self._end_step()

    def handle_led(self, name: str) -> None:
        """Have what led to an item run again; and itself, if it has the name by a redirect."""
        number = self.resolve(name)
        if self.items[number].name != name:
            for task, result in self.items[number].results.items():
                if self.tasks[task].is_callback:
                    result.let_run()
                    result.expired, result.led_to = self.tick, None
        self._bring_back({number})
        self._end_step()

    def _bring_back(self, numbers: set[int]) -> None:
        """Make stale what led to these items, by the names that they have by now."""
        for item in self.items.values():
            for result in item.results.values():
                if result.led_to is not None and self.names.get(result.led_to) in numbers:
                    result.expired, result.led_to = self.tick, None

    def unhandle(self, since: float, task: str | None) -> None:
        """Undo what people handled since an hour, but for what has run since, or runs."""
        for number, item in self.items.items():
            for name, result in item.results.items():
                work = self.work.get(Pair(number, name))
                if task not in {None, name} or (work is not None and work.token is not None):
                    continue
                orders = [a.order for a in item.attempts.get(name, []) if a.outcome != "released"]
                last = max(orders, default=0)
                undone = [h for h in result.handled if h.hour >= since and h.attempts >= last]
                if undone:
                    result.handled = [one for one in result.handled if one not in undone]
                    result.open = [*(one.kind for one in undone), *result.open]
                    result.is_held = True
        self._end_step()

    def set_nice(self, name: str, nice: int | None) -> None:
        """Give an item a priority of its own, or again that of its tasks (MNB-4)."""
        self.items[self.resolve(name)].nice = nice
        self._end_step()

    def set_aside(self, name: str, hold: str | None, freed: str) -> None:
        """Set what an item calls for aside, or free what was `freed` (MNB-7)."""
        number = self.resolve(name)
        item = self.items[number]
        if hold is None:
            item.holds = {task: why for task, why in item.holds.items() if why != freed}
        else:
            self._set_aside(number, hold)
        self._end_step()

    def _set_aside(self, number: int, hold: str) -> None:
        item = self.items[number]
        for task in self.registered:
            if self.is_called_for(Pair(number, task)):
                item.holds[task] = hold
                item.results.setdefault(task, Result(self.tick, run=self.run))

    def put_rules(self, patterns: Sequence[str]) -> None:
        """Have pages skipped at their turn whose URL has one of these parts (MNB-11)."""
        self.skips = set(patterns)
        self.ever_skipped |= self.skips

    def apply_rules(self) -> None:
        """Set aside what waits and rules skip; take back what rules once skipped and do not now."""
        for pair, work in list(self.work.items()):
            if work.token is None and self._has(pair.item, self.skips):
                self._set_aside(pair.item, "skipped")
        for number, item in self.items.items():
            if self._has(number, self.ever_skipped) and not self._has(number, self.skips):
                item.holds = {task: why for task, why in item.holds.items() if why != "skipped"}
        self._end_step()

    def _has(self, number: int, parts: Iterable[str]) -> bool:
        url = self.items[number].data.get("url")
        return isinstance(url, str) and any(part in url for part in parts)

    def switch(self, task: str, *, enabled: bool) -> None:
        """Enable a task, or disable it."""
        (self.disabled.discard if enabled else self.disabled.add)(task)

    def recompute_ttl(self, task: str) -> None:
        """Give a task's results the time to live that it has now, unless overridden (SRAP-24)."""
        ttl = self.tasks[task].ttl
        for item in self.items.values():
            result = item.results.get(task)
            if result is not None and result.completed is not None and not result.has_own_ttl:
                result.expires = None if ttl is None else result.completed[0] + ttl
        self.begin_sweep()

    def start(self, tasks: Mapping[str, Task]) -> None:
        """Start with other code (SRAP-12, SRAP-20); tasks that vanished keep their results."""
        for name, task in tasks.items():
            before = self.tasks.get(name)
            is_bumped = before is not None and before.version != task.version
            if is_bumped and task.retry_failed_on_version_bump:
                for item in self.items.values():
                    if name in item.results and not item.results[name].is_gone:
                        item.results[name].let_run()
        self.tasks |= tasks
        self.registered = set(tasks)
        self.begin_sweep()

    def begin_sweep(self) -> None:
        """Note that a change of code or tags is still to be brought to items."""
        if self.swept_since is None:
            self.swept_since = self.tick

    def end_sweep(self) -> None:
        """Bring all changes to all items."""
        self._end_step()
        self.swept_since = None

    def rename_tag(self, old: str, new: str) -> None:
        """Rename a tag everywhere; an item that has both keeps the new one's value (SRAP-32)."""
        for item in self.items.values():
            if old in item.tags and old != new:
                value = item.tags.pop(old)
                item.tags.setdefault(new, value)
        self.begin_sweep()
