"""Which items of a crawl are URLs of its frontier, also where a spider or a person made them.

It is told anew of each item that is changed. One is a URL that has the tag `url`, a slot, and among
its names that of the URL in its data: by that name a crawler's answer finds it again. Its slot is
then a queue of the frontier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.postgres.arrays import number_array
from scrapy_itemgraph.postgres.event_loop import sorted_chunks
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.sql_conditions import IS_READABLE
from scrapy_itemgraph.store.urls import completions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

# It is in the name if PostgreSQL cannot read the data.
_URL = f"""CASE
            WHEN {IS_READABLE} THEN i.data ->> 'url'
            ELSE substr(i.name, strpos(i.name, ':') + 1) END"""

# As `model.frontier.item_name` makes them.
_NAMES = f"""('{frontier.PREFIX}' || address.url,
                '{frontier.KEYED_PREFIX}' || replace(replace(slot.name, '%', '%25'), ':', '%3A')
                    || ':' || address.url)"""

# Marks items, and returns the slots of those that are URLs whose queue is not the frontier's yet.
MARK = text(f"""
    WITH found AS MATERIALIZED (
        SELECT i.id, i.slot_id, i.in_frontier, CASE WHEN EXISTS (
                SELECT FROM tags g WHERE g.item_id = i.id AND g.tag_name = :tag OFFSET 0)
            AND EXISTS (
                SELECT FROM (SELECT {_URL} AS url OFFSET 0) AS address
                CROSS JOIN LATERAL (
                    SELECT l.name FROM limits l
                    WHERE l.id = i.slot_id AND l.name <> '' OFFSET 0) AS slot
                CROSS JOIN LATERAL (
                    SELECT a.name FROM aliases a WHERE a.item_id = i.id OFFSET 0) AS own
                WHERE own.name IN {_NAMES}) THEN true END AS is_url
        FROM unnest(CAST(:items AS bigint[])) AS changed(id)
        JOIN items i ON i.id = changed.id),
    marked AS (
        UPDATE items i SET in_frontier = found.is_url FROM found
        WHERE i.id = found.id AND found.in_frontier IS DISTINCT FROM found.is_url)
    SELECT DISTINCT found.slot_id, q.id AS queue_id
    FROM found
    LEFT JOIN LATERAL (
        SELECT x.id FROM queues x
        WHERE x.crawl_id = :crawl AND x.slot_id = found.slot_id OFFSET 0) AS q ON true
    WHERE found.is_url AND NOT EXISTS (
        SELECT FROM frontier_queues f WHERE f.queue_id = q.id OFFSET 0)
    ORDER BY found.slot_id
""")  # noqa: S608 - our own expressions

MAKE_QUEUES = text("""
    INSERT INTO frontier_queues (queue_id, crawl_id)
    SELECT queue.id, :crawl FROM unnest(CAST(:queues AS int[])) AS queue(id)
    ON CONFLICT DO NOTHING
""")


class Marking:
    """What a transaction makes of a frontier's URLs: they are marked, and counted for limits.

    It is begun before the transaction changes items, which it has locked by then.
    """

    def __init__(self, connection: Connection, crawl_id: int, items: Iterable[int]) -> None:
        self._connection = connection
        self._crawl_id = crawl_id
        self._tally = completions.Tally(connection, crawl_id, items)
        self._changed: Collection[int] = ()

    def mark(self, changed: Collection[int]) -> None:
        """Mark those of the changed items that are URLs now, and give the frontier their queues."""
        self._changed = changed
        mark(self._connection, self._crawl_id, changed)

    def count(self) -> None:
        """Count how many more are completed; called when their work was written."""
        completions.add(self._connection, self._tally.more(self._changed))


def mark(connection: Connection, crawl_id: int, changed: Collection[int]) -> None:
    """Mark items, which the caller has locked or made, and give the frontier their queues."""
    unmade: dict[tuple[int, int], int | None] = {}
    for part in sorted_chunks(connection, changed):
        given = {"crawl": crawl_id, "tag": frontier.TAG, "items": number_array(part)}
        rows = connection.execute(MARK, given)
        unmade.update({(crawl_id, row.slot_id): row.queue_id for row in rows})
    if unmade:
        found = queues.find_or_make(connection, unmade)
        make_queues(connection, crawl_id, found.values())


def make_queues(connection: Connection, crawl_id: int, queue_ids: Iterable[int]) -> None:
    """Make queues of a crawl queues of its frontier."""
    if unmade := sorted(queue_ids):
        connection.execute(MAKE_QUEUES, {"crawl": crawl_id, "queues": unmade})
