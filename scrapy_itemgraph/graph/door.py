"""What stands behind the door: each call is a transaction of its own, done again on a deadlock."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.postgres import engine, errors
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

P = ParamSpec("P")
T = TypeVar("T")

DEADLOCK = "40P01"
_TRIES = 10


class Door:
    """A database, and the crawl in it that is meant."""

    def __init__(self, engine: Engine, crawl: str | None) -> None:
        self._engine = engine
        self._crawl = crawl
        self._doing: tuple[str, int, int | None] | None = None

    def announce(self, what: str, done: int, total: int | None = None) -> None:
        """Let `status` show how far long work is, while the next calls' transactions last."""
        self._doing = what, done, total

    @property
    def crawl(self) -> str:
        """The crawl's name."""
        if self._crawl is None:
            self._crawl = self._call(self._only_crawl)
        return self._crawl

    def _only_crawl(self, connection: Connection) -> str:
        names = [row.name for row in status.crawls(connection)]
        if len(names) != 1:
            known = ", ".join(names) or "none yet"
            raise NotFoundError(
                "name the crawl that you mean, with --crawl NAME (in Python crawl=); "
                f"the database has {known}"
            )
        return str(names[0])

    def crawls(self) -> list[str]:
        """Return the names of all crawls."""
        return [row.name for row in self._call(status.crawls)]

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
                known = [row.name for row in status.crawls(connection)]
                listed = ", ".join(known) or "none yet"
                raise NotFoundError(
                    f"there is no crawl {name!r}{closest(name, known)}; the database has {listed}"
                )
            return function(connection, crawl_id, *args, **kwargs)

        return self._call(within)

    def _call(self, function: Callable[[Connection], T]) -> T:
        with errors.all_translated(self._engine.url):
            for _ in range(_TRIES):
                try:
                    return self._run(function)
                except DBAPIError as error:
                    if getattr(error.orig, "sqlstate", None) != DEADLOCK:
                        raise
                    time.sleep(random.uniform(0, 0.05))
            return self._run(function)

    def _run(self, function: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            if self._doing is not None:
                engine.announce(connection, *self._doing)
            return function(connection)
