"""Pages whose work is to be refreshed, for their depth or the limit changed; and depths found anew.

Depths are found anew in phases: `mark` has every page unreached but those where paths begin,
`clear` drops what was to be passed on by then, `roots` passes on what links of the first pages say,
and `settle` refreshes what is too deep now, once all is passed on. `missing` gives depths to pages
that have none, and leaves the others alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.postgres.arrays import number_array
from scrapy_itemgraph.store.depths import links
from scrapy_itemgraph.store.depths.relax import TRY_LOCK
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.pruning import TRY_OWN_CRAWL
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Connection, Row

STEP = 150  # pages whose work is refreshed in a transaction, which claims may wait for
_MANY = 5000  # rows that are dropped in a step

TAKE_FREED = text("""
    DELETE FROM depth_work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind = 0
        ORDER BY w.depth, w.id LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING item_id
""")

NEXT = text("""
    SELECT * FROM depth_sweeps WHERE crawl_id = :crawl ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

HAS_ANY = text("""
    SELECT EXISTS (SELECT FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind IN (1, 2))
""")

IN_RANGE = text("""
    SELECT d.depth, d.item_id FROM depths d
    WHERE d.crawl_id = :crawl AND d.moved_to IS NULL
        AND (d.depth, d.item_id) > (:after_depth, :after_item) AND d.depth <= :high
    ORDER BY d.depth, d.item_id LIMIT :limit
""")

ADVANCE = text("""
    UPDATE depth_sweeps SET after_depth = :after_depth, after_item = :after_item,
        swept = swept + :count WHERE id = :sweep
""")

GO_ON = text("""
    UPDATE depth_sweeps SET phase = :phase, after_depth = -1, after_item = 0, swept = 0
    WHERE id = :sweep
""")

# What lies within the limit is refreshed as it is reached.
SETTLE = text("""
    UPDATE depth_sweeps SET phase = 'settle', after_item = 9223372036854775807, swept = 0,
        after_depth = coalesce(
            (SELECT c.depth_limit FROM crawls c WHERE c.id = :crawl), 2147483647)
    WHERE id = :sweep
""")

CLOSE = text("DELETE FROM depth_sweeps WHERE id = :sweep")

OPEN = text("""
    INSERT INTO depth_sweeps (crawl_id, phase, low, high, after_depth)
    VALUES (:crawl, :phase, :low, :high, :low)
""")

# One that is under way would wait for what the new one keeps back, and all of it is done again.
SUPERSEDE = text("""
    DELETE FROM depth_sweeps
    WHERE crawl_id = :crawl AND phase IN ('mark', 'clear', 'roots', 'settle')
""")

# A page that is there and has no row was found before depths were tracked: it begins a path unless
# another page created it.
NEXT_ITEMS = text("""
    SELECT i.id, d.depth, i.created_by FROM items i LEFT JOIN depths d ON d.item_id = i.id
    WHERE i.crawl_id = :crawl AND i.id > :after ORDER BY i.id LIMIT :limit
""")

MARK = text("""
    INSERT INTO depths (item_id, crawl_id, depth)
    SELECT marked.item_id, :crawl, marked.depth
    FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[])) AS marked(item_id, depth)
    ON CONFLICT (item_id) DO UPDATE SET depth = excluded.depth, via = NULL
""")

CLEAR = text("""
    DELETE FROM depth_work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM depth_work w
        WHERE w.crawl_id = :crawl AND (w.kind = 1 AND w.depth > 0 OR w.kind = 2)
        LIMIT :limit))
""")


def free(connection: Connection, crawl_id: int) -> bool:
    """Refresh a step of the pages that are not too deep any more; tell whether there were any."""
    given = {"crawl": crawl_id, "limit": STEP}
    freed = list(connection.execute(TAKE_FREED, given).scalars())
    if freed:
        refresh.refresh(connection, lock_items(connection, freed))
    return bool(freed)


def open_range(connection: Connection, crawl_id: int, low: int, high: int) -> None:
    """Have the work of pages refreshed whose depth is in a range; who calls it has the crawl."""
    connection.execute(OPEN, {"crawl": crawl_id, "phase": "range", "low": low, "high": high})


def open_anew(connection: Connection, crawl_id: int) -> None:
    """Have all depths of a crawl found anew; who calls it has the crawl."""
    given = {"crawl": crawl_id, "low": 0, "high": links.UNREACHED}
    connection.execute(SUPERSEDE, {"crawl": crawl_id})
    connection.execute(OPEN, {**given, "phase": "mark"})


def open_missing(connection: Connection, crawl_id: int) -> None:
    """Have pages given depths that have none; who calls it has the crawl, which has no page yet.

    A commit may wait for the crawl's lock, and not know that it tracks depth by now.
    """
    given = {"crawl": crawl_id, "low": 0, "high": links.UNREACHED}
    connection.execute(OPEN, {**given, "phase": "missing"})


def sweep(connection: Connection, crawl_id: int) -> bool:
    """Do a step of the crawl's first open sweep; tell whether there was one to do."""
    row = connection.execute(NEXT, {"crawl": crawl_id}).first()
    if row is None:
        return False
    if row.phase == "range":
        return _refresh(connection, row)
    if row.phase == "settle":
        return not connection.scalar(HAS_ANY, {"crawl": crawl_id}) and _refresh(connection, row)
    if not connection.execute(TRY_LOCK, {"crawl": crawl_id}).scalar_one():
        return False
    if row.phase in {"mark", "missing"}:
        return _mark(connection, row)
    {"clear": _clear, "roots": _begin}[row.phase](connection, row)
    return True


def _in_range(connection: Connection, row: Row[Any], high: int) -> list[int]:
    """Return the next pages of a sweep's range, and note how far it has come."""
    given = {"crawl": row.crawl_id, "after_depth": row.after_depth, "after_item": row.after_item}
    found = connection.execute(IN_RANGE, {**given, "high": high, "limit": STEP}).all()
    if found:
        last = {"after_depth": found[-1].depth, "after_item": found[-1].item_id}
        connection.execute(ADVANCE, {**last, "sweep": row.id, "count": len(found)})
    return [one.item_id for one in found]


def _refresh(connection: Connection, row: Row[Any]) -> bool:
    items = _in_range(connection, row, row.high)
    refresh.refresh(connection, lock_items(connection, items))
    if len(items) < STEP:
        connection.execute(CLOSE, {"sweep": row.id})
    return True


def _mark(connection: Connection, row: Row[Any]) -> bool:
    """Mark the next pages; tell whether that could be done.

    The last step has the crawl's lock alone. A commit that waited for the lock while the crawl
    began to track depth does not know of that yet, and what it makes has to be marked, too.
    """
    given = {"crawl": row.crawl_id, "after": row.after_item, "limit": STEP}
    items = connection.execute(NEXT_ITEMS, given).all()
    if len(items) < STEP:
        if not connection.execute(TRY_OWN_CRAWL, {"crawl": row.crawl_id}).scalar_one():
            return False
        items = connection.execute(NEXT_ITEMS, given).all()
    strays = {one.id: one.created_by for one in items if one.depth is None and one.created_by}
    if strays and row.phase == "mark":
        _link(connection, row.crawl_id, strays)
    begins = {one.id for one in items if one.depth == 0}
    begins |= {one.id for one in items if one.depth is None and one.id not in strays}
    ids = [one.id for one in items]
    if row.phase == "missing":
        _record(
            connection, row.crawl_id, strays, begins - {one.id for one in items if one.depth == 0}
        )
        return _marked(connection, row, ids)
    depths = [0 if one in begins else links.UNREACHED for one in ids]
    marked = {"items": number_array(ids), "depths": number_array(depths)}
    connection.execute(MARK, {"crawl": row.crawl_id, **marked})
    return _marked(connection, row, ids)


def _marked(connection: Connection, row: Row[Any], ids: list[int]) -> bool:
    """Note how far it has come."""
    if len(ids) == STEP:
        last = {"after_depth": -1, "after_item": ids[-1]}
        connection.execute(ADVANCE, {**last, "sweep": row.id, "count": len(ids)})
    elif row.phase == "missing":
        connection.execute(CLOSE, {"sweep": row.id})
    else:
        connection.execute(GO_ON, {"sweep": row.id, "phase": "clear"})
    return True


def _record(connection: Connection, crawl_id: int, strays: dict[int, str], roots: set[int]) -> None:
    """Write depths of pages that have none, by who created them."""
    parents = links.creators(connection, crawl_id, set(strays.values()))
    locked = set(lock_items(connection, parents.values()))
    found = links.Found(roots=set(roots), new={*roots, *strays})
    for child, name in strays.items():
        if (parent := parents.get(name)) in locked and parent is not None:
            found.link(parent, child)
    links.record(connection, crawl_id, found)


def _link(connection: Connection, crawl_id: int, strays: dict[int, str]) -> None:
    """Keep as links by which pages others were created, before depths were tracked.

    Who writes the links of a page has its item locked.
    """
    parents = links.creators(connection, crawl_id, set(strays.values()))
    locked = set(lock_items(connection, parents.values()))
    found = links.Found()
    for child, name in strays.items():
        if (parent := parents.get(name)) in locked and parent is not None:
            found.link(parent, child)
    links.write_links(connection, found)


def _clear(connection: Connection, row: Row[Any]) -> None:
    given = {"crawl": row.crawl_id, "limit": _MANY}
    if connection.execute(CLEAR, given).rowcount < _MANY:
        connection.execute(GO_ON, {"sweep": row.id, "phase": "roots"})


def _begin(connection: Connection, row: Row[Any]) -> None:
    items = _in_range(connection, row, 0)
    connection.execute(links.LOOK_AT_LINKS, {"items": number_array(items)})
    if len(items) < STEP:
        connection.execute(SETTLE, {"sweep": row.id, "crawl": row.crawl_id})
