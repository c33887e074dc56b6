"""A frontier below gRPC: its parts on a database, awaited on a loop of their own."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph.connections.identity import Identity
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.graph.frontier_handouts import FrontierHandouts
from scrapy_itemgraph.graph.frontier_puts import FrontierPuts
from scrapy_itemgraph.model.frontier import DEFAULT_CRAWL, PutURL, Request, Status, key_of
from scrapy_itemgraph.postgres import engine as engines
from support import oracle

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from scrapy_itemgraph.model.frontier import HandedURL

OK, SKIPPED, FAIL = Status


def url(address: str, date: int | None = None, key: str | None = None, **metadata: str) -> PutURL:
    """Return a URL as it is put: discovered, or known with a date."""
    told = {name: [value] for name, value in metadata.items()}
    return PutURL(address, key_of(address) if key is None else key, told, date)


def pages(host: str, count: int) -> list[PutURL]:
    """Return so many discovered URLs of a host."""
    return [url(f"http://{host}.example/{number}") for number in range(count)]


class Frontier:
    """What one server does with a database."""

    def __init__(self, engine: sa.Engine, runner: asyncio.Runner) -> None:
        self.engine = engine
        self._runner = runner
        self.transactions = Transactions(engines.async_engine(engine.url), timedelta(minutes=1))
        self.own = Identity()
        self.puts = FrontierPuts(self.transactions)
        self.handouts = FrontierHandouts(self.transactions, self.own)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await something."""
        return self._runner.run(coroutine)

    def put(self, *urls: PutURL, crawl: str = DEFAULT_CRAWL) -> list[Status]:
        """Put URLs in one transaction."""
        return self.run(self.puts.put(crawl, urls))

    def get(self, crawl: str | None = DEFAULT_CRAWL, **request: Any) -> list[str]:
        """Get URLs, in their order."""
        return [one.url for one in self.handed(crawl, **request)]

    def handed(self, crawl: str | None = DEFAULT_CRAWL, **request: Any) -> list[HandedURL]:
        """Get URLs as they are handed out."""

        async def get() -> list[HandedURL]:
            asked = Request(crawl, **request)
            return [one async for chunk in self.handouts.hand_out(asked) for one in chunk]

        return self.run(get())

    def rows(self, statement: str, **given: Any) -> list[tuple[Any, ...]]:
        """Return what a statement answers."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement), given)]

    def change(self, statement: str, **given: Any) -> None:
        """Change rows, and commit."""
        with self.engine.begin() as connection:
            connection.execute(sa.text(statement), given)

    def pass_seconds(self, seconds: int) -> None:
        """Let time pass: what the database knows of moments lies that much further back."""
        self.change(
            "UPDATE frontier_queues SET last_served = greatest(0, last_served - :s), "
            "blocked_until = greatest(0, blocked_until - :s)",
            s=seconds,
        )
        self.change(
            "UPDATE work SET not_before = not_before - make_interval(secs => :s)", s=seconds
        )
        self.change("UPDATE queues SET next_at = next_at - make_interval(secs => :s)", s=seconds)

    def assert_is_true(self, crawl: str = DEFAULT_CRAWL) -> None:
        """Show that the work of a crawl is what is outstanding of it."""
        with self.engine.begin() as connection:
            found = connection.execute(
                sa.text("SELECT id FROM crawls WHERE name = :crawl"), {"crawl": crawl}
            )
            oracle.assert_worklist_is_true(connection, found.scalar_one())


@contextmanager
def opened(engine: sa.Engine) -> Iterator[Frontier]:
    """Yield the parts of a frontier's server, until they are closed."""
    with asyncio.Runner() as runner:
        one = Frontier(engine, runner)
        try:
            yield one
        finally:
            one.run(one.transactions.close())
