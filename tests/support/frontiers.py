"""A frontier below gRPC: its parts on a database, awaited on a loop of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph.connections.identity import Identity
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.graph.frontier_handouts import FrontierHandouts
from scrapy_itemgraph.graph.frontier_puts import FrontierPuts
from scrapy_itemgraph.model.frontier import (
    DEFAULT_CRAWL,
    PutURL,
    Request,
    Status,
    item_name,
    key_of,
)
from scrapy_itemgraph.postgres import engine as engines
from support import oracle

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from scrapy_itemgraph.model.frontier import HandedURL

OK, SKIPPED, FAIL = Status

ITEMS = """
    SELECT i.id, i.data,
        ARRAY(SELECT tag_name FROM tags WHERE item_id = i.id),
        ARRAY(SELECT name FROM aliases WHERE item_id = i.id), l.name,
        EXISTS (SELECT FROM results r JOIN tasks t ON t.id = r.task_id
            WHERE r.item_id = i.id AND t.name = 'fetch' AND r.completed_at IS NOT NULL),
        coalesce(i.in_frontier, false)
    FROM items i JOIN limits l ON l.id = i.slot_id
    WHERE i.crawl_id = (SELECT id FROM crawls WHERE name = :crawl)
"""
QUEUES = """
    SELECT l.name, f.crawl_limit, f.completed FROM frontier_queues f
    JOIN queues q ON q.id = f.queue_id JOIN limits l ON l.id = q.slot_id
    WHERE f.crawl_id = (SELECT id FROM crawls WHERE name = :crawl)
"""


def url(address: str, date: int | None = None, key: str | None = None, **metadata: str) -> PutURL:
    """Return a URL as it is put: discovered, or known with a date."""
    told = {name: [value] for name, value in metadata.items()}
    derived = key_of(address)
    key = derived if key is None else key
    return PutURL(address, key, item_name(address, key, derived), told, date)


def pages(host: str, count: int) -> list[PutURL]:
    """Return so many discovered URLs of a host."""
    return [url(f"http://{host}.example/{number}") for number in range(count)]


def _is_url(data: Any, tags: list[str], names: list[str], key: str) -> bool:
    """Tell whether an item is the URL in its data, for a crawler that names URL and key."""
    address = data.get("url")
    named = {f"URL:{address}", item_name(str(address), key, "")}
    return bool("url" in tags and key and not named.isdisjoint(names))


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
        """Show that work is what is outstanding of a crawl, and what its frontier says is so."""
        with self.engine.begin() as connection:
            found = connection.execute(
                sa.text("SELECT id FROM crawls WHERE name = :crawl"), {"crawl": crawl}
            )
            oracle.assert_worklist_is_true(connection, found.scalar_one())
        self.assert_marks_are_true(crawl)

    def assert_marks_are_true(self, crawl: str = DEFAULT_CRAWL) -> None:
        """Show that all URLs are marked, have a queue, and count for its limit."""
        items = self.rows(ITEMS, crawl=crawl)
        urls = {number for number, *one, _, _ in items if _is_url(*one)}
        assert {row[0] for row in items if row[-1]} == urls
        limits = {key: (limit, done) for key, limit, done in self.rows(QUEUES, crawl=crawl)}
        done: Counter[str] = Counter()
        for number, _, _, _, key, is_completed, _ in items:
            if number in urls:
                assert key in limits
                done[key] += is_completed
        assert {key: n for key, (limit, n) in limits.items() if limit} == {
            key: done[key] for key, (limit, _) in limits.items() if limit
        }


@contextmanager
def opened(engine: sa.Engine) -> Iterator[Frontier]:
    """Yield the parts of a frontier's server, until they are closed."""
    with asyncio.Runner() as runner:
        one = Frontier(engine, runner)
        try:
            yield one
        finally:
            one.run(one.transactions.close())
