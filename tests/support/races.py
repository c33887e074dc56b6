"""Connections that are stepped through an interleaving, one statement at a time if need be.

Nothing here sleeps and hopes: a step has returned, is seen to be blocked by PostgreSQL itself, or
is held by us before a statement.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.model import tasks as task_options
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.work import ClaimBudget, Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawls, dead_processes, item_sweeps, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims
from support import flights, oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.work import Applied, Claim
    from scrapy_itemgraph.store.worklist.admission import Admission

PATIENCE = 60.0
HOUR = timedelta(hours=1)
BLOCKED = sa.text("SELECT cardinality(pg_blocking_pids(:pid)) > 0")


class Actor:
    """A connection with a thread of its own, so that its steps may block."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1)
        self.connection = engine.connect()
        self.pid = self.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        self.connection.rollback()
        self._running: Future[Any] | None = None
        self._pause: Any = None
        self._paused = threading.Event()
        self._resumed = threading.Event()
        sa.event.listen(self.connection, "before_execute", self._before)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do a step that must not block, within the open transaction."""
        return self.start(function, *args, **kwargs).result(PATIENCE)

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a step that may block."""
        self._running = self._thread.submit(function, self.connection, *args, **kwargs)
        return self._running

    def until_blocked(self) -> None:
        """Return when PostgreSQL says that the step waits for another connection's lock."""
        assert self._running is not None
        with self._engine.connect() as observer:
            for _ in _patiently():
                if observer.scalar(BLOCKED, {"pid": self.pid}):
                    return
                observer.rollback()
                assert not self._running.done(), f"not blocked: {self._running}"
        raise AssertionError("the step neither blocked nor ended")

    def pause_before(self, statement: Any) -> None:
        """Hold the coming step before this statement."""
        self._pause = statement
        self._paused.clear()
        self._resumed.clear()

    def until_paused(self) -> None:
        """Return when the step is held."""
        assert self._running is not None
        for _ in _patiently():
            if self._paused.wait(0.01):
                return
            assert not self._running.done(), f"never got there: {self._running}"
        raise AssertionError("the step was never held")

    def until_held_or_done(self) -> None:
        """Return when the step is held, or has returned without coming to that statement."""
        assert self._running is not None
        for _ in _patiently():
            if self._paused.is_set() or self._running.done():
                self._pause = None
                return
        raise AssertionError("the step was neither held nor ended")

    def until_blocked_or_done(self) -> bool:
        """Return when the step waits for another connection's lock or has returned: True then."""
        assert self._running is not None
        with self._engine.connect() as observer:
            for _ in _patiently():
                if self._running.done():
                    return True
                if observer.scalar(BLOCKED, {"pid": self.pid}):
                    return False
                observer.rollback()
        raise AssertionError("the step neither blocked nor ended")

    def resume(self) -> Any:
        """Let the step go on, and return what it returns."""
        assert self._running is not None
        self._resumed.set()
        return self._running.result(PATIENCE)

    def commit(self) -> None:
        """Commit what the steps did."""
        self._thread.submit(self.connection.commit).result(PATIENCE)

    def rollback(self) -> None:
        """Undo what the steps did."""
        self._thread.submit(self.connection.rollback).result(PATIENCE)

    def close(self) -> None:
        """End whatever still runs, and the thread."""
        self._resumed.set()
        with self._engine.begin() as observer:
            observer.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": self.pid})
        self._thread.shutdown(wait=True)
        self.connection.invalidate()
        self.connection.close()

    def _before(self, connection: Any, statement: Any, *_: Any) -> None:
        if self._pause is not None and statement is self._pause:
            self._pause = None
            self._paused.set()
            assert self._resumed.wait(PATIENCE)


@contextmanager
def actors(engine: sa.Engine, count: int) -> Iterator[list[Actor]]:
    """Yield that many connections."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(Actor(engine))
            stack.callback(made[-1].close)
        yield made


class Crawl:
    """A crawl of one spider, as its workers see it."""

    def __init__(self, engine: sa.Engine, spider: type, name: str = "books") -> None:
        self.engine = engine
        with engine.begin() as connection:
            self.id = crawls.make_crawl(connection, name)
        self.register(spider)

    def register(self, spider: type) -> None:
        """Register a spider's tasks, and sweep what that changed."""
        with self.engine.begin() as connection:
            self.declare(connection, spider)
        self.sweep()

    def declare(self, connection: sa.Connection, spider: type) -> None:
        """Register a spider's tasks in the caller's transaction."""
        found = task_options.discover(spider)
        self.tasks = stored_tasks.register_tasks(connection, self.id, "spider", found, None).tasks

    def sweep(self) -> None:
        """Finish all open sweeps."""
        done = False
        while not done:
            with self.engine.begin() as connection:
                engines.hot_path(connection)
                done = not item_sweeps.sweep(connection, self.id)

    def only(self, *names: str) -> dict[int, Any]:
        """Return some of the tasks, as a worker that knows no others."""
        return {number: one for number, one in self.tasks.items() if one[0] in names}

    def task_id(self, name: str) -> int:
        """Return a task's number."""
        (number,) = self.only(name)
        return number

    def worker(self, lease: timedelta = HOUR) -> int:
        """Register a worker without a lock, whose lease alone says that it lives."""
        with self.engine.begin() as connection:
            return workers.register(
                connection,
                self.id,
                spider="spider",
                host="here",
                process_id=1,
                job=None,
                lease=lease,
            ).id

    def expire_lease(self, worker: int) -> None:
        """Make a worker one that gave no sign of life for too long."""
        self.execute(
            "UPDATE processes SET lease_until = now() - interval '1 s' WHERE id = :worker",
            worker=worker,
        )

    def claim(
        self,
        connection: sa.Connection,
        worker: int,
        limit: int = 25,
        *,
        tasks: dict[int, Any] | None = None,
        alone: bool = False,
        admission: Admission | None = None,
    ) -> list[Claim]:
        """Claim in the caller's transaction."""
        engines.hot_path(connection)
        return claims.claim(
            connection,
            crawl_id=self.id,
            worker_id=worker,
            tasks=self.tasks if tasks is None else tasks,
            limit=limit,
            alone=alone,
            admission=admission,
        )

    def claimed(self, worker: int, limit: int = 25, **options: Any) -> list[Claim]:
        """Claim and commit."""
        with self.engine.begin() as connection:
            taken = self.claim(connection, worker, limit, **options)
            flights.begin(connection, worker, taken)
            return taken

    def apply(
        self, connection: sa.Connection, *changesets: Changeset, worker: int | None = None
    ) -> list[Applied]:
        """Apply changesets in the caller's transaction, as a worker's commit does."""
        engines.hot_path(connection)
        shared = crawls.share_crawl(connection, self.id)
        return apply.apply(connection, changesets, crawl=shared, worker_id=worker, spider="spider")

    def operate(self, connection: sa.Connection, *operations: Any) -> Applied:
        """Apply operations in the caller's transaction, as a seed does."""
        (applied,) = self.apply(
            connection, Changeset(operations=tuple(operations), outcome=Outcome.OK)
        )
        return applied

    def seed(self, *operations: Any) -> Applied:
        """Apply operations and commit."""
        with self.engine.begin() as connection:
            applied = self.operate(connection, *operations)
        assert applied.error is None, applied.error
        return applied

    def take_over(self, connection: sa.Connection, worker: int = 0) -> int:
        """Free the claims of dead workers in the caller's transaction."""
        engines.hot_path(connection)
        crawls.share_crawl(connection, self.id)
        return dead_processes.take_over(connection, self.id, worker).claims

    def taken_over(self) -> int:
        """Free the claims of dead workers and commit."""
        with self.engine.begin() as connection:
            return self.take_over(connection)

    def execute(self, statement: str, **parameters: Any) -> int:
        """Execute a statement and commit; return how many rows it touched."""
        with self.engine.begin() as connection:
            return connection.execute(sa.text(statement), parameters).rowcount

    def rows(self, statement: str, **parameters: Any) -> list[Any]:
        """Return what is committed."""
        with self.engine.begin() as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement), parameters)]

    def outstanding(self) -> list[Any]:
        """Return all work as (item, task, is claimed)."""
        return self.rows(
            "SELECT coalesce(i.name, '?'), t.name, w.token IS NOT NULL FROM work w "
            "JOIN tasks t ON t.id = w.task_id LEFT JOIN items i ON i.id = w.item_id ORDER BY 1, 2"
        )

    def attempts(self) -> list[Any]:
        """Return how attempts ended, in order."""
        return [outcome for (outcome,) in self.rows("SELECT outcome FROM attempts ORDER BY id")]


@contextmanager
def watched(engine: sa.Engine, spider: type) -> Iterator[Crawl]:
    """Yield a crawl, and check its worklist at the end."""
    crawl = Crawl(engine, spider)
    yield crawl
    with engine.begin() as connection:
        oracle.assert_worklist_is_true(connection, crawl.id)


async def claimed(graph: WorkerGraph, most: int) -> list[Claim]:
    """Claim up to `most` pieces of work, with nothing in hand."""
    return list((await graph.claims.claim(ClaimBudget(most=most))).claims)


def ended(claim: Claim, *operations: Any, outcome: Outcome = Outcome.OK, **more: Any) -> Changeset:
    """Return the changeset of a claim's execution."""
    return Changeset(operations=tuple(operations), outcome=outcome, claim=claim, **more)


def _patiently() -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        yield
        time.sleep(0.002)
