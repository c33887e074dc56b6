"""How deep a crawl's pages are, as people ask for it; and the least path that leads to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.depths.links import UNREACHED
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.registry import crawl_depths
from scrapy_itemgraph.store.sql_conditions import HAS_DEPTH_WORK

if TYPE_CHECKING:
    from sqlalchemy import Connection

MOST = 100_000  # pages of a depth that are counted one by one
_LONGEST_PATH = 50  # pages of it that are told

# Each depth is looked up after the one before it, and its pages are counted by the index.
BY_DEPTH = text("""
    WITH RECURSIVE depth AS (
        (SELECT d.depth FROM depths d WHERE d.crawl_id = :crawl AND d.moved_to IS NULL
        ORDER BY d.depth LIMIT 1)
        UNION ALL
        SELECT (SELECT d.depth FROM depths d
            WHERE d.crawl_id = :crawl AND d.moved_to IS NULL AND d.depth > depth.depth
            ORDER BY d.depth LIMIT 1)
        FROM depth WHERE depth.depth IS NOT NULL)
    SELECT depth.depth, (SELECT count(*) FROM (
        SELECT FROM depths d
        WHERE d.crawl_id = :crawl AND d.moved_to IS NULL AND d.depth = depth.depth
        LIMIT :most) AS counted) AS pages
    FROM depth WHERE depth.depth IS NOT NULL ORDER BY depth.depth
""")

TOO_DEEP = text("""
    SELECT count(*) FROM (
        SELECT FROM depths d
        WHERE d.crawl_id = :crawl AND d.moved_to IS NULL
            AND d.depth > CAST(:limit AS int) LIMIT :most) AS counted
""")

IS_AT_WORK = text(f"SELECT {HAS_DEPTH_WORK}")

# From a page back to where its least path begins; of a page that was merged the other goes on.
PATH = text(f"""
    WITH RECURSIVE path AS (
        SELECT d.item_id, d.depth, d.via, 0 AS step FROM depths d WHERE d.item_id = :item
        UNION ALL
        SELECT d.item_id, d.depth, d.via, path.step + 1
        FROM path JOIN depths m ON m.item_id = path.via
        JOIN depths d ON d.item_id = coalesce(m.moved_to, m.item_id) AND d.depth < path.depth
        WHERE path.step < :most)
    SELECT i.name AS item, {PAGE}, path.depth
    FROM path JOIN items i ON i.id = path.item_id ORDER BY path.step DESC
""")  # noqa: S608 - our own columns


class AtDepth(NamedTuple):
    """How many pages have a depth; None: no path to them is known. `is_more`: there are more."""

    depth: int | None
    pages: int
    is_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthStanding:
    """How deep a crawl's pages are, and how deep they may be.

    `limit` is None where there is none; `is_set` tells that a person said it. `too_deep` counts
    pages that are deeper, up to 100,000. While `is_at_work` shorter paths are still passed on.
    """

    limit: int | None
    is_set: bool
    too_deep: int
    by_depth: tuple[AtDepth, ...]
    is_at_work: bool


class PathStep(NamedTuple):
    """A page of the least path to another one; `url` and `method` are those of a request."""

    item: str
    url: str | None
    method: str | None
    depth: int


def standing(connection: Connection, crawl_id: int) -> DepthStanding | None:
    """Return how deep a crawl's pages are; None: it does not track that."""
    engine.hot_path(connection)
    found = crawl_depths.tracking(connection, crawl_id)
    if not found.tracks_depth:
        return None
    here = {"crawl": crawl_id, "most": MOST + 1}
    rows = connection.execute(BY_DEPTH, here).all()
    deep = 0
    if found.depth_limit is not None:
        deep = connection.execute(TOO_DEEP, {**here, "limit": found.depth_limit}).scalar_one()
    return DepthStanding(
        limit=found.depth_limit,
        is_set=found.is_depth_limit_set,
        too_deep=min(deep, MOST),
        by_depth=tuple(
            AtDepth(
                None if row.depth == UNREACHED else row.depth,
                min(row.pages, MOST),
                row.pages > MOST,
            )
            for row in rows
        ),
        is_at_work=bool(connection.execute(IS_AT_WORK, {"crawl": crawl_id}).scalar_one()),
    )


def path(connection: Connection, item_id: int) -> list[PathStep]:
    """Return the least path to an item, from where it begins; empty where none is known."""
    given = {"item": item_id, "most": _LONGEST_PATH}
    found = typed(connection.execute(PATH, given), PathStep)
    return [one for one in found if one.depth != UNREACHED]
