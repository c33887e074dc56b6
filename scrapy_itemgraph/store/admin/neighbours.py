"""Neighbours: which item made an item, and which items it made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

MOST_LOOKED_AT = 20_000  # items that were made about when an execution of the item was committed
_ROUNDS = 64

OF_ITEM = text(f"""
    SELECT i.name AS item, {PAGE}, i.created_by FROM items i WHERE i.id = :item
""")  # noqa: S608 - our own columns

# When transactions began that committed executions of the item; these made items shortly after.
COMMITS = text("""
    SELECT DISTINCT a.ended_at FROM attempts a
    WHERE a.item_id = :item AND a.outcome = 'ok' ORDER BY a.ended_at DESC LIMIT 10
""")

BOUNDS = text("""
    SELECT (SELECT i.id FROM items i WHERE i.crawl_id = :crawl ORDER BY i.crawl_id, i.id LIMIT 1),
        (SELECT i.id FROM items i WHERE i.crawl_id = :crawl
            ORDER BY i.crawl_id DESC, i.id DESC LIMIT 1)
""")

AT = text("""
    SELECT i.id, i.created_at FROM items i WHERE i.crawl_id = :crawl AND i.id >= :item
    ORDER BY i.crawl_id, i.id LIMIT 1
""")

MADE = text(f"""
    SELECT i.name AS item, {PAGE} FROM (
        SELECT i.* FROM items i WHERE i.crawl_id = :crawl AND i.id >= :first
        ORDER BY i.crawl_id, i.id LIMIT :most) AS i
    WHERE i.created_by = ANY (CAST(:names AS text[])) AND i.created_at >= :moment
        AND i.created_at < :moment + interval '1 minute'
    LIMIT :limit
""")  # noqa: S608


class Neighbour(NamedTuple):
    """An item beside another one; `url` and `method` are those of a request."""

    item: str
    url: str | None
    method: str | None


class Neighbours(NamedTuple):
    """An item's maker, if it is still there, and what its last executions made.

    `has_more`: it made more than are listed.
    """

    created_by: Neighbour | None
    created: list[Neighbour]
    has_more: bool


def neighbours(connection: Connection, crawl_id: int, item_id: int, *, limit: int) -> Neighbours:
    """Return who made an item, and up to `limit` of the items that it made.

    Items are not indexed by their maker. What an execution made is made with its commit, and
    numbers grow about as moments do: those around that moment are looked at.
    """
    own = connection.execute(OF_ITEM, {"item": item_id}).one()
    maker = None
    if own.created_by is not None:
        number = stored_items.resolve(connection, crawl_id, own.created_by)
        if number is not None and number != item_id:
            maker = Neighbour(*connection.execute(OF_ITEM, {"item": number}).one()[:3])
    snapshot = stored_items.snapshots(connection, [item_id])[item_id]
    names = [snapshot.id, *snapshot.aliases]
    made: dict[str, Neighbour] = {}
    for moment in connection.execute(COMMITS, {"item": item_id}).scalars():
        given = {"crawl": crawl_id, "names": names, "moment": moment, "limit": limit + 1}
        first = _first_before(connection, crawl_id, moment)
        found = connection.execute(MADE, {**given, "first": first, "most": MOST_LOOKED_AT})
        made |= {one.item: one for one in typed(found, Neighbour)}
        if len(made) > limit:
            break
    listed = list(made.values())
    return Neighbours(maker, listed[:limit], has_more=len(listed) > limit)


def _first_before(connection: Connection, crawl_id: int, moment: datetime) -> int:
    """Return a number from which on items may have been made at a moment, or later."""
    low, high = connection.execute(BOUNDS, {"crawl": crawl_id}).one()
    if low is None:
        return 0
    for _ in range(_ROUNDS):
        if high - low < 1:
            break
        middle = (low + high) // 2
        at = connection.execute(AT, {"crawl": crawl_id, "item": middle}).first()
        if at is not None and at.created_at < moment:
            low = at.id + 1
        else:
            high = middle
    # Transactions that began earlier may have drawn later numbers, and the other way round.
    return int(low) - MOST_LOOKED_AT // 2
