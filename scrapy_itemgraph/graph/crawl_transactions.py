"""The transactions of one crawl's `ItemGraph`: for a crawl, an item or a task by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from scrapy_itemgraph.connections.transactions import BlockingTransactions
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import alike_pages
from scrapy_itemgraph.model import page_names
from scrapy_itemgraph.model.tasks import is_callback_tag
from scrapy_itemgraph.postgres.engine import hot_path
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import page_search
from scrapy_itemgraph.store import tags as stored_tags
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.tools.wording import closest, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

P = ParamSpec("P")
T = TypeVar("T")


class CrawlTransactions(BlockingTransactions):
    """Runs functions of a connection and a crawl, each in a transaction of its own.

    `named` is the crawl's name as far as it was given; None: the database's only crawl.
    """

    def __init__(self, engine: Engine, named: str | None) -> None:
        super().__init__(engine)
        self.named = named

    @property
    def crawl(self) -> str:
        """The crawl's name; where none was given, the database is asked once.

        Raises:
            NotFoundError: none was given, and the database has none, or more than one.

        """
        if self.named is None:
            self.named = self.call(_only_crawl)
        return self.named

    def of_crawl(
        self,
        function: Callable[Concatenate[Connection, int, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function of (connection, crawl).

        Raises:
            NotFoundError: there is no such crawl.

        """
        name = self.crawl

        def within(connection: Connection) -> T:
            return function(connection, _crawl_id(connection, name), *args, **kwargs)

        return self.call(within)

    def of_item(self, name: str, function: Callable[[Connection, int, int], T]) -> T:
        """Run a function of (connection, crawl, item).

        Raises:
            NotFoundError: there is no such crawl or item.

        """
        return self.of_crawl(lambda c, crawl: function(c, crawl, item_id(c, crawl, name)))

    def of_task(self, task: str, function: Callable[[Connection, int, int], T]) -> T:
        """Run a function of (connection, crawl, task).

        Raises:
            NotFoundError: there is no such crawl or task.

        """
        return self.of_crawl(lambda c, crawl: function(c, crawl, _task_id(c, crawl, task)))

    def of_known(self, task: str | None, function: Callable[[Connection, int], T]) -> T:
        """Run a function of (connection, crawl), if the crawl knows the task.

        Raises:
            NotFoundError: there is no such crawl, or a task is given that it does not know.

        """
        if task is None:
            return self.of_crawl(function)
        return self.of_task(task, lambda connection, crawl, _: function(connection, crawl))

    def check_tag(self, tag: str | None) -> None:
        """Refuse a tag that is misspelt; one that resembles none is fine, as tags are free.

        Raises:
            NotFoundError: there is no such crawl, or no item has the tag, no task is called for by
                it, and there is one much like it.

        """
        if tag is not None:
            self.of_crawl(_check_tag, tag)


def _only_crawl(connection: Connection) -> str:
    names = status.crawls(connection)
    if len(names) != 1:
        known = ", ".join(names) or "none yet"
        raise NotFoundError(
            "name the crawl that you mean, with --crawl NAME (in Python crawl=); "
            f"the database has {known}"
        )
    return names[0]


def _crawl_id(connection: Connection, name: str) -> int:
    crawl_id = crawls.find_crawl(connection, name)
    if crawl_id is None:
        known = status.crawls(connection)
        own = [one for one in known if one.startswith(f"{name}:")]
        listed = ", ".join(own or known) or "none yet"
        raise NotFoundError(
            f"there is no crawl {name!r}{closest(name, known)}; the database has {listed}"
        )
    return crawl_id


def item_id(connection: Connection, crawl_id: int, name: str) -> int:
    """Return the number of an item of this name, or of the page of this URL.

    Raises:
        NotFoundError: there is none, and it says whether there was one and what is written alike;
            or there are several pages of the URL, and it lists them.

    """
    number = stored_items.resolve(connection, crawl_id, name)
    return number if number is not None else item_of(connection, crawl_id, name).id


def item_of(connection: Connection, crawl_id: int, name: str) -> page_search.FoundPage:
    """Return the same item with its id, URL, method and callback; raises likewise."""
    found = page_search.find(connection, crawl_id, name)
    if not found:
        raise _not_there(connection, crawl_id, name)
    if len(found) > 1:
        raise alike_pages.error(connection, crawl_id, found, name)
    return found[0]


def _check_tag(connection: Connection, crawl_id: int, tag: str) -> None:
    hot_path(connection)
    if stored_tags.is_there(connection, crawl_id, tag):
        return
    known = {one for task in stored_tasks.known_tasks(connection, crawl_id) for one in task.tags}
    if tag in known:
        return
    known.update(stored_tags.names(connection, crawl_id))
    near = near_miss(tag, (one for one in known if not is_callback_tag(one)))
    if near is not None:
        raise NotFoundError(f"no item has the tag {tag!r}; did you mean {near!r}?")


def _not_there(connection: Connection, crawl_id: int, name: str) -> NotFoundError:
    noun = page_names.noun(name)
    if stored_items.is_taken(connection, crawl_id, name):
        return NotFoundError(f"the {noun} {name!r} was deleted, and its name stays taken")
    near = page_search.near(connection, crawl_id, name)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    is_page = noun == "page"
    said = f"the crawl knows no page {name!r}" if is_page else f"the item {name!r} does not exist"
    return NotFoundError(f"{said}{hint}", near)


def _task_id(connection: Connection, crawl_id: int, task: str) -> int:
    ids = {row.name: row.id for row in stored_tasks.known_tasks(connection, crawl_id)}
    if task not in ids:
        raise NotFoundError(f"there is no task {task!r}{closest(task, ids)}")
    return int(ids[task])
