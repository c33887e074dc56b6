"""The model and PostgreSQL side by side: what is done to both, and what must be the same after."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from model import reading
from model.crawls import Became, Crawl, End
from model.item_graph import Pair, Task
from model.operations import CHANGED, Enqueue
from support import graphs, oracle

from scrapy_itemgraph.changesets import additions
from scrapy_itemgraph.contents.transfer import CommandContents
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model import tasks as task_options
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.model.crawl_states import NewCrawl
from scrapy_itemgraph.model.request_operations import WHENEVER, EnqueueRequest
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.model.work import Outcome, Redirect
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import crawl_changes
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawl_depths, crawl_queue, crawls, item_sweeps, runs
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import stored_redirects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from scrapy_itemgraph.model.blobs import Content

NOW = sa.text("SELECT clock_timestamp()")
AGE_CONTENTS = sa.text("UPDATE blob_contents SET collect_at = collect_at - :period")
LARGE = 5  # bytes of content


def declared(tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Return tasks as `@task` takes them, and `callbacks` as a setting does."""
    plain = {name: task for name, task in tasks.items() if task.is_callback}
    callbacks = {
        name: {"version": task.version, "max_failures": task.max_failures}
        | ({} if task.ttl is None else {"ttl": f"{task.ttl}h"})
        for name, task in plain.items()
    }
    return {"callbacks": callbacks} | {
        name: {
            "tags": list(task.tags),
            "version": task.version,
            "ttl": None if task.ttl is None else f"{task.ttl}h",
            "depends_on": task.depends_on,
            "nice": task.nice,
            "slot": task.slot,
            "download": task.download,
            "max_failures": task.max_failures,
            "exclusive": task.exclusive,
            "retry_failed_on_version_bump": task.retry_failed_on_version_bump,
        }
        for name, task in tasks.items()
        if name not in plain
    }


class People(ItemGraph):
    """What people do, in a transaction that the test has begun."""

    def __init__(self, connection: sa.Connection, crawl: str) -> None:
        super().__init__(connection.engine, crawl)
        self._connection = connection
        self._transactions.call = self._within

    def _within(self, function: Callable[[sa.Connection], Any]) -> Any:
        with graphs.committed(self._connection):
            return function(self._connection)


class Contents:
    """Stores what is attached: what is small in the database, what is large in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def stores(self, connection: sa.Connection) -> tuple[CommandContents, CommandContents]:
        """Return both stores, as a command has them."""

        def call(function: Callable[[sa.Connection], Any]) -> Any:
            return function(connection)

        return CommandContents(call, DATABASE), CommandContents(call, self.folder.as_uri())

    def store(self, connection: sa.Connection, contents: Sequence[Content]) -> None:
        """Store contents that have no number yet, as is done before a commit."""
        small, large = self.stores(connection)
        small.store([one for one in contents if one.weight < LARGE])
        large.store([one for one in contents if one.weight >= LARGE])

    def files(self) -> list[int]:
        """Return the numbers of the contents in the folder."""
        found = (one for one in self.folder.rglob("*") if one.is_file())
        return sorted(int(one.name.rpartition("-")[2]) for one in found)


class Both:
    """One crawl twice: `ours` in the database, and the model; large contents are in a folder."""

    def __init__(self, connection: sa.Connection, tasks: Mapping[str, Task], folder: Path) -> None:
        self.connection = connection
        new = NewCrawl(spider="shop", name="books", project="p", arguments={}, settings={})
        crawl_queue.add(connection, new, by="a person")
        self.ours = graphs.Crawl.of(connection, **declared(tasks))
        self.people = People(connection, self.ours.name)
        self.contents = Contents(folder)
        self.run = 0
        self.named_at: dict[bytes, float] = {}  # contents, and when an item was seen to have them
        self.model = Crawl(tasks)
        self.claims: list[tuple[Any, int]] = []  # with their workers; also those that are lost
        self.dead: set[int] = set()  # workers that somebody buries next
        # Time passes by moving all times that are stored; claims that are out have to follow.
        self.passed = timedelta()
        self.passed_at_claim: dict[Any, timedelta] = {}
        self.begin_run()

    # What is done to both

    def apply(self, *given: ops.Operation) -> None:
        """Act from outside."""
        self.end([(None, {"operations": given})])

    def add(self, *given: ops.CreateItem) -> None:
        """Create items in bulk, as `scrapy itemgraph add` does."""
        ready = additions.of([ops.checked(one, "here") for one in given])
        assert ready is not None
        with graphs.committed(self.connection):
            engine.hot_path(self.connection)
            shared = crawls.share_crawl(self.connection, self.ours.id)
            additions.add(self.connection, ready, crawl=shared)
        self.model.commit([End(tuple(given))])
        self.pass_depths_on()

    def track_depth(self, limit: int | None) -> None:
        """Have the crawl track depth, with a limit; or set another one."""
        with graphs.committed(self.connection):
            crawl_depths.set_limit(self.connection, self.ours.id, limit, by="a person")
        self.model.track_depth(limit)
        self.pass_depths_on()

    def pass_depths_on(self) -> None:
        """Do all that is due of depths."""
        did = self.model.tracks_depth
        while did:
            with graphs.committed(self.connection):
                engine.hot_path(self.connection)
                steps = (sweeps.free, sweeps.sweep, relax.relax)
                did = sum(step(self.connection, self.ours.id) for step in steps) > 0

    def end(self, ends: Sequence[tuple[Any, dict[str, Any]]]) -> None:
        """Commit a batch: of claims (None: from outside) and how they end, as `End` says it."""
        ours, model = self.prepared(ends)
        assert_became(model, self.model.commit(model), self.ours.commit(*ours))
        self.pass_depths_on()

    def prepared(
        self, ends: Sequence[tuple[Any, dict[str, Any]]]
    ) -> tuple[list[ops.Changeset], list[End]]:
        """Return a batch as the package has it, and as the model does."""
        ours, model = [], []
        for claim, fields in ends:
            is_of_callback = claim is not None and self.model.tasks[claim.task].is_callback
            allowed = {"allow_failure": True} if is_of_callback else {}
            nothing = {"operations": ()} if fields.get("outcome") == "unchanged" else {}
            end = End(token=None if claim is None else claim.token, **fields | allowed | nothing)
            model.append(end)
            ours.append(
                graphs.changeset(
                    claim and self._aged(claim),
                    *map(self.stored_form, end.operations),
                    outcome=Outcome(end.outcome),
                    allow_failure=end.allow_failure,
                    delay=timedelta(hours=end.delay) if end.outcome == "retry" else None,
                    is_of_callback=is_of_callback,
                    led_to=end.led_to if end.outcome == "known" else None,
                )
            )
        attached = [one for changeset in ours for one in ops.attachments(changeset.operations)]
        self.contents.store(self.connection, [one.content for one in attached])
        self._note_contents(one.content.data for one in attached)
        return ours, model

    def _note_contents(self, stored: Iterable[bytes | None] = ()) -> None:
        """Note which contents were named, or stored, at this moment."""
        for one in {*stored, *self.model.contents()}:
            assert one is not None
            self.named_at[one] = self.model.now

    def _aged(self, claim: Any) -> Any:
        """Return a claim as it were if it had been there when time passed."""
        if claim.invalidated_at is None:
            return claim
        passed = self.passed - self.passed_at_claim[claim.token]
        return replace(claim, invalidated_at=claim.invalidated_at - passed)

    def stored_form(self, one: Any) -> ops.Operation:
        """Return an operation as the package has it."""
        if not isinstance(one, Enqueue):
            return one
        again = {"in each run": self.run, "whenever": WHENEVER, "if gone": self.run}
        changed_at = datetime.now(UTC) - timedelta(hours=CHANGED)
        return EnqueueRequest(
            id=one.name,
            tags=(task_options.callback_tag(one.callback),),
            data=one.data,
            nice=one.nice,
            again=again.get(one.again),
            only_gone=one.again == "if gone",
            changed_at=changed_at if one.again == "if changed" else None,
        )

    def claim(self, limit: int, *, alone: bool = False, dies: bool = False) -> list[Any]:
        """Let a new worker claim; check that it may have what it took, and that it took enough."""
        worker = self.ours.new_worker(timedelta(seconds=-1 if dies else 60))
        if dies:
            self.dead.add(worker)
        could = self.model.claimable()
        could = {pair for pair in could if self.model.is_suspect(pair) == alone}
        running = {pair for pair, work in self.model.work.items() if work.token is not None}
        _, order = reading.stored_work(self.connection, self.ours.id)
        taken = self.ours.claim(limit, worker=worker, alone=alone)
        pairs = [self.pair(claim) for claim in taken]
        for claim, pair in zip(taken, pairs, strict=True):
            assert pair in could, f"{self.shown(pair)} was claimed, but may not be"
            assert claim.attempt == self.model.work[pair].tries + 1
            assert claim.is_alone == alone
            against = [one for one in running if self.model.excludes(pair, one)]
            assert not against, f"{self.shown(pair)} was claimed beside {against}"
            running.add(pair)
        left = {
            pair
            for pair in could.difference(pairs)
            if not any(self.model.excludes(pair, one) for one in running)
        }
        # Of each website it looks at its share, so it may take less than it wants, but not nothing.
        if not taken or limit > len(could) * len(self.model.tasks):
            assert not left, f"not claimed, though it may be: {[*map(self.shown, left)]}"
        else:
            self._check_order(pairs, left, order)
        for claim, pair in zip(taken, pairs, strict=True):
            item = self.model.items[pair.item]
            assert claim.item.data == item.data
            assert claim.item.id == item.name
            assert dict(claim.item.tags) == item.tags
            assert claim.request == self.model.work[pair].request
            self.model.claim(pair, claim.token, worker)
            self.keep(claim, worker)
        return taken

    def keep(self, claim: Any, worker: int) -> None:
        """Keep a claim that was made, to be ended later."""
        self.claims.append((claim, worker))
        self.passed_at_claim[claim.token] = self.passed

    def _check_order(self, taken: list[Pair], left: set[Pair], order: list[str]) -> None:
        """Check that of one website nothing was left that goes before what was taken."""
        for one in taken:
            place = order.index(self.shown(one))
            for other in left:
                if self.model.slot(one) == self.model.slot(other):
                    before = place < order.index(self.shown(other))
                    assert before, f"{self.shown(other)} goes before {self.shown(one)}"

    def pair(self, claim: Any) -> Pair:
        """Return the model's pair of a claim that was just made."""
        return Pair(self.model.resolve(claim.item.id), claim.task)

    def shown(self, pair: Pair) -> str:
        """Return a pair as it is shown."""
        return f"{self.model.items[pair.item].name} {pair.task}"

    def release(self, *claims: Any) -> None:
        """Give claims back."""
        self.ours.release(*claims)
        self.model.release(claim.token for claim in claims)

    def refile(self, claim: Any, worker: int, slot: str) -> None:
        """Give a claim back that belongs to another website."""
        with graphs.committed(self.connection):
            number = stored_slots.intern_slots(self.connection, [slot])[slot]
            queue = queues.intern(self.connection, self.ours.id, number)
            stored_claims.refile(self.connection, claim, queue, worker)
        self.model.refile(claim.token, slot)

    def redirect(self, claim: Any, name: str | None, url: str) -> None:
        """Let a claim's request be redirected."""
        request = {"url": url}
        with graphs.committed(self.connection):
            engine.hot_path(self.connection)
            move = Redirect(claim=claim, name=name, request=json.dumps(request))
            (answer,) = stored_redirects.redirect(self.connection, self.ours.id, [move])
        assert str(answer) == self.model.redirect(claim.token, name, request)

    def die(self, limit: int, *, alone: bool) -> None:
        """Let a worker claim, die, and be buried."""
        taken = self.claim(limit, alone=alone, dies=True)
        assert self.ours.take_over() == len(taken)
        self.model.bury(self.claims[-1][1] if taken else 0)

    def begin_run(self) -> None:
        """Begin a run, in which start requests are fetched once."""
        with graphs.committed(self.connection):
            runs.end_continued(self.connection, self.ours.id)
            self.run = self.connection.scalar(runs.BEGIN, {"crawl": self.ours.id})
        self.model.begin_run()

    def let_pass(self, hours: float, *, staged: bool) -> None:
        """Let time pass; unless `staged`, what that changes is not noticed yet."""
        self._note_contents()
        self.passed += timedelta(hours=hours)
        with graphs.committed(self.connection):
            crawl_changes.age(self.connection, self.ours.id, timedelta(hours=hours))
            self.connection.execute(AGE_CONTENTS, {"period": timedelta(hours=hours)})
        if staged:
            self.ours.stage()
        else:
            self.model.begin_sweep()
        self.model.let_pass(hours)

    def handle(self, task: str | None, *, retry: bool) -> None:
        """Handle failures."""
        self.people.failures.handle(task=task, retry=retry)
        self.model.handle(task, retry=retry)

    def handle_led(self, name: str) -> None:
        """Have what led to an item run again, if there is one."""
        if self.model.names.get(name) is None:
            return
        self.people.failures.handle(led_to=name)
        self.model.handle_led(name)

    def unhandle(self, hours: float, task: str | None) -> None:
        """Undo what was handled in the last hours."""
        since = self.connection.scalar(NOW) - timedelta(hours=hours)
        self.people.failures.unhandle(since, task=task)
        self.model.unhandle(self.model.now - hours, task)

    def set_nice(self, name: str, nice: int | None) -> None:
        """Give an item a priority of its own, or none."""
        try:
            self.people.set_nice(name, nice)
        except NotFoundError:
            assert self.model.names.get(name) is None
        else:
            self.model.set_nice(name, nice)

    def set_aside(self, name: str, hold: str | None, freed: str) -> None:
        """Skip or stash an item, or free what is `freed` of it."""
        pages = self.people.pages
        try:
            if hold is None:
                pages.free(freed, [name])
            else:
                pages.set_aside(hold, [name])
        except NotFoundError:
            assert self.model.names.get(name) is None
        else:
            self.model.set_aside(name, hold, freed)

    def put_rules(self, patterns: Sequence[str]) -> None:
        """Have rules skip pages from the next claim on."""
        rules = tuple(PageRule(match=re.escape(one), skip=True) for one in patterns)
        self.people.rules.put(Ruleset(rules=rules), by="a person")
        self.model.put_rules(patterns)

    def apply_rules(self) -> None:
        """Apply the rules to what waits, to the end, if there are any."""
        if not self.model.ever_skipped:
            return
        self.people.rules.apply()
        while self.people.rules.apply_step():
            pass
        self.model.apply_rules()

    def switch(self, task: str, *, enabled: bool) -> None:
        """Enable or disable a task."""
        tasks = self.people.tasks
        (tasks.enable if enabled else tasks.disable)(task)
        self.model.switch(task, enabled=enabled)

    def recompute_ttl(self, task: str) -> None:
        """Let a task's results expire as it says now."""
        self.people.tasks.recompute_ttl(task)
        self.model.recompute_ttl(task)

    def collect(self, *, now: bool) -> None:
        """Delete contents that no item has; check that these are gone, and no others.

        One that was named or stored in the last twelve hours stays, one of more than a day goes.
        """
        self._note_contents()
        for store in self.contents.stores(self.connection):
            store.collect(now=now)
        left = reading.stored_contents(self.connection)
        named, passed = self.model.contents(), self.model.now
        if now:
            assert set(left.values()) == named
        else:
            ages = {one: passed - at for one, at in self.named_at.items()}
            recent = {one for one, hours in ages.items() if hours < 12}
            old = {one for one, hours in ages.items() if hours > 24}
            assert named | recent <= set(left.values()), "collected too early"
            assert not old & set(left.values()) - named, "not collected"
        large = sorted(number for number, one in left.items() if len(one) >= LARGE)
        assert self.contents.files() == large
        self.note_collected()

    def note_collected(self) -> None:
        """Forget when contents were named that have been collected since."""
        left = set(reading.stored_contents(self.connection).values())
        self.named_at = {one: at for one, at in self.named_at.items() if one in left}

    def start(self, tasks: Mapping[str, Task]) -> None:
        """Start with other code; `sweep` brings it to the items."""
        self.ours.register(swept=False, **declared(tasks))
        self.model.start(tasks)

    def sweep(self) -> None:
        """Bring what changed to all items, step by step."""
        while self.sweep_step():
            pass
        self.model.end_sweep()

    def sweep_step(self) -> bool:
        """Bring it to some items; tell whether there was something to do."""
        is_open = self.ours.sweep_step()
        oracle.assert_worklist_is_true(self.connection, self.ours.id)
        return is_open

    def rename_tag(self, old: str, new: str) -> None:
        """Rename a tag, as a setting does at the start."""
        with graphs.committed(self.connection):
            item_sweeps.rename_tags(self.connection, {old: new})
        self.model.rename_tag(old, new)

    def notice(self) -> None:
        """Notice all that is due by now."""
        self.ours.stage()
        self.model.end_sweep()

    # What must be the same

    def check(self) -> None:
        """Compare the whole graph and the whole worklist, after all that is due was noticed."""
        self.notice()
        self.compare()

    def compare(self) -> None:
        """Compare the whole graph and the whole worklist."""
        oracle.assert_worklist_is_true(self.connection, self.ours.id)
        assert_same(
            reading.stored_graph(self.connection, self.ours.id), reading.model_graph(self.model)
        )
        if self.model.tracks_depth:
            named = {one.name: n for n, one in self.model.items.items()}
            expected = {name: self.model.depths.get(n, 0) for name, n in named.items()}
            assert_same(reading.stored_depths(self.connection, self.ours.id), expected)
        work, order = reading.stored_work(self.connection, self.ours.id)
        assert_same(work, reading.model_work(self.model))
        self._check_first_in_first_out(order)
        self._check_expiries()

    def _check_expiries(self) -> None:
        """Check which pairs were expired since they were claimed, and will be stale (SRAP-50)."""
        rows = self.connection.execute(reading.EXPIRIES, {"crawl": self.ours.id})
        expired_at = {row.token: row.invalidated_at for row in rows}
        for claim, _ in self.claims:
            pair = self.model.claimed(claim.token)
            if pair is not None:
                stored = expired_at.get(claim.token) not in {
                    None,
                    self._aged(claim).invalidated_at,
                }
                is_expired = self.model.is_expired(pair)
                assert stored == is_expired, f"{self.shown(pair)} expired under its claim: {stored}"

    def _check_first_in_first_out(self, order: list[str]) -> None:
        """Check that what waits longer goes first, where rank and nice are the same (SRAP-16)."""
        waiting = {
            self.shown(pair): (
                (self.model.state(pair) == "stale", self.model.nice(pair)),
                self.model.work[pair].since,
            )
            for pair in self.model.work
        }
        for earlier, later in itertools.pairwise(order):
            (rank, since), (next_rank, next_since) = waiting[earlier], waiting[later]
            assert rank <= next_rank, f"{later} goes before {earlier}"
            if rank == next_rank:
                assert since[0] <= next_since[1], f"{later} waits longer than {earlier}"


def assert_became(ends: Sequence[End], became: Sequence[Became], applied: Sequence[Any]) -> None:
    """Compare what became of each changeset."""
    for end, one, other in zip(ends, became, applied, strict=True):
        outcome = None if other.outcome is None else str(other.outcome)
        error = None if other.error is None else other.error.type.rpartition(".")[2]
        assert (outcome, error) == (one.outcome, one.error), (
            f"{end} became {outcome, error}: {other.error}; in the model {one}"
        )


def assert_same(ours: Any, model: Any, where: str = "") -> None:
    """Compare what is stored with what the model says, and name where they differ."""
    if isinstance(ours, dict) and isinstance(model, dict):
        for key in {*ours, *model}:
            path = f"{where} > {key}" if where else str(key)
            assert key in ours, f"{path}: not stored; the model has {model[key]}"
            assert key in model, f"{path}: the model has none; stored is {ours[key]}"
            assert_same(ours[key], model[key], path)
    else:
        assert ours == model, f"{where}: stored is {ours!r}, the model has {model!r}"
