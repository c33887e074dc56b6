"""Finds lists that are fresh for ever, behind which a run cannot see new pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.sql_conditions import IS_LASTING

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LOOKED_AT = 1000  # results of a task

# The newest item of a crawl, if it is of the present run.
HAS_FOUND = text("""
    SELECT coalesce((
        SELECT i.created_at >= r.started_at
        FROM items i JOIN runs r ON r.crawl_id = i.crawl_id AND r.number = :run
        WHERE i.crawl_id = :crawl ORDER BY i.crawl_id DESC, i.id DESC LIMIT 1), false)
""")

# Plain callbacks that yield requests and no items, with a page of an earlier run that never falls
# due.
FRESH_LISTS = text(f"""
    SELECT t.name FROM tasks t JOIN totals o ON o.crawl_id = t.crawl_id AND o.task_id = t.id
    WHERE t.crawl_id = :crawl AND t.is_callback AND t.is_registered AND t.ttl IS NULL
        AND o.items > 0 AND o.scraped = 0
        AND NOT EXISTS (SELECT FROM task_schedules s WHERE s.task_id = t.id)
        AND EXISTS (
            SELECT FROM (
                SELECT r.run FROM results r
                WHERE r.task_id = t.id AND {IS_LASTING} LIMIT {_LOOKED_AT}) AS r
            WHERE coalesce(r.run, 1) < :run)
    ORDER BY t.name
""")  # noqa: S608 - our own condition and number


def fresh_lists(connection: Connection, crawl_id: int, run: int) -> list[str]:
    """Return the callbacks whose pages a run left alone, if it has found no new page or item."""
    here = {"crawl": crawl_id, "run": run}
    if connection.execute(HAS_FOUND, here).scalar_one():
        return []
    return list(connection.execute(FRESH_LISTS, here).scalars())
