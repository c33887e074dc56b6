"""The tags of a crawl's items, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

_MOST = 1000  # names that are told

IS_THERE = text("""
    SELECT EXISTS (SELECT FROM tags g WHERE g.crawl_id = :crawl AND g.tag_name = :tag)
""")

# Each name is looked up after the one before it, so that no item is looked at twice.
NAMES = text("""
    WITH RECURSIVE found AS (
        (SELECT g.tag_name FROM tags g WHERE g.crawl_id = :crawl
        ORDER BY g.crawl_id, g.tag_name LIMIT 1)
        UNION ALL
        SELECT (SELECT g.tag_name FROM tags g
            WHERE g.crawl_id = :crawl AND g.tag_name > found.tag_name
            ORDER BY g.crawl_id, g.tag_name LIMIT 1)
        FROM found WHERE found.tag_name IS NOT NULL)
    SELECT found.tag_name FROM (SELECT * FROM found LIMIT :most) AS found
    WHERE found.tag_name IS NOT NULL
""")


def is_there(connection: Connection, crawl_id: int, tag: str) -> bool:
    """Tell whether an item has a tag."""
    given = {"crawl": crawl_id, "tag": tag}
    return bool(connection.execute(IS_THERE, given).scalar_one())


def names(connection: Connection, crawl_id: int) -> Sequence[str]:
    """Return the tags that items have, the first thousand in their order."""
    return connection.execute(NAMES, {"crawl": crawl_id, "most": _MOST}).scalars().all()
