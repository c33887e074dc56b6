"""What the methods of `ItemGraph` are made of: functions of a connection, each in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from scrapy_itemgraph.connections.transactions import BlockingTransactions
from scrapy_itemgraph.contents.transfer import CommandContents
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

P = ParamSpec("P")
T = TypeVar("T")


class Calls:
    """Runs functions in transactions, for a crawl, an item or a task by their names."""

    def __init__(
        self,
        engine: Engine,
        crawl: str | None,
        blobs: str = DATABASE,
        *,
        is_from_outside: bool = False,
    ) -> None:
        """Take the crawl's name, and the URL of the store of blobs' contents.

        What is changed by calls that come over HTTP `is_from_outside`.
        """
        self._engine = engine
        self._blobs = blobs
        self._transactions = BlockingTransactions(engine)
        self._call = self._transactions.call
        self._crawl = crawl
        self._is_from_outside = is_from_outside
        self._contents = CommandContents(self._call, blobs)

    def of(self, crawl: str | None = None) -> Self:
        """Return the graph of another crawl, on the same connections; None: of the same crawl.

        Nothing is asked of the database yet.
        """
        return type(self)(
            self._engine,
            crawl or self._crawl,
            self._blobs,
            is_from_outside=self._is_from_outside,
        )

    def from_outside(self) -> Self:
        """Return the same graph for calls that come over HTTP: what they change is marked so."""
        return type(self)(self._engine, self._crawl, self._blobs, is_from_outside=True)

    def ping(self) -> None:
        """Ask the database something that costs nothing.

        Raises:
            DatabaseError: it does not answer.

        """
        self._call(lambda connection: connection.execute(engines.NOW))

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
                own = [one for one in known if one.startswith(f"{name}:")]
                listed = ", ".join(own or known) or "none yet"
                raise NotFoundError(
                    f"there is no crawl {name!r}{closest(name, known)}; the database has {listed}"
                )
            return function(connection, crawl_id, *args, **kwargs)

        return self._call(within)

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
