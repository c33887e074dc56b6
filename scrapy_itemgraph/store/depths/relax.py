"""Shorter paths, passed on from page to page: least depth first, a bounded step at a time.

One process at a time does it for a crawl. It locks depths alone, in the order of their items, and
never items: commits lock items, then depths. So whoever adds a link to a page holds that page's
depth, and what is read after waiting for it sees the link.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.postgres.arrays import number_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

MOST_OFFERS = 2000  # that one step takes
MOST_PARTS = 1000  # rows of links that one step looks at,
MOST_CHILDREN = 10_000  # with so many children, or one row
_NEVER = 2**31 - 1

# The least of what waits: of offers that depth, of links that of their page. What finds all depths
# anew is waited for.
FIRST = text("""
    SELECT (SELECT w.depth FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind = 1
            ORDER BY w.depth LIMIT 1) AS offer,
        (SELECT w.depth FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind = 2
            ORDER BY w.depth LIMIT 1) AS links,
        (SELECT c.depth_limit FROM crawls c WHERE c.id = :crawl) AS depth_limit,
        EXISTS (SELECT FROM depth_sweeps s
            WHERE s.crawl_id = :crawl AND s.phase IN ('mark', 'clear', 'roots')) AS waits,
        EXISTS (SELECT FROM depth_sweeps s
            WHERE s.crawl_id = :crawl AND s.phase IN ('range', 'settle')) AS is_swept
""")

TRY_LOCK = text("""
    SELECT pg_try_advisory_xact_lock(CAST('depths'::regclass::oid AS int), :crawl)
""")

TAKE_OFFERS = text("""
    DELETE FROM depth_work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind = 1
        ORDER BY w.depth, w.id LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING item_id, depth, via
""")

NEXT_LINKS = text("""
    SELECT w.depth, w.id, w.item_id, w.part, coalesce(cardinality(l.children), 0) AS size
    FROM (
        SELECT * FROM depth_work WHERE crawl_id = :crawl AND kind = 2
        ORDER BY depth, id LIMIT :limit) AS w
    LEFT JOIN links l ON l.parent_id = w.item_id AND l.part = w.part
    ORDER BY w.depth, w.id
""")

DROP_LINKS = text("""
    DELETE FROM depth_work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid
        FROM unnest(CAST(:depths AS int[]), CAST(:ids AS bigint[])) AS taken(depth, id)
        CROSS JOIN LATERAL (
            SELECT x.ctid FROM depth_work x
            WHERE x.crawl_id = :crawl AND x.kind = 2 AND x.depth = taken.depth AND x.id = taken.id
            OFFSET 0) AS w))
""")

_LOWER = """
    WITH offered AS ({offered}),
    best AS (
        SELECT DISTINCT ON (item_id) item_id, depth, via FROM offered
        ORDER BY item_id, depth, via),
    locked AS MATERIALIZED (
        SELECT d.item_id, d.depth AS before, best.depth, best.via
        FROM best JOIN depths d ON d.item_id = best.item_id
        WHERE d.depth > best.depth
        ORDER BY d.item_id FOR NO KEY UPDATE OF d)
    UPDATE depths d SET depth = locked.depth, via = locked.via
    FROM locked WHERE d.item_id = locked.item_id
    RETURNING d.item_id, d.depth, locked.before, d.via, d.moved_to
"""

TAKE_DEPTHS = text(
    _LOWER.format(
        offered="""
        SELECT coalesce(m.moved_to, m.item_id) AS item_id, given.depth, given.via
        FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[]), CAST(:vias AS bigint[]))
            AS given(item_id, depth, via)
        JOIN depths m ON m.item_id = given.item_id"""
    )
)

# Of a page that was merged meanwhile the links are the other's, and looked at with that.
PASS_ON = text(
    _LOWER.format(
        offered="""
        SELECT coalesce(m.moved_to, m.item_id) AS item_id, p.depth + 1 AS depth, p.item_id AS via
        FROM unnest(CAST(:items AS bigint[]), CAST(:parts AS int[])) AS given(item_id, part)
        JOIN links l ON l.parent_id = given.item_id AND l.part = given.part
        JOIN depths p ON p.item_id = l.parent_id AND p.depth < 2147483647
        CROSS JOIN LATERAL unnest(l.children) AS c(child)
        JOIN depths m ON m.item_id = c.child
        WHERE m.depth > p.depth + 1 OR m.moved_to IS NOT NULL"""
    )
)

# In a statement of its own: it sees links of commits that the locks were waited for.
QUEUE_LINKS = text("""
    INSERT INTO depth_work (crawl_id, kind, depth, item_id, part)
    SELECT :crawl, 2, lowered.depth, l.parent_id, l.part
    FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[])) AS lowered(item_id, depth)
    JOIN links l ON l.parent_id = lowered.item_id
""")

# Of a page that was merged while its lock was waited for: what it got is the other's.
OFFER_ON = text("""
    INSERT INTO depth_work (crawl_id, kind, depth, item_id, via)
    SELECT :crawl, 1, moved.depth, moved.into_id, moved.via
    FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[]), CAST(:vias AS bigint[]))
        AS moved(into_id, depth, via)
""")

QUEUE_REFRESH = text("""
    INSERT INTO depth_work (crawl_id, kind, depth, item_id)
    SELECT :crawl, 0, 0, freed.item_id FROM unnest(CAST(:items AS bigint[])) AS freed(item_id)
""")


def relax(connection: Connection, crawl_id: int) -> bool:
    """Do a step; tell whether there was one to do. The caller shares the crawl's lock."""
    here = {"crawl": crawl_id}
    first = connection.execute(FIRST, here).one()
    if first.waits or (first.offer is None and first.links is None):
        return False
    if not connection.execute(TRY_LOCK, here).scalar_one():
        return False
    offer = _NEVER if first.offer is None else first.offer
    links = _NEVER if first.links is None else first.links
    # What links pass on is one deeper than their page.
    lowered = _take_offers(connection, here) if offer <= links else _pass_on(connection, here)
    moved = [row for row in lowered if row.moved_to is not None]
    lowered = [row for row in lowered if row.moved_to is None]
    if moved:
        connection.execute(OFFER_ON, {**here, **_offers(moved, "moved_to")})
    if not lowered:
        return True
    items = number_array([row.item_id for row in lowered])
    depths = number_array([row.depth for row in lowered])
    connection.execute(QUEUE_LINKS, {**here, "items": items, "depths": depths})
    freed = _freed(lowered, first.depth_limit, is_swept=first.is_swept)
    if freed:
        connection.execute(QUEUE_REFRESH, {**here, "items": number_array(freed)})
    return True


def _freed(lowered: Sequence[Row[Any]], limit: int | None, *, is_swept: bool) -> list[int]:
    """Return the pages that were too deep and are not any more.

    While pages are swept by their depth each may be lowered past the place that the sweep is at.
    """
    if is_swept:
        return [row.item_id for row in lowered]
    return [] if limit is None else [r.item_id for r in lowered if r.depth <= limit < r.before]


def _take_offers(connection: Connection, here: dict[str, Any]) -> Sequence[Row[Any]]:
    taken = connection.execute(TAKE_OFFERS, {**here, "limit": MOST_OFFERS}).all()
    if not taken:
        return []
    return connection.execute(TAKE_DEPTHS, _offers(taken, "item_id")).all()


def _offers(rows: Sequence[Row[Any]], of: str) -> dict[str, str]:
    """Return depths that pages are offered; `of` is the column that has the page."""
    return {
        "items": number_array([getattr(row, of) for row in rows]),
        "depths": number_array([row.depth for row in rows]),
        "vias": number_array([row.via for row in rows]),
    }


def _pass_on(connection: Connection, here: dict[str, Any]) -> Sequence[Row[Any]]:
    rows = connection.execute(NEXT_LINKS, {**here, "limit": MOST_PARTS}).all()
    sizes = accumulate(row.size for row in rows)
    fitting = sum(1 for size in sizes if size <= MOST_CHILDREN)
    taken = rows[: max(1, fitting)]
    if not taken:
        return []
    ids = number_array([row.id for row in taken])
    connection.execute(
        DROP_LINKS, {**here, "ids": ids, "depths": number_array([row.depth for row in taken])}
    )
    given = {
        "items": number_array([row.item_id for row in taken]),
        "parts": number_array([row.part for row in taken]),
    }
    return connection.execute(PASS_ON, given).all()
