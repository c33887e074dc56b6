"""The graph for people and programs outside a crawl: CLI, HTTP, scripts."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph.changesets import additions, apply
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import connect
from scrapy_itemgraph.graph.activity_calls import ActivityCalls
from scrapy_itemgraph.graph.crawl_calls import CrawlCalls
from scrapy_itemgraph.graph.failure_calls import FailureCalls
from scrapy_itemgraph.graph.journal_calls import JournalCalls
from scrapy_itemgraph.graph.limit_calls import LimitCalls
from scrapy_itemgraph.graph.look_calls import LookCalls
from scrapy_itemgraph.graph.prepared import prepare
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.postgres import grants as role_grants
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import crawl_reports, explain, outstanding, status
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.command_watchdog import Patience
    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.roles import Grants
    from scrapy_itemgraph.model.snapshots import ItemSnapshot, ResultSnapshot
    from scrapy_itemgraph.model.work import Note

_MOST_OF_URL = 10


class ItemGraph(ActivityCalls, CrawlCalls, FailureCalls, JournalCalls, LimitCalls, LookCalls):
    """One crawl's graph; each call is a transaction of its own."""

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
        connections: int | None = None,
        lock_wait: float = 0.0,
    ) -> Iterator[ItemGraph]:
        """Open the graph at `url`, or the embedded one in `data_dir`.

        Without `crawl` the database's only crawl is meant. Without `patience` a lock, or a server
        that does not answer, is waited for as long as it takes; a lock `lock_wait` seconds at most,
        unless that is 0. Threads may share the graph; `connections` is how many it has at most.

        Raises:
            DatabaseError: when the server or its schema cannot be used, in one clear line.

        """
        with (
            connect.connected(
                url, Path(data_dir), patience, connections=connections, lock_wait=lock_wait
            ) as (engine, alone_since),
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

    def explain(self, name: str, task: str | None = None) -> list[explain.Explanation]:
        """Say for a task of an item, or each, whether it may run now and what decides."""

        def run(connection: Connection, crawl_id: int) -> list[explain.Explanation]:
            item_id = self._item(connection, crawl_id, name)
            return explain.explain(connection, crawl_id, item_id, task)

        return self._of_known(task, run)
