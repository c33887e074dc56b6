"""The graph for people and programs outside a crawl: CLI, HTTP, scripts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scrapy_itemgraph.connections import connect
from scrapy_itemgraph.contents.transfer import CommandContents
from scrapy_itemgraph.graph import item_documents
from scrapy_itemgraph.graph.applying import Applying
from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions, item_id
from scrapy_itemgraph.graph.parts.activity import Activity
from scrapy_itemgraph.graph.parts.blobs import Blobs
from scrapy_itemgraph.graph.parts.costs import Costs
from scrapy_itemgraph.graph.parts.crawls import Crawls
from scrapy_itemgraph.graph.parts.database import Database
from scrapy_itemgraph.graph.parts.depths import Depths
from scrapy_itemgraph.graph.parts.duties import Duties
from scrapy_itemgraph.graph.parts.failures import Failures
from scrapy_itemgraph.graph.parts.jobs import Jobs
from scrapy_itemgraph.graph.parts.journal import Journal
from scrapy_itemgraph.graph.parts.limits import Limits
from scrapy_itemgraph.graph.parts.lookup import Lookup
from scrapy_itemgraph.graph.parts.notices import Notices
from scrapy_itemgraph.graph.parts.pages import Pages
from scrapy_itemgraph.graph.parts.queue import Queue
from scrapy_itemgraph.graph.parts.rules import Rules
from scrapy_itemgraph.graph.parts.runners import Runners
from scrapy_itemgraph.graph.parts.schedules import Schedules
from scrapy_itemgraph.graph.parts.tasks import Tasks
from scrapy_itemgraph.graph.parts.tokens import Tokens
from scrapy_itemgraph.graph.prepared import prepare
from scrapy_itemgraph.model import input_checks, operations
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.model.work import NEW
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.settings import blob_store
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import page_search, queues
from scrapy_itemgraph.store.admin import (
    crawl_changes,
    explain,
    explain_rules,
    item_pages,
    outstanding,
    status,
)
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from scrapy_itemgraph.connections.patience import Patience
    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.snapshots import ItemSnapshot, ListedItem, ResultSnapshot
    from scrapy_itemgraph.model.work import Note


class ItemGraph:
    """One crawl's graph; each call is a transaction of its own.

    Items are read and changed by its own methods; the rest hangs under nouns, such as
    `graph.failures.list()`.
    """

    def __init__(
        self,
        engine: Engine,
        crawl: str | None,
        blobs: str = DATABASE,
        *,
        is_from_outside: bool = False,
    ) -> None:
        """Take the crawl's name, and the URL of the store that contents of blobs are written to.

        With `is_from_outside` what is changed is marked as given by a stranger, over HTTP.
        """
        self._engine = engine
        self._store = blobs
        self._is_from_outside = is_from_outside
        self._transactions = transactions = CrawlTransactions(engine, crawl)
        contents = CommandContents(transactions.call, blobs)
        self._applying = Applying(transactions, contents, is_from_outside=is_from_outside)
        self.activity = Activity(transactions)
        self.blobs = Blobs(transactions, contents)
        self.costs = Costs(transactions)
        self.crawls = Crawls(transactions, contents)
        self.database = Database(transactions)
        self.depths = Depths(transactions)
        self.duties = Duties(transactions)
        self.failures = Failures(transactions)
        self.jobs = Jobs(transactions)
        self.journal = Journal(transactions)
        self.limits = Limits(transactions)
        self.lookup = Lookup(transactions)
        self.notices = Notices(transactions)
        self.pages = Pages(transactions)
        self.queue = Queue(transactions)
        self.rules = Rules(transactions)
        self.runners = Runners(transactions)
        self.schedules = Schedules(transactions)
        self.tasks = Tasks(transactions)
        self.tokens = Tokens(transactions)

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

        `postgres_bin` is the folder of the embedded server's programs, as in
        ITEMGRAPH_POSTGRES_BIN. `blobs` is where contents of blobs are written, as in
        ITEMGRAPH_BLOBS: "database", a folder, or a URL. Without `crawl` the database's only crawl
        is meant. Without `patience` calls wait for a lock, or for a server that does not answer, as
        long as it takes; `lock_wait` is the longest wait for a lock in seconds, 0: no limit.
        Threads may share the graph; `connections` is how many connections it opens at most.

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

        Its calls raise an error after a few seconds where the server cannot be reached.
        """
        with connect.beside(self._engine) as engine:
            yield type(self)(engine, self._transactions.named, self._store)

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

        `reached(done, total)` is called after each version that is made.

        Raises:
            OperationError: a worker lives, and `force` is not given.

        """
        return connect.migrated(
            url, Path(data_dir), patience, reached, postgres_bin=postgres_bin, force=force
        )

    def of(self, crawl: str | None = None) -> Self:
        """Return the graph of another crawl, on the same connections; None: of the same crawl.

        Nothing is asked of the database yet.
        """
        return self._of(crawl, is_from_outside=self._is_from_outside)

    def from_outside(self) -> Self:
        """Return the same graph, which marks what it changes as given by a stranger over HTTP."""
        return self._of(None, is_from_outside=True)

    def _of(self, crawl: str | None, *, is_from_outside: bool) -> Self:
        named = crawl or self._transactions.named
        return type(self)(self._engine, named, self._store, is_from_outside=is_from_outside)

    @property
    def crawl(self) -> str:
        """The crawl's name."""
        return self._transactions.crawl

    def apply(
        self, given: Iterable[operations.Operation] | Prepared, *, names: Sequence[str] = ()
    ) -> list[Note]:
        """Apply operations in one transaction; a crawl that does not exist yet is made.

        `names` are what errors call the operations, such as "line 7".

        Raises:
            OperationError: naming the operation; then nothing is changed.

        """
        return self._applying.run(prepare(given, names))

    def add(self, created: operations.CreateItem) -> dict[str, Any]:
        """Add an item, unless its id is taken; return `id`, `created`, `aliases` and `tasks`.

        `id` is that of the item that there is now, and `tasks` those that its tags call for.
        """
        notes = self.apply([created], names=["add"])
        item = self.get(str(created.id))
        tasks = [] if item is None else [one.task for one in self.results(str(created.id))]
        return {
            "id": created.id if item is None else item.id,
            "created": any(note.label == NEW for note in notes),
            "aliases": [] if item is None else list(item.aliases),
            "tasks": tasks,
        }

    def merge(
        self, name: str, *, data: Mapping[str, Any] | None = None, tags: operations.Tags = ()
    ) -> bool:
        """Merge data and tags into an item; return whether it was made by this call.

        Data is merged key by key. Tags are added; a tag that the item has gets the new value.
        """
        valued = dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(tags)
        changes = [
            operations.CreateItem(name),
            operations.UpdateData(dict(data or {}), id=name),
            *(operations.AddTag(tag, value, id=name) for tag, value in valued.items()),
        ]
        named = ["item", "data", *(f"tag {tag}" for tag in valued)]
        return self.apply(changes, names=named)[0].label == NEW

    def delete(self, name: str, *, keep_name: bool = False) -> Note:
        """Delete an item, its results and its work; return the note that says so.

        With `keep_name` its names stay taken: an item of such a name is not made again.

        Raises:
            NotFoundError: there is no such item.

        """
        name = self.lookup.page(name).item  # raises for an unknown name, saying why
        deleted = operations.DeleteItem(name, forget=not keep_name)
        return self.apply([deleted], names=["delete"])[0]

    def expire(self, name: str, task: str | None = None) -> list[ResultSnapshot]:
        """Make an item's results stale, so that its tasks run again; return what they are now.

        A task that a failure holds back may run again, too.

        Raises:
            NotFoundError: there is no such item.

        """
        name = self.lookup.page(name).item  # raises for an unknown name, saying why
        return self._change(operations.Expire(id=name, task=task), name, task)

    def set_ttl(self, name: str, ttl: Any, task: str | None = None) -> list[ResultSnapshot]:
        """Change when an item's results expire, as `SetTTL` says; return what they are now.

        Raises:
            NotFoundError: there is no such item.

        """
        name = self.lookup.page(name).item
        return self._change(operations.SetTTL(ttl, id=name, task=task), name, task)

    def _change(
        self, operation: operations.Operation, name: str, task: str | None
    ) -> list[ResultSnapshot]:
        self.apply([operation], names=[name])
        return [one for one in self.results(name) if task is None or one.task == task]

    def set_nice(self, name: str, nice: int | None) -> None:
        """Set an item's nice: work with a lower number runs earlier. None: as its tasks say.

        Raises:
            NotFoundError: there is no such item.

        """
        input_checks.check_nice(nice)

        def set_nice(connection: Connection, crawl_id: int, item_id: int) -> None:
            crawls.share_crawl(connection, crawl_id)
            refresh.refresh(connection, stored_items.set_nice(connection, item_id, nice))
            queues.wake_crawl(connection, crawl_id)

        self._transactions.of_item(name, set_nice)

    def get(self, name: str) -> ItemSnapshot | None:
        """Return an item by its id or an alias, or a page by its URL; None when there is none.

        Raises:
            NotFoundError: several pages have the URL; it lists them.

        """
        found = self._transactions.of_crawl(stored_items.named, name)
        return found or self._transactions.of_crawl(_of_url, name)

    def items(
        self,
        *,
        task: str | None = None,
        tag: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[ListedItem]:
        """Go through items in the order in which they were made, a thousand at a time.

        With `task` their tags call for it. With `state` it, or a task of theirs, is "never run",
        "fresh", "stale", "held" or "gone"; with `since` they were made or changed, or a task of
        theirs completed, from then on. `after` is the id of the item behind which to begin; `limit`
        is how many there are at most.

        Raises:
            OperationError: there is no such state.
            NotFoundError: there is no such task, no item `after`, or the tag is misspelt.

        """
        if after is None:
            self._transactions.check_tag(tag)
        number = None if task is None else self._transactions.of_task(task, _number)
        wanted = item_pages.Wanted(tag, state, since, number)
        reached = None if after is None else self._transactions.of_item(after, _number)
        left = sys.maxsize if limit is None else limit
        while left > 0:
            page = self._transactions.of_crawl(
                item_pages.page, wanted, after=reached, limit=min(left, crawl_changes.STEP)
            )
            yield from page.rows
            left -= len(page.rows)
            reached = page.after
            if reached is None:
                return

    def results(self, name: str) -> list[ResultSnapshot]:
        """Return what each task of an item produced, and those that have not run yet.

        Raises:
            NotFoundError: there is no such item.

        """
        return self._transactions.of_item(name, status.results)

    def show(self, name: str, *, attempts: int = 10) -> dict[str, Any]:
        """Return all of an item as one document, as `scrapy itemgraph show --json` has it.

        Raises:
            NotFoundError: there is no such item, or its name stays taken.

        """
        return self._transactions.of_item(
            name, partial(item_documents.of_item, name=name, attempts=attempts)
        )

    def worklist(
        self, task: str | None = None, limit: int = 100, *, tag: str | None = None
    ) -> list[outstanding.OutstandingWork]:
        """Return outstanding work that nobody has claimed, never-run work first.

        With `tag` only work of items that have the tag, for tasks that it calls for.

        Raises:
            NotFoundError: there is no such task, or the tag is misspelt.

        """
        self._transactions.check_tag(tag)
        read = partial(outstanding.worklist, task=task, tag=tag, limit=limit)
        return self._transactions.of_known(task, read)

    def explain(self, name: str, task: str | None = None) -> list[explain.Explanation]:
        """Say of one task of an item, or of each, whether it may run now, and why."""

        def run(connection: Connection, crawl_id: int) -> list[explain.Explanation]:
            number = item_id(connection, crawl_id, name)
            found = explain.explain(connection, crawl_id, number, task)
            return explain_rules.with_rules(connection, crawl_id, number, found)

        return self._transactions.of_known(task, run)

    def status(self) -> dict[str, Any]:
        """Return the crawl's numbers."""
        return {"crawl": self.crawl, **self._transactions.of_crawl(status.status)}


def _of_url(connection: Connection, crawl_id: int, name: str) -> ItemSnapshot | None:
    if not page_search.find(connection, crawl_id, name):
        return None
    number = item_id(connection, crawl_id, name)
    return stored_items.snapshots(connection, [number]).get(number)


def _number(_: Connection, __: int, number: int) -> int:
    return number
