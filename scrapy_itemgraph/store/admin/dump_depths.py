"""Lines of a dump of how deep a crawl's pages are: depths, links, and what is to be worked out.

Items are named as they are by now: where a link leads to one that was merged, the other is meant.
What leads to a page that is gone is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres.arrays import number_array
from scrapy_itemgraph.store.depths.links import UNREACHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from sqlalchemy import Connection

STEP = 1000  # pages, or steps to be worked out, that are read at a time
MOST_CHILDREN = 10_000  # of links that are read at a time, or one row of them

WORKS = ("refresh", "offer", "links")  # by their kind in `depth_work`

# Whom a number means by now; null where that is gone.
_NAME = """(SELECT n.name FROM items n WHERE n.id = coalesce(
        (SELECT m.moved_to FROM depths m WHERE m.item_id = {0}), {0}))"""

DEPTHS = text(f"""
    SELECT json_strip_nulls(json_build_object('kind', 'depth', 'item', i.name,
        'depth', nullif(d.depth, {UNREACHED}), 'via', {_NAME.format("d.via")}))::text AS line,
        i.id AS after_item
    FROM items i CROSS JOIN LATERAL (
        SELECT * FROM depths WHERE depths.item_id = i.id OFFSET 0) AS d
    WHERE i.crawl_id = :crawl AND i.id > :after_item ORDER BY i.id LIMIT :limit
""")  # noqa: S608 - our own columns

# Of each page how many children its rows have; one without links has a row of nulls.
SIZES = text("""
    SELECT i.id AS item_id, l.part, l.size
    FROM (SELECT id FROM items WHERE crawl_id = :crawl AND id > :after ORDER BY id LIMIT :limit)
        AS i
    LEFT JOIN LATERAL (
        SELECT links.part, cardinality(links.children) AS size FROM links
        WHERE links.parent_id = i.id ORDER BY links.part OFFSET 0) AS l ON true
    ORDER BY i.id, l.part
""")

# A row without children has its line, too, so that rows keep their numbers.
LINKS = text("""
    SELECT json_build_object('kind', 'links', 'item', i.name, 'to', coalesce(
        (SELECT json_agg(found.name ORDER BY found.at)
        FROM (
            SELECT o.name, min(c.at) AS at
            FROM unnest(l.children) WITH ORDINALITY AS c(child, at)
            CROSS JOIN LATERAL (
                SELECT coalesce((SELECT m.moved_to FROM depths m WHERE m.item_id = c.child),
                    c.child) AS id OFFSET 0) AS now
            CROSS JOIN LATERAL (SELECT n.name FROM items n WHERE n.id = now.id OFFSET 0) AS o
            WHERE now.id <> l.parent_id
            GROUP BY o.name) AS found),
        '[]'))::text
    FROM unnest(CAST(:items AS bigint[]), CAST(:parts AS int[])) AS given(item_id, part)
    CROSS JOIN LATERAL (
        SELECT * FROM links WHERE links.parent_id = given.item_id AND links.part = given.part
        OFFSET 0) AS l
    CROSS JOIN LATERAL (SELECT n.name FROM items n WHERE n.id = given.item_id OFFSET 0) AS i
    ORDER BY given.item_id, given.part
""")

WORK = text(f"""
    SELECT json_strip_nulls(json_build_object('kind', 'depth_work',
        'work', (CAST(:works AS text[]))[w.kind + 1], 'item', i.name,
        'depth', w.depth, 'via', {_NAME.format("w.via")}, 'part', w.part))::text AS line,
        w.kind AS after_kind, w.depth AS after_depth, w.id AS after_id
    FROM depth_work w
    CROSS JOIN LATERAL (
        SELECT n.name FROM items n WHERE n.id = coalesce(
            (SELECT m.moved_to FROM depths m WHERE m.item_id = w.item_id), w.item_id)
        OFFSET 0) AS i
    WHERE w.crawl_id = :crawl
        AND (w.kind, w.depth, w.id) > (:after_kind, :after_depth, :after_id)
    ORDER BY w.kind, w.depth, w.id LIMIT :limit
""")  # noqa: S608 - our own columns

SWEEPS = """
    SELECT json_build_object('kind', 'depth_sweep', 'phase', phase, 'low', low, 'high', high)::text
    FROM depth_sweeps WHERE crawl_id = :crawl ORDER BY id
"""


class _Part(NamedTuple):
    """A row of a page's links; both None: it has none."""

    item_id: int
    part: int | None
    size: int | None


def depths(connection: Connection, crawl_id: int) -> Iterator[str]:
    """Yield the depths of pages, in the order in which these were made."""
    given = {"crawl": crawl_id, "after_item": 0, "limit": STEP}
    while rows := connection.execute(DEPTHS, given).all():
        yield from (row.line for row in rows)
        given["after_item"] = rows[-1].after_item


def links(connection: Connection, crawl_id: int) -> Iterator[str]:
    """Yield which pages link to which, a row at a time, in the same order."""
    given = {"crawl": crawl_id, "after": 0, "limit": STEP}
    while pages := connection.execute(SIZES, given).all():
        for some in _few([_Part(*row) for row in pages]):
            wanted = {
                "items": number_array([one.item_id for one in some]),
                "parts": number_array([one.part for one in some]),
            }
            yield from connection.execute(LINKS, wanted).scalars()
        given["after"] = pages[-1].item_id


def work(connection: Connection, crawl_id: int) -> Iterator[str]:
    """Yield what is still to be worked out, in the order in which that is done."""
    first = {"after_kind": -1, "after_depth": 0, "after_id": 0}
    given: dict[str, Any] = {"crawl": crawl_id, "works": list(WORKS), "limit": STEP, **first}
    while rows := connection.execute(WORK, given).all():
        yield from (row.line for row in rows)
        given |= {name: getattr(rows[-1], name) for name in first}


def _few(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield rows of links, few enough at a time."""
    some: list[_Part] = []
    size = 0
    for one in parts:
        if one.size is None:
            continue
        if some and size + one.size > MOST_CHILDREN:
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some
