"""What an act will have fetched, before it is done: pages, counted up to a thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import gone_pages, led_pages, open_failures
from scrapy_itemgraph.store.admin import expirable
from scrapy_itemgraph.store.depths.links import UNREACHED
from scrapy_itemgraph.store.registry import crawl_depths

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.failure_filters import FailureFilter

MANY = 1000  # from which on pages are not counted

BETWEEN_DEPTHS = text("""
    SELECT d.item_id FROM depths d
    WHERE d.crawl_id = :crawl AND d.moved_to IS NULL AND d.depth > :low AND d.depth <= :high
    LIMIT :most
""")


class Cost(NamedTuple):
    """How many pages an act frees, up to a thousand; `is_more`: there are that many, or more."""

    pages: int
    is_more: bool = False

    @property
    def words(self) -> str:
        """The number, as people read it: `2 pages`, `1,000 or more pages`."""
        return f"{self.pages:,} or more pages" if self.is_more else counts.many(self.pages, "page")


def of_failures(connection: Connection, crawl_id: int, which: FailureFilter) -> Cost:
    """Count the pages of open failures, and those whose redirect led to one of these."""
    found, following = open_failures.look(connection, crawl_id, which, limit=MANY)
    items = {one.item_id for one in found}
    led = led_pages.found(connection, crawl_id, items, limit=MANY)
    return _cost(items | {item for item, _ in led}, is_cut=following is not None)


def of_led(connection: Connection, crawl_id: int, items: Collection[int]) -> Cost:
    """Count the pages whose redirect led to one of these."""
    led = led_pages.found(connection, crawl_id, items, limit=MANY)
    return _cost({item for item, _ in led})


def of_gone(connection: Connection, crawl_id: int, task: str | None) -> Cost:
    """Count the pages that are gone, of a task or all."""
    found = gone_pages.found(connection, crawl_id, task=task, after=(0, 0), limit=MANY)
    return _cost({item for item, _ in found})


def of_results(
    connection: Connection, crawl_id: int, *, task: str | None, tag: str | None, after: int
) -> expirable.Expirable:
    """Return which of the next items have results that can be expired."""
    engine.hot_path(connection)
    return expirable.look(connection, crawl_id, task=task, tag=tag, after=after)


def of_limit(connection: Connection, crawl_id: int, limit: int | None) -> Cost:
    """Count the pages that come within a limit of depth."""
    now = crawl_depths.tracking(connection, crawl_id)
    if not now.tracks_depth or now.depth_limit is None:
        return Cost(0)
    high = UNREACHED if limit is None else limit
    given = {"crawl": crawl_id, "low": now.depth_limit, "high": high, "most": MANY}
    return _cost(set(connection.execute(BETWEEN_DEPTHS, given).scalars()))


def _cost(items: set[int], *, is_cut: bool = False) -> Cost:
    return Cost(min(len(items), MANY), is_cut or len(items) >= MANY)
