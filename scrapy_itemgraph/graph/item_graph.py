"""The door for people and programs outside a crawl: CLI, HTTP, scripts."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from scrapy_itemgraph import (
    apply,
    database,
    explain,
    failures,
    migrate,
    operations,
    queries,
    refresh,
    registry,
    upkeep,
    work,
)
from scrapy_itemgraph.embedded import EmbeddedServer
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.tasks import closest
from scrapy_itemgraph.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection, Engine, Row

    from scrapy_itemgraph.types import ItemSnapshot, Note, ResultSnapshot

P = ParamSpec("P")
T = TypeVar("T")

HANDLED_BY = "a person"


class ItemGraph:
    """One crawl's graph, in transactions of its own."""

    def __init__(self, engine: Engine, crawl: str | None) -> None:
        self._engine = engine
        self._crawl = crawl

    @classmethod
    @contextmanager
    def open(
        cls,
        url: str | None = None,
        crawl: str | None = None,
        *,
        data_dir: str | Path = ".scrapy/itemgraph",
        auto_migrate: bool | None = None,
    ) -> Iterator[ItemGraph]:
        """Open the graph at `url`, or the embedded one in `data_dir`.

        Without `crawl` the database's only crawl is meant.

        Raises:
            DatabaseError: when the server or its schema cannot be used, in one clear line.

        """
        server = None
        if url is None:
            server = EmbeddedServer.start(Path(data_dir))
            url = server.url
        engine = None
        try:
            engine = database.sync_engine(url)
            with database.errors(engine.url):
                automatic = server is not None if auto_migrate is None else auto_migrate
                with engine.begin() as connection:
                    database.check_version(connection)
                    migrate.ensure(connection, auto=automatic)
                yield cls(engine, crawl)
        finally:
            if engine is not None:
                engine.dispose()
            if server is not None:
                server.close()

    @property
    def crawl(self) -> str:
        """The crawl's name."""
        if self._crawl is None:
            self._crawl = self._call(self._only_crawl)
        return self._crawl

    def _only_crawl(self, connection: Connection) -> str:
        names = [row.name for row in queries.crawls(connection)]
        if len(names) != 1:
            known = ", ".join(names) or "none yet"
            raise NotFoundError(f"name the crawl that you mean; the database has {known}")
        return str(names[0])

    def crawls(self) -> list[str]:
        """Return the names of all crawls."""
        return [row.name for row in self._call(queries.crawls)]

    def apply(self, given: Iterable[operations.Operation]) -> list[Note]:
        """Apply operations in one transaction; a crawl that does not exist yet is made.

        Raises:
            OperationError: naming the operation; then nothing is changed.

        """
        checked = tuple(
            operations.checked(operation, f"operation {number}")
            for number, operation in enumerate(given, 1)
        )
        changeset = operations.Changeset(operations=checked, outcome=Outcome.OK)

        def run(connection: Connection) -> list[Note]:
            crawl_id, _ = registry.make_crawl(connection, self.crawl)
            registry.share_crawl(connection, crawl_id)
            (applied,) = apply.apply(
                connection,
                [changeset],
                crawl_id=crawl_id,
                worker_id=None,
                now=database.hot_path(connection),
            )
            if applied.error is not None:
                raise OperationError(applied.error["message"])
            return list(applied.notes)

        while True:
            try:
                return self._call(run)
            except apply.MovedNamesError:
                continue

    def get(self, name: str) -> ItemSnapshot | None:
        """Return an item by its id or an alias; None when there is none."""

        def get(connection: Connection, crawl_id: int) -> ItemSnapshot | None:
            item_id = queries.resolve(connection, crawl_id, name)
            return None if item_id is None else work.snapshots(connection, [item_id]).get(item_id)

        return self._of_crawl(get)

    def results(self, name: str) -> list[ResultSnapshot]:
        """Return what each task of an item produced, and those that have not run yet."""
        return self._of_crawl(
            lambda connection, crawl_id: queries.results(
                connection, crawl_id, self._item(connection, crawl_id, name)
            )
        )

    def worklist(self, task: str | None = None, limit: int = 100) -> Sequence[Row[Any]]:
        """Return outstanding work, what was never run first."""
        return self._of_crawl(queries.worklist, task=task, limit=limit)

    def failures(self, task: str | None = None, limit: int = 1000) -> Sequence[Row[Any]]:
        """Return open failures, the oldest first."""
        return self._of_crawl(failures.opened, task=task, limit=limit)

    def handle(
        self, failure: int | None = None, *, task: str | None = None, retry: bool = True
    ) -> int:
        """Mark failures as handled: one, a task's, or all; return how many pairs that concerned.

        Their pairs may run again, unless `retry` is False: then they stay held.
        """

        def handle(connection: Connection, crawl_id: int) -> int:
            if task is not None:
                self._task_id(connection, crawl_id, task)
            registry.share_crawl(connection, crawl_id)
            found = failures.opened(
                connection, crawl_id, task=task, failure=failure, limit=upkeep.STEP
            )
            pairs = sorted({(row.item_id, row.task_id) for row in found})
            locked = refresh.lock_items(connection, [item for item, _ in pairs])
            failures.supersede(connection, pairs, by=HANDLED_BY)
            if retry:
                failures.unhold(connection, pairs)
                refresh.refresh(connection, locked)
                registry.wake_crawl(connection, crawl_id)
            return len(pairs)

        total = 0
        while count := self._of_crawl(handle):
            total += count
        if failure is not None and not total:
            raise NotFoundError(f"there is no open failure {failure}")
        return total

    def tasks(self) -> Sequence[Row[Any]]:
        """Return every task with what is done, waiting and failed of it."""
        return self._of_crawl(queries.tasks)

    def enable(self, task: str) -> None:
        """Let a task's work be claimed again."""
        self._of_crawl(lambda c, crawl_id: self._set_enabled(c, crawl_id, task, enabled=True))

    def disable(self, task: str) -> None:
        """Leave a task's work unclaimed until it is enabled."""
        self._of_crawl(lambda c, crawl_id: self._set_enabled(c, crawl_id, task, enabled=False))

    def _set_enabled(
        self, connection: Connection, crawl_id: int, task: str, *, enabled: bool
    ) -> None:
        task_id = self._task_id(connection, crawl_id, task)
        registry.set_enabled(connection, crawl_id, task_id, enabled=enabled)

    def recompute_ttl(self, task: str) -> int:
        """Let a task's results expire as its time to live says now, but for overridden ones.

        Returns how many changed; work that follows from it is made by the next run.
        """
        return self._of_crawl(
            lambda connection, crawl_id: upkeep.recompute_ttl(
                connection, crawl_id, self._task_id(connection, crawl_id, task)
            )
        )

    def status(self) -> dict[str, Any]:
        """Return the crawl's numbers."""
        return {"crawl": self.crawl, **self._of_crawl(queries.status)}

    def explain(self, name: str, task: str | None = None) -> list[explain.Explanation]:
        """Say for a task of an item, or each, whether it may run now and what decides."""

        def run(connection: Connection, crawl_id: int) -> list[explain.Explanation]:
            if task is not None:
                self._task_id(connection, crawl_id, task)
            item_id = self._item(connection, crawl_id, name)
            return explain.explain(connection, crawl_id, item_id, task)

        return self._of_crawl(run)

    def restart(self, *, dry_run: bool = False) -> dict[str, int]:
        """Delete all that a crawl has, and return how much of what; its tasks stay known.

        Raises:
            OperationError: while a worker of the crawl lives.

        """

        def run(connection: Connection, crawl_id: int) -> dict[str, int]:
            registry.own_crawl(connection, crawl_id)
            living = connection.execute(queries.WORKERS, {"crawl": crawl_id}).all()
            if any(not row.is_late for row in living) and not dry_run:
                raise OperationError(
                    f"worker {living[0].id} (process {living[0].process_id} on {living[0].host}) "
                    "runs this crawl; stop it first"
                )
            return upkeep.restart(connection, crawl_id, dry_run=dry_run)

        return self._of_crawl(run)

    def age(self, period: timedelta) -> None:
        """Move every time of the crawl back, as if that much had passed."""
        self._of_crawl(upkeep.age, period)

    def _of_crawl(
        self,
        function: Callable[Concatenate[Connection, int, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function of (connection, crawl) in a transaction."""
        name = self.crawl

        def within(connection: Connection) -> T:
            crawl_id = registry.find_crawl(connection, name)
            if crawl_id is None:
                known = [row.name for row in queries.crawls(connection)]
                listed = ", ".join(known) or "none yet"
                raise NotFoundError(
                    f"there is no crawl {name!r}{closest(name, known)}; the database has {listed}"
                )
            return function(connection, crawl_id, *args, **kwargs)

        return self._call(within)

    def _call(self, function: Callable[[Connection], T]) -> T:
        with database.errors(self._engine.url), self._engine.begin() as connection:
            return function(connection)

    def _item(self, connection: Connection, crawl_id: int, name: str) -> int:
        item_id = queries.resolve(connection, crawl_id, name)
        if item_id is None:
            deleted = queries.is_taken(connection, crawl_id, name)
            why = "was deleted, and its name stays taken" if deleted else "does not exist"
            raise NotFoundError(f"the item {name!r} {why}")
        return item_id

    def _task_id(self, connection: Connection, crawl_id: int, task: str) -> int:
        ids = {row.name: row.id for row in registry.known_tasks(connection, crawl_id)}
        if task not in ids:
            raise NotFoundError(f"there is no task {task!r}{closest(task, ids)}")
        return int(ids[task])
