"""Items by their numbers and names: locked, found by a name, read as they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.snapshots import ItemSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

LOCK_ITEMS = text("""
    SELECT i.id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    FOR NO KEY UPDATE OF i
""")

# The items of claims, as they are committed.
SNAPSHOTS = text("""
    SELECT i.id, i.name, i.data, i.created_by, i.created_at, i.updated_at, i.is_from_outside,
        ARRAY(SELECT a.name FROM aliases a WHERE a.item_id = i.id ORDER BY a.name) AS names,
        (SELECT json_object_agg(g.tag_name, g.value) FROM tags g WHERE g.item_id = i.id) AS tags
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
""")

RESOLVE = text("SELECT name, item_id FROM aliases WHERE crawl_id = :crawl AND key = :key")

NEXT_IDS = text("SELECT nextval('items_id_seq') FROM generate_series(1, :count)")

ITEM_IDS = text("""
    SELECT id FROM items WHERE crawl_id = :crawl AND id > :after ORDER BY id LIMIT :limit
""")


# Names are taken sorted by key: unsorted, writers of the same names deadlock. Returns those that
# others have; where there are none, as usual, nothing is compared.
TAKE_NAMES = text("""
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:keys AS uuid[]), CAST(:names AS text[]),
            CAST(:items AS bigint[])) AS wanted(key, name, item_id)),
    taken AS (
        INSERT INTO aliases (crawl_id, key, name, item_id)
        SELECT :crawl, key, name, item_id FROM wanted
        ON CONFLICT DO NOTHING
        RETURNING key)
    SELECT name FROM wanted
    WHERE (SELECT count(*) FROM taken) < (SELECT count(*) FROM wanted)
        AND key NOT IN (SELECT key FROM taken)
""")

# See batch_names.SET_OWNERS for its form.
DROP_NAMES = text("""
    DELETE FROM aliases a USING (
        SELECT CAST(:crawl AS int) AS crawl_id, key FROM unnest(CAST(:keys AS uuid[])) AS given(key)
        OFFSET 0) AS gone
    WHERE a.crawl_id = gone.crawl_id AND a.key = gone.key
""")


SET_NICE = text("UPDATE items SET nice = :nice WHERE id = :item RETURNING id")


def set_nice(connection: Connection, item_id: int, nice: int | None) -> list[int]:
    """Set when an item's work has its turn; None: as its tasks say. Its work is left as it is.

    Return the item, which is locked by this, or nothing if it is gone.
    """
    return list(connection.execute(SET_NICE, {"item": item_id, "nice": nice}).scalars())


def lock_items(connection: Connection, item_ids: Iterable[int]) -> list[int]:
    """Lock items in the order of their ids, and return those that exist."""
    rows = connection.execute(LOCK_ITEMS, {"items": sorted(set(item_ids))})
    return list(rows.scalars())


def snapshots(connection: Connection, item_ids: Iterable[int]) -> dict[int, ItemSnapshot]:
    """Read items as they are committed, by id."""
    rows = connection.execute(SNAPSHOTS, {"items": sorted(set(item_ids))}).all()
    return {
        row.id: ItemSnapshot(
            id=row.name,
            aliases=tuple(name for name in row.names if name != row.name),
            tags=row.tags or {},
            data=row.data,
            created_by=row.created_by,
            created_at=row.created_at,
            updated_at=row.updated_at,
            is_from_outside=bool(row.is_from_outside),
        )
        for row in rows
    }


def named(connection: Connection, crawl_id: int, name: str) -> ItemSnapshot | None:
    """Return an item by any of its names, as it is committed; None when there is none."""
    item_id = resolve(connection, crawl_id, name)
    return None if item_id is None else snapshots(connection, [item_id]).get(item_id)


def resolve(connection: Connection, crawl_id: int, name: str) -> int | None:
    """Return the number of the item that has a name; None for an unknown or deleted one."""
    row = connection.execute(RESOLVE, {"crawl": crawl_id, "key": item_names.name_key(name)}).first()
    return row.item_id if row is not None and row.name == name else None


def is_taken(connection: Connection, crawl_id: int, name: str) -> bool:
    """Whether a name is taken, be it by a deleted item."""
    key = {"crawl": crawl_id, "key": item_names.name_key(name)}
    return connection.execute(RESOLVE, key).first() is not None


def item_ids(connection: Connection, crawl_id: int, *, after: int, limit: int) -> list[int]:
    """Return the numbers of a crawl's items, from one on."""
    given = {"crawl": crawl_id, "after": after, "limit": limit}
    return list(connection.execute(ITEM_IDS, given).scalars())
