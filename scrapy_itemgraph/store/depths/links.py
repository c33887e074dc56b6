"""Depths of new pages and links between pages, as a commit writes them.

A commit never lowers the depth of a page that is there: it only offers one, and `relax` takes that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.event_loop import LARGE_CHUNK, chunks, sorted_chunks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

UNREACHED = 2**31 - 1  # the depth of a page to which no path is known
PART = 1000  # children in a row of `links`

# What the caller's transaction goes by stays so until it ends, while `relax` waits.
LOCK = text("""
    SELECT d.item_id, d.depth, d.via FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN depths d ON d.item_id = wanted.id
    FOR NO KEY UPDATE OF d
""")

OWNERS = text("""
    SELECT a.key, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    CROSS JOIN LATERAL (
        SELECT * FROM aliases WHERE crawl_id = :crawl AND aliases.key = wanted.key OFFSET 0) AS a
    WHERE a.item_id IS NOT NULL
""")

ADD = text("""
    INSERT INTO depths (item_id, crawl_id, depth, via)
    SELECT new.item_id, :crawl, new.depth, new.via
    FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[]), CAST(:vias AS bigint[]))
        AS new(item_id, depth, via)
    ON CONFLICT DO NOTHING
""")

# Offers where they are less than what is known; that is read without a lock, for who lowers it
# meanwhile lowers it further, and who takes an offer looks again.
OFFER = text("""
    INSERT INTO depth_work (crawl_id, kind, depth, item_id, via)
    SELECT :crawl, 1, given.depth, coalesce(d.moved_to, d.item_id), given.via
    FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[]), CAST(:vias AS bigint[]))
        AS given(item_id, depth, via)
    JOIN depths d ON d.item_id = given.item_id
    LEFT JOIN depths o ON o.item_id = d.moved_to
    WHERE coalesce(o.depth, d.depth) > given.depth
""")

PARTS = text("""
    SELECT l.parent_id, l.part, l.children
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT * FROM links WHERE links.parent_id = wanted.id ORDER BY links.part OFFSET 0) AS l
""")

# Arrays of arrays must be even, so children are given as text.
WRITE_PARTS = text("""
    INSERT INTO links (parent_id, part, children)
    SELECT given.parent_id, given.part, CAST(given.children AS bigint[])
    FROM unnest(CAST(:parents AS bigint[]), CAST(:parts AS int[]), CAST(:children AS text[]))
        AS given(parent_id, part, children)
    ON CONFLICT (parent_id, part) DO UPDATE SET children = excluded.children
""")

MOVE = text("""
    INSERT INTO depths (item_id, crawl_id, depth, moved_to)
    SELECT moved.item_id, :crawl, 2147483647, moved.into_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:into AS bigint[])) AS moved(item_id, into_id)
    ON CONFLICT (item_id) DO UPDATE SET moved_to = excluded.moved_to
""")

# What had moved to an item that moves on: nothing moves twice.
MOVE_ON = text("""
    UPDATE depths d SET moved_to = moved.into_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:into AS bigint[])) AS moved(item_id, into_id)
    WHERE d.moved_to = moved.item_id
""")

LOOK_AT_LINKS = text("""
    INSERT INTO depth_work (crawl_id, kind, depth, item_id, part)
    SELECT d.crawl_id, 2, d.depth, l.parent_id, l.part
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN depths d ON d.item_id = wanted.id
    JOIN links l ON l.parent_id = d.item_id
    WHERE d.depth < 2147483647
""")

DROP_LINKS = text("""
    DELETE FROM links l USING unnest(CAST(:items AS bigint[])) AS gone(id)
    WHERE l.parent_id = gone.id
""")

DROP = text("""
    DELETE FROM depths d USING unnest(CAST(:items AS bigint[])) AS gone(id)
    WHERE d.item_id = gone.id
""")

DROP_MOVED = text("""
    DELETE FROM depths d USING unnest(CAST(:items AS bigint[])) AS gone(id)
    WHERE d.moved_to = gone.id
""")


class Known(NamedTuple):
    """The least depth of a page, and the page whose link gives it that; None: none does."""

    depth: int
    via: int | None


ROOT = Known(0, None)


@dataclass(slots=True)
class Found:
    """What a batch found of pages: by which pages each is linked, and which begin a path.

    `children` has what each page links to; a page that is deleted has none. `paths` has for each
    child the pages that link to it; `roots` are those that begin a path: what nobody linked to.
    `new` are the pages that the batch makes, `moved` where merges took pages, `gone` what was
    deleted.
    """

    children: dict[int, dict[int, None]] = field(default_factory=dict)
    paths: dict[int, set[int]] = field(default_factory=dict)
    roots: set[int] = field(default_factory=set)
    new: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def link(self, parent: int, child: int, *, is_kept: bool = True) -> None:
        """Take note of a link; one of a page that is deleted is not kept."""
        if parent == child:
            return
        self.paths.setdefault(child, set()).add(parent)
        if is_kept:
            self.children.setdefault(parent, {})[child] = None


def owners(connection: Connection, crawl_id: int, keys: Iterable[str]) -> dict[str, int]:
    """Return the items that have names, by the keys of these as hex."""
    found: dict[str, int] = {}
    for part in sorted_chunks(connection, set(keys)):
        given = {"crawl": crawl_id, "keys": text_array(part)}
        found.update((row.key.hex, row.item_id) for row in connection.execute(OWNERS, given))
    return found


def creators(connection: Connection, crawl_id: int, names: Iterable[str]) -> dict[str, int]:
    """Return the items that have names, by these."""
    keys = {item_names.hex_key(name): name for name in names}
    return {keys[key]: item_id for key, item_id in owners(connection, crawl_id, keys).items()}


def record(connection: Connection, crawl_id: int, found: Found) -> Mapping[int, int]:
    """Write what a batch found; return the depths of the pages that it makes.

    The caller has the locks of the items that link, and of those that moved or are gone. Of a page
    whose depth is not known, for it was found before depths were tracked, no depth is passed on.
    """
    concerned = {*found.moved, *found.moved.values(), *found.gone}
    concerned.update(parent for parents in found.paths.values() for parent in parents)
    known = _lock(connection, concerned - found.new)
    depths: dict[int, Known] = {}
    offers: dict[int, Known] = {}
    for part in chunks(connection, {**dict.fromkeys(found.paths), **dict.fromkeys(found.roots)}):
        for child in part:
            best = ROOT if child in found.roots else _best(found.paths.get(child, ()), known)
            if best is not None:
                (depths if child in found.new else offers)[child] = best
    for rows in chunks(connection, depths.items()):
        connection.execute(ADD, {"crawl": crawl_id, **_columns(rows)})
    write_links(connection, found)
    for gone, into in found.moved.items():
        if gone in known and (into not in offers or known[gone].depth < offers[into].depth):
            offers[into] = known[gone]
    for rows in chunks(connection, sorted(offers.items())):
        connection.execute(OFFER, {"crawl": crawl_id, **_columns(rows)})
    _move(connection, crawl_id, found.moved)
    _drop(connection, found.gone)
    return {item_id: one.depth for item_id, one in depths.items()}


def _lock(connection: Connection, items: Collection[int]) -> dict[int, Known]:
    known: dict[int, Known] = {}
    for part in sorted_chunks(connection, items):
        rows = connection.execute(LOCK, {"items": number_array(part)})
        known.update((row.item_id, Known(row.depth, row.via)) for row in rows)
    return known


def _best(parents: Iterable[int], known: Mapping[int, Known]) -> Known | None:
    """Return the least depth that links of these pages give."""
    found = [(known[one].depth, one) for one in parents if one in known]
    if not found:
        return None
    depth, parent = min(found)
    return Known(depth, None) if depth == UNREACHED else Known(depth + 1, parent)


def _columns(rows: Sequence[tuple[int, Known]]) -> dict[str, str]:
    return {
        "items": number_array([item_id for item_id, _ in rows]),
        "depths": number_array([one.depth for _, one in rows]),
        "vias": number_array([one.via for _, one in rows]),
    }


def write_links(connection: Connection, found: Found) -> None:
    """Unite links with those of before; what a merged page had is the other's now."""
    wanted = {parent: dict(children) for parent, children in found.children.items()}
    there: dict[int, list[tuple[int, list[int]]]] = {}
    for part in sorted_chunks(connection, {*wanted, *found.moved} - found.new, LARGE_CHUNK):
        for row in connection.execute(PARTS, {"items": number_array(part)}):
            if (into := found.moved.get(row.parent_id)) is None:
                there.setdefault(row.parent_id, []).append((row.part, row.children))
            else:
                wanted.setdefault(into, {}).update(dict.fromkeys(row.children))
    missing = {*found.moved.values()} - there.keys() - found.children.keys() - found.new
    for part in sorted_chunks(connection, missing):
        for row in connection.execute(PARTS, {"items": number_array(part)}):
            there.setdefault(row.parent_id, []).append((row.part, row.children))
    rows = [
        row
        for parent in sorted(wanted)
        for row in _parts(parent, wanted[parent], there.get(parent, []))
    ]
    for rows_of in chunks(connection, rows):
        _write_parts(connection, rows_of)


def _parts(
    parent: int, wanted: Mapping[int, None], there: Sequence[tuple[int, list[int]]]
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the rows that have the links that are not there yet; the last one is filled first."""
    known = {child for _, children in there for child in children}
    new = [child for child in wanted if child not in known and child != parent]
    first = 0
    if there:
        last, children = there[-1]
        first, room = last + 1, PART - len(children)
        if room > 0 and new:
            yield parent, last, [*children, *new[:room]]
            new = new[room:]
    for at in range(0, len(new), PART):
        yield parent, first + at // PART, new[at : at + PART]


def _write_parts(connection: Connection, rows: Sequence[tuple[int, int, list[int]]]) -> None:
    connection.execute(
        WRITE_PARTS,
        {
            "parents": number_array([parent for parent, *_ in rows]),
            "parts": number_array([part for _, part, _ in rows]),
            "children": text_array([number_array(children) for *_, children in rows]),
        },
    )


def _move(connection: Connection, crawl_id: int, moved: Mapping[int, int]) -> None:
    """Let pages be looked up where merges took them, whose links are looked at once more."""
    if not moved:
        return
    for rows in chunks(connection, sorted(moved.items())):
        given = {
            "items": number_array([gone for gone, _ in rows]),
            "into": number_array([into for _, into in rows]),
        }
        connection.execute(MOVE, {"crawl": crawl_id, **given})
        connection.execute(MOVE_ON, given)
        connection.execute(DROP_LINKS, {"items": given["items"]})
    for into in sorted_chunks(connection, set(moved.values())):
        connection.execute(LOOK_AT_LINKS, {"items": number_array(into)})


def _drop(connection: Connection, gone: Collection[int]) -> None:
    """Forget pages that were deleted; what they linked to keeps its depth."""
    for part in sorted_chunks(connection, gone):
        given = {"items": number_array(part)}
        for statement in (DROP_LINKS, DROP, DROP_MOVED):
            connection.execute(statement, given)
