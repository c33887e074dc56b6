"""The graph for people and programs outside a crawl: CLI, HTTP, scripts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.changesets import additions, apply
from scrapy_itemgraph.exceptions import DatabaseError, NotFoundError, OperationError
from scrapy_itemgraph.graph import connect
from scrapy_itemgraph.graph.prepared import prepare
from scrapy_itemgraph.graph.transactions import BlockingTransactions
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.postgres import grants as role_grants
from scrapy_itemgraph.store import failures, queues, scraped_items
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import (
    crawl_reports,
    dump,
    dump_lines,
    explain,
    limits_report,
    load,
    outstanding,
    status,
)
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Engine

    from scrapy_itemgraph.graph.command_watchdog import Patience
    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.feeds import Kept
    from scrapy_itemgraph.model.rates import RateLimit
    from scrapy_itemgraph.model.roles import Grants
    from scrapy_itemgraph.model.snapshots import ItemSnapshot, ResultSnapshot
    from scrapy_itemgraph.model.work import Note

P = ParamSpec("P")
T = TypeVar("T")

HANDLED_BY = "a person"
LOCK_TIMEOUT = "55P03"
_PAGE = 500
_MOST_OF_URL = 10
_SETTLE_MS = 10_000  # who waits for longer would hold up the workers that wait behind


class ItemGraph:
    """One crawl's graph; each call is a transaction of its own."""

    def __init__(self, engine: Engine, crawl: str | None) -> None:
        self._transactions = BlockingTransactions(engine)
        self._call = self._transactions.call
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
        patience: Patience | None = None,
    ) -> Iterator[ItemGraph]:
        """Open the graph at `url`, or the embedded one in `data_dir`.

        Without `crawl` the database's only crawl is meant. Without `patience` a lock, or a server
        that does not answer, is waited for as long as it takes.

        Raises:
            DatabaseError: when the server or its schema cannot be used, in one clear line.

        """
        with (
            connect.connected(url, Path(data_dir), patience) as (engine, alone_since),
            errors.translated(engine.url),
        ):
            automatic = url is None if auto_migrate is None else auto_migrate
            with errors.all_translated(engine.url), engine.begin() as connection:
                engines.check_version(connection)
                connect.ensure_schema(connection, auto=automatic, alone_since=alone_since)
            yield cls(engine, crawl)

    @staticmethod
    def migrate(
        url: str | None = None,
        *,
        data_dir: str | Path = ".scrapy/itemgraph",
        patience: Patience | None = None,
        reached: Callable[[int, int], None] | None = None,
        force: bool = False,
    ) -> connect.Migrated:
        """Make the schema at `url`, or in the embedded server, or bring it up to date.

        `reached` hears after each version how many of how many are made.

        Raises:
            OperationError: while a worker lives, unless with `force`.

        """
        return connect.migrated(url, Path(data_dir), patience, reached, force=force)

    def grants(self, kind: str, role: str, *, apply: bool = False) -> Grants:
        """Return what gives a role the rights of a kind of role; carry it out if `apply`.

        Raises:
            NotFoundError: there is no such role.
            OperationError: there is no such kind, or somebody else owns the tables.

        """
        if kind not in set(RoleKind):
            kinds = ", ".join(RoleKind)
            raise OperationError(f"there is no kind of role {kind!r}; the kinds are {kinds}")

        def given(connection: Connection) -> Grants:
            found = role_grants.of_kind(connection, RoleKind(kind), role)
            if apply:
                role_grants.apply(connection, found)
            return found

        return self._call(given)

    def announce(self, what: str, done: int, total: int | None = None) -> None:
        """Let `status` show how far long work is, while the next calls' transactions last."""
        self._transactions.announce(what, done, total)

    @property
    def crawl(self) -> str:
        """The crawl's name."""
        if self._crawl is None:
            self._crawl = self._call(self._only_crawl)
        return self._crawl

    def _only_crawl(self, connection: Connection) -> str:
        names = status.crawls(connection)
        if len(names) != 1:
            known = ", ".join(names) or "none yet"
            raise NotFoundError(
                "name the crawl that you mean, with --crawl NAME (in Python crawl=); "
                f"the database has {known}"
            )
        return names[0]

    def crawls(self) -> list[str]:
        """Return the names of all crawls."""
        return self._call(status.crawls)

    def _of_crawl(
        self,
        function: Callable[Concatenate[Connection, int, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function of (connection, crawl) in a transaction."""
        name = self.crawl

        def within(connection: Connection) -> T:
            crawl_id = crawls.find_crawl(connection, name)
            if crawl_id is None:
                known = status.crawls(connection)
                listed = ", ".join(known) or "none yet"
                raise NotFoundError(
                    f"there is no crawl {name!r}{closest(name, known)}; the database has {listed}"
                )
            return function(connection, crawl_id, *args, **kwargs)

        return self._call(within)

    def apply(
        self, given: Iterable[operations.Operation] | Prepared, *, names: Sequence[str] = ()
    ) -> list[Note]:
        """Apply operations in one transaction; a crawl that does not exist yet is made.

        `names` are what errors call the operations, such as "line 7".

        Raises:
            OperationError: naming the operation; then nothing is changed.

        """
        prepared = prepare(given, names)

        def run(connection: Connection) -> list[Note]:
            crawl_id, _ = crawls.make_crawl(connection, self.crawl)
            engines.hot_path(connection)
            crawl = crawls.share_crawl(connection, crawl_id)
            if (new := prepared.additions) is not None:
                return additions.add(connection, new, crawl_id=crawl_id, now=crawl.now)
            changeset = operations.Changeset(operations=prepared.operations, outcome=Outcome.OK)
            (applied,) = apply.apply(connection, [changeset], crawl=crawl, worker_id=None)
            if applied.error is not None:
                name = prepared.names[applied.failed_at or 0]
                raise OperationError(f"{name}: {applied.error.message}")
            return list(applied.notes)

        return self._call(run)

    def get(self, name: str) -> ItemSnapshot | None:
        """Return an item by its id or an alias; None when there is none."""
        return self._of_crawl(stored_items.named, name)

    def of_url(self, url: str) -> list[status.ItemOfUrl]:
        """Return (item, url, method) of up to ten items whose data names a URL.

        All of the crawl's items are looked through.
        """
        return self._of_crawl(status.of_url, url=url, limit=_MOST_OF_URL)

    def items(self) -> Iterator[ItemSnapshot]:
        """Go through all items, a thousand at a time, in the order in which they were made."""
        after = 0
        while numbers := self._of_crawl(
            stored_items.item_ids, after=after, limit=crawl_reports.STEP
        ):
            yield from self._call(partial(stored_items.snapshots, item_ids=numbers)).values()
            after = numbers[-1]

    def journal(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        item_classes: Sequence[str] = (),
    ) -> Iterator[Kept]:
        """Go through the scraped items that were kept, a page at a time, in one snapshot.

        `since` is the first moment that counts, `until` the first that does not any more.

        Raises:
            NotFoundError: when nothing of one of the classes is kept.

        """

        def check(connection: Connection, crawl_id: int) -> int:
            known = scraped_items.classes(connection, crawl_id) if item_classes else {}
            for name in item_classes:
                if name not in known:
                    raise NotFoundError(
                        f"no item of the class {name!r} is kept{closest(name, known)}; "
                        f"there are items of {', '.join(known) or 'none yet'}"
                    )
            return crawl_id

        return self._pages(self._of_crawl(check), since, until, item_classes)

    def _pages(
        self,
        crawl_id: int,
        since: datetime | None,
        until: datetime | None,
        item_classes: Sequence[str],
    ) -> Iterator[Kept]:
        read = partial(
            scraped_items.read,
            crawl_id=crawl_id,
            limit=_PAGE,
            since=since,
            until=until,
            item_classes=item_classes,
        )
        after = 0
        with self._transactions.snapshot() as connection:
            while rows := read(connection, after_id=after):
                self._transactions.show(connection)
                yield from rows
                after = rows[-1].number

    def kept(self) -> int:
        """Count the scraped items that were kept."""
        return self._of_crawl(scraped_items.count)

    def settled(self) -> datetime:
        """Wait for the commits under way to end, and return the moment at which they had.

        What was kept before it is in the journal, and all that follows will be kept after it.
        """

        def settled(connection: Connection, crawl_id: int) -> datetime:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SETTLE_MS}")
            try:
                crawls.own_crawl(connection, crawl_id)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != LOCK_TIMEOUT:
                    raise
                raise DatabaseError(
                    f"a transaction of the crawl {self.crawl!r} has been open for {_SETTLE_MS} ms; "
                    "try again, and look for a suspended worker with `scrapy itemgraph status`"
                ) from None
            moment: datetime = connection.execute(engines.NOW).scalar_one()
            return moment

        return self._of_crawl(settled)

    def results(self, name: str) -> list[ResultSnapshot]:
        """Return what each task of an item produced, and those that have not run yet."""
        return self._of_item(name, status.results)

    def attempts(self, name: str, limit: int = 10) -> list[status.Attempt]:
        """Return the last attempts at an item's tasks, the latest first."""
        return self._of_item(
            name, lambda connection, _, item_id: status.attempts(connection, item_id, limit=limit)
        )

    def worklist(
        self, task: str | None = None, limit: int = 100
    ) -> list[outstanding.OutstandingWork]:
        """Return outstanding work, what was never run first."""
        return self._of_known(task, partial(outstanding.worklist, task=task, limit=limit))

    def failures(self, task: str | None = None, limit: int = 1000) -> list[failures.OpenFailure]:
        """Return open failures, the oldest first, with what their attempts logged."""

        def failed(connection: Connection, crawl_id: int) -> list[failures.OpenFailure]:
            found = failures.opened(connection, crawl_id, task=task, limit=limit)
            return failures.logged(connection, found)

        return self._of_known(task, failed)

    def handle(
        self, failure: int | None = None, *, task: str | None = None, retry: bool = True
    ) -> int:
        """Mark failures as handled: one, a task's, or all; return how many pairs that concerned.

        Their pairs may run again, unless `retry` is False: then they stay held.
        """

        def handle(connection: Connection, crawl_id: int) -> int:
            crawls.share_crawl(connection, crawl_id)
            found = failures.opened(
                connection, crawl_id, task=task, failure=failure, limit=crawl_reports.STEP
            )
            pairs = sorted({(row.item_id, row.task_id) for row in found})
            locked = stored_items.lock_items(connection, [item for item, _ in pairs])
            failures.supersede(connection, pairs, by=HANDLED_BY)
            if retry:
                failures.unhold(connection, pairs)
                refresh.refresh(connection, locked)
                queues.wake_crawl(connection, crawl_id)
            return len(pairs)

        total = 0
        while count := self._of_known(task, handle):
            total += count
        if failure is not None and not total:
            raise NotFoundError(f"there is no open failure {failure}")
        return total

    def tasks(self) -> list[status.TaskState]:
        """Return every task with what is done, waiting and failed of it."""
        return self._of_crawl(status.tasks)

    def enable(self, task: str) -> None:
        """Let a task's work be claimed again."""
        self._of_task(task, partial(stored_tasks.set_enabled, enabled=True))

    def disable(self, task: str) -> None:
        """Leave a task's work unclaimed until it is enabled."""
        self._of_task(task, partial(stored_tasks.set_enabled, enabled=False))

    def recompute_ttl(self, task: str) -> int:
        """Let a task's results expire as its time to live says now, but for overridden ones.

        Returns how many changed; work that follows from it is made by the next run.
        """
        return self._of_task(task, crawl_reports.recompute_ttl)

    def status(self) -> dict[str, Any]:
        """Return the crawl's numbers."""
        return {"crawl": self.crawl, **self._of_crawl(status.status)}

    def explain(self, name: str, task: str | None = None) -> list[explain.Explanation]:
        """Say for a task of an item, or each, whether it may run now and what decides."""

        def run(connection: Connection, crawl_id: int) -> list[explain.Explanation]:
            item_id = self._item(connection, crawl_id, name)
            return explain.explain(connection, crawl_id, item_id, task)

        return self._of_known(task, run)

    def slots(self, *, of_crawl: bool = False, limit: int = 100) -> list[limits_report.LimitState]:
        """Return the limits with names, then slots, those with the most work first.

        With `of_crawl` only those that this crawl's work keeps to; `limit` is of the slots.
        """

        def slots(connection: Connection, crawl_id: int | None) -> list[limits_report.LimitState]:
            engines.hot_path(connection)
            return limits_report.listed(connection, crawl_id=crawl_id, limit=limit)

        if of_crawl:
            return self._of_crawl(slots)
        return self._call(lambda connection: slots(connection, None))

    def block(
        self, slot: str, *, until: datetime | None = None, for_: timedelta | None = None
    ) -> limits_report.Changed:
        """Let nothing start in a slot until a moment, or for a period from now.

        Raises:
            OperationError: when that is past, or more than a hundred years away.

        """
        return self._call(lambda c: limits_report.block(c, slot, until=until, for_=for_))

    def unblock(self, slot: str) -> limits_report.Changed:
        """End a slot's block, be it a person's or one that the site asked for.

        Raises:
            NotFoundError: when no work has ever named the slot.

        """
        return self._call(lambda c: limits_report.unblock(c, slot))

    def set_delay(self, slot: str, seconds: float | None) -> limits_report.Changed:
        """Set the least seconds between two starts in a slot; None takes that back.

        Raises:
            OperationError: when it is not above 0, or more than a day.

        """
        return self._call(lambda c: limits_report.set_delay(c, slot, seconds))

    def set_limit(self, name: str, rate: RateLimit | str | None) -> limits_report.Changed:
        """Set the rate and concurrency of a limit, in place of what the code says; None: again so.

        Raises:
            NotFoundError: for a limit that no task declares; slots are made.
            OperationError: when it is no rate.

        """
        return self._call(lambda c: limits_report.set_limit(c, name, rate))

    def restart(
        self, *, dry_run: bool = False, reached: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Delete all that a crawl has, and return how much of what; its tasks stay known.

        `reached` hears now and then how many of how many items are gone.

        Raises:
            OperationError: while a worker of the crawl lives.

        """

        def run(connection: Connection, crawl_id: int) -> dict[str, int]:
            if dry_run:
                return crawl_reports.holds(connection, crawl_id)
            crawls.own_crawl(connection, crawl_id)
            crawl_reports.refuse_workers(connection, crawl_id)
            return crawl_reports.restart(connection, crawl_id, reached)

        return self._of_crawl(run)

    def dump(self) -> Iterator[str]:
        """Go through the lines of a dump of the crawl, JSON without newlines, in one snapshot."""
        crawl_id = self._of_crawl(lambda _, crawl_id: crawl_id)
        with self._transactions.snapshot() as connection:
            yield from dump.lines(connection, crawl_id)

    def load(
        self, lines: Iterable[str], *, reached: Callable[[int], None] | None = None
    ) -> dict[str, int]:
        """Make a crawl of the lines of a dump, and return how much there was of what.

        It is this graph's crawl, or the dump's own where none was named; nobody sees it before it
        is whole. `reached` hears now and then how many lines were read.

        Raises:
            OperationError: when there is such a crawl already, or naming the line that is wrong;
                then nothing is loaded.

        """
        numbered = enumerate(lines, 1)
        head = dump_lines.head(next(numbered, (1, ""))[1])
        self._crawl = self._crawl or head

        def intern(wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
            return self._call(partial(stored_slots.intern_limits, keys=wanted))

        with self._transactions.long() as connection, ThreadPoolExecutor(1) as writer:
            loading = load.Load(connection, self._crawl, intern, writer)
            for number, line in numbered:
                loading.add(f"line {number}", line)
                if reached is not None and number % crawl_reports.STEP == 0:
                    reached(number)
            return loading.finish()

    def age(self, period: timedelta) -> None:
        """Move every time of the crawl back, as if that much had passed."""
        self._of_crawl(crawl_reports.age, period)

    def _of_item(self, name: str, function: Callable[[Connection, int, int], T]) -> T:
        """Run a function of (connection, crawl, item) in a transaction."""
        return self._of_crawl(lambda c, crawl: function(c, crawl, self._item(c, crawl, name)))

    def _of_task(self, task: str, function: Callable[[Connection, int, int], T]) -> T:
        """Run a function of (connection, crawl, task) in a transaction."""
        return self._of_crawl(lambda c, crawl: function(c, crawl, self._task_id(c, crawl, task)))

    def _of_known(self, task: str | None, function: Callable[[Connection, int], T]) -> T:
        """Run a function of (connection, crawl) in a transaction, if the crawl knows the task."""
        if task is None:
            return self._of_crawl(function)
        return self._of_task(task, lambda connection, crawl, _: function(connection, crawl))

    def _item(self, connection: Connection, crawl_id: int, name: str) -> int:
        item_id = stored_items.resolve(connection, crawl_id, name)
        if item_id is None:
            deleted = stored_items.is_taken(connection, crawl_id, name)
            why = "was deleted, and its name stays taken" if deleted else "does not exist"
            raise NotFoundError(f"the item {name!r} {why}")
        return item_id

    def _task_id(self, connection: Connection, crawl_id: int, task: str) -> int:
        ids = {row.name: row.id for row in stored_tasks.known_tasks(connection, crawl_id)}
        if task not in ids:
            raise NotFoundError(f"there is no task {task!r}{closest(task, ids)}")
        return int(ids[task])
