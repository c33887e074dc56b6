"""What a crawl has, in rows of each table: what a restart would delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.crawl_changes import OF_CRAWL

if TYPE_CHECKING:
    from sqlalchemy import Connection

FEW = 10_000  # items of a crawl, up to which all that hangs on them is counted row by row

_OF_CRAWL = "x.crawl_id = :crawl"
_OF_TASK = "x.task_id IN (SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl)"
_OF_ITEM = "EXISTS (SELECT FROM items i WHERE i.crawl_id = :crawl AND i.id = x.item_id)"
_OF_FEED = "x.feed_id IN (SELECT f.id FROM feeds f WHERE f.crawl_id = :crawl)"

# Which rows `x` of a large table are the crawl's. By items, as a restart finds those of the first,
# they are found at once only where these are few; an index has the crawl's of the others.
_BY_ITEM = {
    "work": _OF_CRAWL,
    "attempts": _OF_TASK,
    "failures": _OF_TASK,
    "results": _OF_TASK,
    "blobs": _OF_ITEM,
}
_INDEXED = {
    "tags": _OF_CRAWL,
    "aliases": _OF_CRAWL,
    "links": "x.parent_id IN (SELECT d.item_id FROM depths d WHERE d.crawl_id = :crawl)",
    "depths": _OF_CRAWL,
    "steps of depths": _OF_CRAWL,
    "items": _OF_CRAWL,
    "journal": _OF_CRAWL,
    "marks of feeds": _OF_FEED,
}
_NAMES = {
    "marks of feeds": "feed_items",
    "steps of depths": "depth_work",
}  # of tables that people know otherwise


def holds(connection: Connection, crawl_id: int) -> dict[str, int]:
    """Count what a restart of a crawl would delete; what is too much to count is an estimate."""
    engine.hot_path(connection)
    has_few = _up_to(connection, crawl_id, "items", FEW) is not None
    return {name: _number(connection, crawl_id, name, has_few=has_few) for name in OF_CRAWL}


def _number(connection: Connection, crawl_id: int, name: str, *, has_few: bool) -> int:
    if name in _BY_ITEM:
        return (_of_items if has_few else _estimated)(connection, crawl_id, name)
    if name in _INDEXED:
        number = _up_to(connection, crawl_id, name, counting.MOST)
        return _estimated(connection, crawl_id, name) if number is None else number
    whole = text(f"SELECT count(*) FROM {OF_CRAWL[name]}")  # noqa: S608 - our own constants
    number_of_all: int = connection.execute(whole, {"crawl": crawl_id}).scalar_one()
    return number_of_all


def _of_items(connection: Connection, crawl_id: int, name: str) -> int:
    """Count the rows of a table that hang on the crawl's items, which are few."""
    counted = text(f"""
        SELECT count(*) FROM items i JOIN {name} x ON x.item_id = i.id WHERE i.crawl_id = :crawl
    """)  # noqa: S608 - our own constants
    number: int = connection.execute(counted, {"crawl": crawl_id}).scalar_one()
    return number


def _up_to(connection: Connection, crawl_id: int, name: str, most: int) -> int | None:
    """Count the crawl's rows of a table by their index; None: they are more than `most`."""
    table = _NAMES.get(name, name)
    counted = text(f"""
        SELECT count(*) FROM (SELECT FROM {table} x WHERE {_INDEXED[name]} LIMIT :most + 1) AS found
    """)  # noqa: S608
    number: int = connection.execute(counted, {"crawl": crawl_id, "most": most}).scalar_one()
    return None if number > most else number


def _estimated(connection: Connection, crawl_id: int, name: str) -> int:
    """Count the crawl's rows in a sample of a table."""
    table = _NAMES.get(name, name)
    share = counting.sampled_share(connection, table)
    counted = text(f"""
        SELECT count(*) FROM {table} x TABLESAMPLE SYSTEM (100 * :share) REPEATABLE (0)
        WHERE {(_BY_ITEM | _INDEXED)[name]}
    """)  # noqa: S608
    found: int = connection.execute(counted, {"crawl": crawl_id, "share": share}).scalar_one()
    return counts.rounded(found / share)
