"""The journal: scraped items, kept by the commit of the execution that scraped them.

It is appended to and read, never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.feed_exports import Kept
from scrapy_itemgraph.postgres.event_loop import chunks
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.feed_exports import Scraped

# In the order given, so that numbers follow the order in which items were scraped; each is marked
# for the feeds that take part in the run, which have it to write.
APPEND = text("""
    WITH kept AS (
        INSERT INTO journal (crawl_id, item_id, task_id, item_class, fields)
        SELECT :crawl, item_id, task_id, item_class, CAST(fields AS json)
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:classes AS text[]),
            CAST(:fields AS text[])) WITH ORDINALITY
            AS given(item_id, task_id, item_class, fields, place)
        ORDER BY place
        RETURNING id)
    INSERT INTO feed_items (feed_id, journal_id)
    SELECT f.id, kept.id
    FROM crawls c JOIN feeds f ON f.crawl_id = c.id AND f.run = c.run, kept
    WHERE c.id = :crawl
""")

READ = text("""
    SELECT j.id AS number, j.item_class, j.fields, i.name AS item, t.name AS task,
        j.created_at AS kept_at
    FROM (
        SELECT * FROM journal
        WHERE crawl_id = :crawl AND id > :after
            AND (CAST(:since AS timestamptz) IS NULL OR created_at >= :since)
            AND (CAST(:until AS timestamptz) IS NULL OR created_at < :until)
            AND (CAST(:classes AS text[]) IS NULL OR item_class = ANY (CAST(:classes AS text[])))
        ORDER BY id LIMIT :limit) j
    LEFT JOIN items i ON i.id = j.item_id
    LEFT JOIN tasks t ON t.id = j.task_id
    ORDER BY j.id
""")

COUNT = text("SELECT count(*) FROM journal WHERE crawl_id = :crawl")

CLASSES = text("""
    SELECT item_class, count(*) AS total FROM journal WHERE crawl_id = :crawl
    GROUP BY item_class ORDER BY item_class
""")


@dataclass(frozen=True, slots=True)
class Entry:
    """A scraped item to be kept, with the item and the task that it was scraped for, if any."""

    scraped: Scraped
    item_id: int | None = None
    task_id: int | None = None


def append(connection: Connection, crawl_id: int, entries: Sequence[Entry]) -> None:
    """Keep scraped items; the caller's transaction shares the crawl's lock."""
    for part in chunks(connection, entries):
        given = columns(
            part,
            items="item_id",
            tasks="task_id",
            classes="scraped.item_class",
            fields="scraped.fields",
        )
        connection.execute(APPEND, {"crawl": crawl_id, **given})


def read(
    connection: Connection,
    crawl_id: int,
    *,
    after_id: int,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
    item_classes: Sequence[str] = (),
) -> list[Kept]:
    """Return the next page: what was kept from `since` on and before `until`, by number."""
    page = {"crawl": crawl_id, "after": after_id, "limit": limit}
    which = {"since": since, "until": until, "classes": list(item_classes) or None}
    rows = connection.execute(READ, page | which)
    return [Kept(**row._asdict()) for row in rows]


def count(connection: Connection, crawl_id: int) -> int:
    """Return how many scraped items are kept."""
    total: int = connection.execute(COUNT, {"crawl": crawl_id}).scalar_one()
    return total


def classes(connection: Connection, crawl_id: int) -> dict[str, int]:
    """Return how many items of which class are kept."""
    rows = connection.execute(CLASSES, {"crawl": crawl_id})
    return {row.item_class: row.total for row in rows}
