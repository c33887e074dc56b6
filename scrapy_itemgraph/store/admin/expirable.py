"""Items whose results can be expired, a step at a time: of a crawl, with a tag, of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

STEP = 2000  # items that are looked at in a transaction

_OF_CRAWL = """
    SELECT i.id FROM items i WHERE i.crawl_id = :crawl AND i.id > :after
    ORDER BY i.crawl_id, i.id LIMIT :limit
"""
_OF_TAG = """
    SELECT g.item_id AS id FROM tags g
    WHERE g.crawl_id = :crawl AND g.tag_name = :tag AND g.item_id > :after
    ORDER BY g.crawl_id, g.tag_name, g.item_id LIMIT :limit
"""
# How many results each item has that are meant, and whether a claim may store one yet; an item
# without its name, which only a spoilt database has, cannot be told of.
_LOOK = """
    SELECT i.id, i.name, (
            SELECT count(*) FROM results r
            WHERE r.item_id = i.id
                AND (CAST(:task AS text) IS NULL OR r.task_id = {task})) AS results,
        EXISTS (
            SELECT FROM work w
            WHERE w.item_id = i.id AND w.token IS NOT NULL
                AND (CAST(:task AS text) IS NULL OR w.task_id = {task})) AS is_claimed,
        EXISTS (SELECT FROM aliases a WHERE a.item_id = i.id AND a.name = i.name) AS is_named
    FROM ({found}) AS found
    JOIN items i ON i.id = found.id
    ORDER BY i.id
"""
_TASK = "(SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl AND t.name = :task)"
LOOK_AT_CRAWL = text(_LOOK.format(found=_OF_CRAWL, task=_TASK))
LOOK_AT_TAG = text(_LOOK.format(found=_OF_TAG, task=_TASK))


class Expirable(NamedTuple):
    """Items that have something to expire, how many results, and the item to go on behind."""

    names: Sequence[str]
    results: int
    next: int | None


def look(
    connection: Connection, crawl_id: int, *, task: str | None, tag: str | None, after: int
) -> Expirable:
    """Return items of the next `STEP` that have results of a task, or a claim that may make one."""
    given = {"crawl": crawl_id, "task": task, "after": after, "limit": STEP}
    if tag is None:
        rows = connection.execute(LOOK_AT_CRAWL, given).all()
    else:
        rows = connection.execute(LOOK_AT_TAG, {**given, "tag": tag}).all()
    found = [row for row in rows if row.is_named and (row.results or row.is_claimed)]
    return Expirable(
        names=[row.name for row in found],
        results=sum(row.results for row in found),
        next=rows[-1].id if len(rows) == STEP else None,
    )
