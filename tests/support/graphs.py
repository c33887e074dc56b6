"""A crawl without Scrapy, for tests: `item` → `work` → `claimed`, and what a graph holds."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.model import operations, tasks
from scrapy_itemgraph.model.failure_filters import FailureFilter
from scrapy_itemgraph.model.operations import Changeset, CreateItem
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import failures, open_failures, queues
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import crawl_changes, outstanding, status
from scrapy_itemgraph.store.registry import crawls, dead_processes, item_sweeps, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import expired_results, refresh, timers
from support import flights, oracle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy_itemgraph.model.attempt_logs import LogLine
    from scrapy_itemgraph.model.snapshots import ItemSnapshot, ResultSnapshot
    from scrapy_itemgraph.model.work import Applied, Claim, InFlight

LEASE = timedelta(hours=1)  # longer than any module of tests takes, however busy the machine is
SLOT = "a.example"
ERROR = ErrorRecord(type="ValueError", message="no price")


def spider(**declared: dict[str, Any]) -> type:
    """Make a spider class whose methods are tasks: `spider(parse={"tags": ["page"]})`."""
    methods = {}
    for method, options in declared.items():

        def callback(self, response, item): ...

        callback.__name__ = callback.__qualname__ = method
        methods[method] = tasks.task(**options)(callback)
    return type("Spider", (), methods)


@contextmanager
def committed(connection: sa.Connection) -> Iterator[None]:
    """Check at its end that no row of an item is left without the item."""
    with connection.begin_nested():
        yield
        oracle.assert_rows_have_items(connection)


class Crawl:
    """One crawl's tasks, workers, claims and time, on one connection."""

    def __init__(self, connection: sa.Connection, name: str = "books", spider: str = "shop"):
        self.connection = connection
        self.name = name
        self.spider = spider
        self.id = crawls.make_crawl(connection, name)
        self.registration = stored_tasks.Registration(tasks={})
        self.worker = self.new_worker()

    @classmethod
    def of(cls, connection: sa.Connection, **declared: Any) -> Crawl:
        """Make a crawl with these tasks, by default one task `parse` for the tag `page`."""
        crawl = cls(connection)
        crawl.register(**(declared or {"parse": {"tags": ["page"]}}))
        return crawl

    # A start of the spider

    def register(
        self,
        *,
        swept: bool = True,
        default_ttl: timedelta | None = None,
        callbacks: Mapping[str, Mapping[str, Any]] | None = None,
        **declared: Any,
    ) -> stored_tasks.Registration:
        """Register the tasks that the code now declares, and carry its sweeps out.

        `callbacks` are plain ones whose requests the crawl has, with their options.
        """
        found = tasks.discover(spider(**declared))
        plain = {name: tasks.of_callback(name, given) for name, given in (callbacks or {}).items()}
        with committed(self.connection):
            self.registration = stored_tasks.register_tasks(
                self.connection,
                self.id,
                self.spider,
                found,
                default_ttl,
                of_callback=plain.__getitem__ if plain else None,
            )
            if plain:
                self.registration.tasks.update(
                    stored_tasks.register_callbacks(
                        self.connection, self.id, self.spider, plain.values(), default_ttl
                    )
                )
        if swept:
            self.sweep()
        return self.registration

    def sweep(self) -> int:
        """Carry out all open sweeps; return how many steps that took."""
        steps = 0
        while self.sweep_step():
            steps += 1
        return steps

    def sweep_step(self) -> bool:
        """Carry out one step of a sweep."""
        with committed(self.connection):
            return item_sweeps.sweep(self.connection, self.id)

    def new_worker(self, lease: timedelta = LEASE) -> int:
        """Register a worker; with a lease below zero one that is given up for dead."""
        return workers.register(
            self.connection,
            self.id,
            spider=self.spider,
            host="here",
            process_id=1,
            job=None,
            lease=lease,
        ).id

    def task_id(self, task: str) -> int:
        """Return a task's number."""
        rows = stored_tasks.known_tasks(self.connection, self.id)
        return next(row.id for row in rows if row.name == task)

    # The ladder

    def item(self, name: str = "A", *, tags: Any = (), data: Any = None, **fields: Any) -> int:
        """Make an item without work, and return its number."""
        data = {"url": f"http://{SLOT}/{name}"} if data is None else data
        self.do(CreateItem(name, tags, data, **fields))
        return self.item_id(name)

    def work(self, name: str = "A", *, tags: Any = ("page",), **fields: Any) -> int:
        """Make an item that has work to do, and return its number."""
        return self.item(name, tags=tags, **fields)

    def claimed(self, name: str = "A", task: str = "parse", **fields: Any) -> Claim:
        """Make an item if it is not there, and claim the work of its task."""
        if self.get(name) is None:
            self.work(name, **fields)
        return self.claim_pair(name, task)

    def done(self, name: str = "A", *given: Any, task: str = "parse", **fields: Any) -> Claim:
        """Make an item if it is not there, run its task, and yield what is given."""
        claim = self.claimed(name, task, **fields)
        assert self.end(claim, *given).outcome is Outcome.OK
        return claim

    def failed(self, name: str = "A", task: str = "parse", **fields: Any) -> Claim:
        """Make an item if it is not there, and let its task fail."""
        claim = self.claimed(name, task, **fields)
        assert self.end(claim, outcome=Outcome.FAILED).outcome is Outcome.FAILED
        return claim

    # Claims and their ends

    def claim(
        self,
        limit: int = 1000,
        *,
        alone: bool = False,
        worker: int | None = None,
        in_flight: InFlight | None = None,
    ) -> list:
        """Claim what may be claimed now; without `in_flight` all of it is in flight."""
        with committed(self.connection):
            engine.hot_path(self.connection)
            claims = stored_claims.claim(
                self.connection,
                crawl_id=self.id,
                worker_id=worker or self.worker,
                tasks=self.registration.tasks,
                limit=limit,
                alone=alone,
                in_flight=in_flight,
            )
            if in_flight is None:
                flights.begin(self.connection, worker or self.worker, claims)
            return claims

    def claim_pair(self, name: str, task: str = "parse", *, worker: int | None = None) -> Claim:
        """Claim one pair, and give back whatever else the claim took."""
        taken = self.claim(worker=worker)
        (ours,) = [c for c in taken if (c.item_id, c.task) == (self.item_id(name), task)]
        self.release(*(c for c in taken if c is not ours), worker=worker)
        return ours

    def release(self, *claims: Claim, worker: int | None = None) -> int:
        """Give claims back in their place."""
        with committed(self.connection):
            return stored_claims.release(self.connection, claims, worker or self.worker)

    def end(self, claim: Claim | None, *given: Any, **fields: Any) -> Applied:
        """End a claim (None: act from outside) with operations; see `changeset`."""
        (applied,) = self.commit(changeset(claim, *given, **fields))
        return applied

    def commit(self, *changesets: Changeset, worker: int | None = None) -> list[Applied]:
        """Apply a batch of changesets in a transaction."""
        while True:
            try:
                with committed(self.connection):
                    engine.hot_path(self.connection)
                    shared = crawls.share_crawl(self.connection, self.id)
                    return apply.apply(
                        self.connection,
                        changesets,
                        crawl=shared,
                        worker_id=worker or self.worker,
                        spider=self.spider,
                    )
            except apply.MovedNamesError:
                continue

    def do(self, *given: operations.Operation) -> list[str]:
        """Apply operations from outside, all of them; return the labels of their notes."""
        applied = self.end(None, *given)
        assert applied.error is None, applied.error
        return [note.label for note in applied.notes]

    def refused(self, *given: operations.Operation) -> str:
        """Apply operations from outside that cannot be carried out; return the message."""
        applied = self.end(None, *given)
        assert applied.error is not None
        return applied.error.message

    def handle(self, task: str | None = None, *, retry: bool = True) -> int:
        """Handle open failures, as the door for people does; return how many."""
        with committed(self.connection):
            found = self.open_failures(task)
            pairs = sorted({(row.item_id, row.task_id) for row in found})
            locked = stored_items.lock_items(self.connection, [item for item, _ in pairs])
            failures.supersede(self.connection, pairs, by="a person")
            if retry:
                failures.unhold(self.connection, pairs)
                refresh.refresh(self.connection, locked)
                queues.wake_crawl(self.connection, self.id)
            return len(found)

    def take_over(self, worker: int | None = None) -> int:
        """Free the claims of workers that died."""
        with committed(self.connection):
            return dead_processes.take_over(self.connection, self.id, worker or self.worker).claims

    def die(self, claims: int = 1000, *, alone: bool = False) -> int:
        """Let a new worker claim and die; return how many claims were taken over."""
        self.claim(claims, alone=alone, worker=self.new_worker(timedelta(seconds=-1)))
        return self.take_over()

    # Time

    def age(self, **period: float) -> None:
        """Let time pass, and stage what fell due by it."""
        with committed(self.connection):
            crawl_changes.age(self.connection, self.id, timedelta(**period))
        self.stage()

    def stage(self) -> None:
        """Stage timers and results that are due."""
        with committed(self.connection):
            while timers.stage_timers(self.connection, self.id):
                pass
            until = self.connection.scalar(engine.NOW)
            while expired_results.stage_results(self.connection, self.id, until):
                pass

    # What the graph holds

    def item_id(self, name: str) -> int | None:
        """Return the number of the item of a name."""
        return stored_items.resolve(self.connection, self.id, name)

    def get(self, name: str) -> ItemSnapshot | None:
        """Return the item of a name."""
        item_id = self.item_id(name)
        return (
            None if item_id is None else stored_items.snapshots(self.connection, [item_id])[item_id]
        )

    def result(self, name: str = "A", task: str = "parse") -> ResultSnapshot | None:
        """Return a task's result of an item; None where no row is stored."""
        found = status.results(self.connection, self.id, self.item_id(name))
        return next((r for r in found if r.task == task and r.version is not None), None)

    def state(self, name: str = "A", task: str = "parse") -> str | None:
        """Return the state of a pair: never run, fresh, stale or held; None: not called for."""
        found = status.results(self.connection, self.id, self.item_id(name))
        return next((r.state for r in found if r.task == task), None)

    def worklist(self) -> list[str]:
        """Return outstanding, unclaimed work in its order, as "item task"."""
        rows = outstanding.worklist(self.connection, self.id, task=None, limit=10_000)
        return [f"{row.item} {row.task}" for row in rows]

    def failures(self, task: str | None = None) -> list[str]:
        """Return the items of open failures, the oldest first."""
        numbers = [one.id for one in self.open_failures(task)]
        return [row.item for row in open_failures.rows(self.connection, numbers)]

    def open_failures(self, task: str | None = None) -> list[failures.PairOfFailure]:
        """Return open failures and their pairs, the oldest first."""
        which = FailureFilter(task=task)
        return open_failures.look(self.connection, self.id, which).found

    def attempts(self, name: str = "A") -> list[str]:
        """Return how the attempts at an item ended, the oldest first."""
        rows = self.rows(
            "SELECT outcome FROM attempts WHERE item_id = :item ORDER BY id",
            item=self.item_id(name),
        )
        return [row.outcome for row in rows]

    def rows(self, sql: str, **given: Any) -> list[Any]:
        """Return the rows of a query."""
        return list(self.connection.execute(sa.text(sql), given))


def changeset(
    claim: Claim | None,
    *given: operations.Operation,
    outcome: Outcome = Outcome.OK,
    error: ErrorRecord | None = None,
    delay: timedelta | None = None,
    allow_failure: bool = False,
    log: Sequence[LogLine] = (),
    is_of_callback: bool = False,
    items_scraped: int = 0,
    led_to: str | None = None,
) -> Changeset:
    """Make a changeset of checked operations; a failure has an error."""
    if error is None and outcome in {Outcome.FAILED, Outcome.REFUSED, Outcome.RETRY}:
        error = ERROR
    return Changeset(
        operations=tuple(operations.checked(one, "here") for one in given),
        outcome=outcome,
        claim=claim,
        error=error,
        delay=delay,
        allow_failure=allow_failure,
        log=log,
        is_of_callback=is_of_callback,
        items_scraped=items_scraped,
        led_to=led_to,
    )


def graph_state(connection: sa.Connection, crawl_id: int) -> dict[str, dict[str, Any]]:
    """Return what two graphs are compared by: neither times, nor attempts, nor `created_by`."""
    items = connection.execute(
        sa.text("SELECT id, name, data FROM items WHERE crawl_id = :crawl ORDER BY name"),
        {"crawl": crawl_id},
    ).all()
    snapshots = stored_items.snapshots(connection, [row.id for row in items])
    return {
        row.name: {
            "aliases": sorted(snapshots[row.id].aliases),
            "tags": dict(snapshots[row.id].tags),
            "data": row.data,
            "results": {
                result.task: (result.metadata, result.version, result.is_successful)
                for result in status.results(connection, crawl_id, row.id)
                if result.version is not None
            },
        }
        for row in items
    }
