"""The graph for people and programs outside a crawl: CLI, HTTP, scripts."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph.connections import connect
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph.change_calls import ChangeCalls
from scrapy_itemgraph.graph.parts.activity import ActivityCalls
from scrapy_itemgraph.graph.parts.crawls import CrawlCalls
from scrapy_itemgraph.graph.parts.failures import FailureCalls
from scrapy_itemgraph.graph.parts.journal import JournalCalls
from scrapy_itemgraph.graph.parts.limits import LimitCalls
from scrapy_itemgraph.graph.parts.lookup import LookCalls
from scrapy_itemgraph.graph.parts.tokens import TokenCalls
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.postgres import grants as role_grants
from scrapy_itemgraph.settings import blob_store
from scrapy_itemgraph.store.admin import explain, outstanding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.command_watchdog import Patience
    from scrapy_itemgraph.model.roles import Grants


class ItemGraph(
    ActivityCalls,
    ChangeCalls,
    CrawlCalls,
    FailureCalls,
    JournalCalls,
    LimitCalls,
    LookCalls,
    TokenCalls,
):
    """One crawl's graph; each call is a transaction of its own."""

    @classmethod
    @contextmanager
    def open(
        cls,
        url: str | None = None,
        crawl: str | None = None,
        *,
        data_dir: str | Path = ".scrapy/itemgraph",
        postgres_bin: Path | None = None,
        auto_migrate: bool | None = None,
        patience: Patience | None = None,
        connections: int | None = None,
        lock_wait: float = 0.0,
        blobs: str | Path = DATABASE,
    ) -> Iterator[ItemGraph]:
        """Open the graph at `url`, or the embedded one in `data_dir`.

        `postgres_bin` is the folder of the embedded server's programs, as ITEMGRAPH_POSTGRES_BIN
        says it. `blobs` is where contents of blobs are written, as ITEMGRAPH_BLOBS says it:
        "database", a folder, or a URL. Without `crawl` the database's only crawl is meant. Without
        `patience` a lock, or a server that does not answer, is waited for as long as it takes; a
        lock `lock_wait` seconds at most, unless that is 0. Threads may share the graph;
        `connections` is how many it has at most.

        Raises:
            DatabaseError: when the server or its schema cannot be used, in one clear line.

        """
        with (
            connect.connected(
                url,
                Path(data_dir),
                patience,
                postgres_bin=postgres_bin,
                connections=connections,
                lock_wait=lock_wait,
            ) as (engine, alone_since),
            errors.translated(engine.url),
        ):
            automatic = url is None if auto_migrate is None else auto_migrate
            with errors.all_translated(engine.url), engine.begin() as connection:
                engines.check_version(connection)
                connect.ensure_schema(connection, auto=automatic, alone_since=alone_since)
            yield cls(engine, crawl, blob_store(str(blobs), Path.cwd()))

    @contextmanager
    def beside(self) -> Iterator[ItemGraph]:
        """Yield the same graph on one connection of its own, which no other call keeps busy.

        It gives up soon: after seconds a server that is not reached is an error.
        """
        with connect.beside(self._engine) as engine:
            yield type(self)(engine, self._crawl, self._blobs)

    @staticmethod
    def migrate(
        url: str | None = None,
        *,
        data_dir: str | Path = ".scrapy/itemgraph",
        postgres_bin: Path | None = None,
        patience: Patience | None = None,
        reached: Callable[[int, int], None] | None = None,
        force: bool = False,
    ) -> connect.Migrated:
        """Make the schema at `url`, or in the embedded server, or bring it up to date.

        `reached` hears after each version how many of how many are made.

        Raises:
            OperationError: while a worker lives, unless with `force`.

        """
        return connect.migrated(
            url, Path(data_dir), patience, reached, postgres_bin=postgres_bin, force=force
        )

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

    def worklist(
        self, task: str | None = None, limit: int = 100, *, tag: str | None = None
    ) -> list[outstanding.OutstandingWork]:
        """Return outstanding work, what was never run first.

        With `tag` that of items which have it, for tasks that it calls for.
        """
        read = partial(outstanding.worklist, task=task, tag=tag, limit=limit)
        return self._of_known(task, read)

    def explain(self, name: str, task: str | None = None) -> list[explain.Explanation]:
        """Say for a task of an item, or each, whether it may run now and what decides."""

        def run(connection: Connection, crawl_id: int) -> list[explain.Explanation]:
            item_id = self._item(connection, crawl_id, name)
            return explain.explain(connection, crawl_id, item_id, task)

        return self._of_known(task, run)
