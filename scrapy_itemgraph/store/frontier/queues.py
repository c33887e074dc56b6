"""Queues of a frontier: found by their keys, and made when the first URL is put into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres.arrays import text_array
from scrapy_itemgraph.store import queues, slots
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.urls import marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

FIND = text("""
    SELECT slot.key, l.id AS slot_id, coalesce(q.id, 0) AS queue_id,
        f.queue_id IS NOT NULL AS is_made, coalesce(f.is_deleting, false) AS is_deleting,
        f.crawl_limit IS NOT NULL AS has_limit
    FROM unnest(CAST(:keys AS text[])) AS slot(key)
    CROSS JOIN LATERAL (
        SELECT x.id FROM limits x WHERE x.kind = 'slot' AND x.name = slot.key OFFSET 0) AS l
    LEFT JOIN LATERAL (
        SELECT x.id FROM queues x
        WHERE x.crawl_id = :crawl AND x.slot_id = l.id OFFSET 0) AS q ON true
    LEFT JOIN LATERAL (
        SELECT * FROM frontier_queues x WHERE x.queue_id = q.id OFFSET 0) AS f ON true
""")


class Queue(NamedTuple):
    """A queue of a frontier as a put finds it; where it has a limit completed URLs are counted.

    `queue_id` 0: it is not there.
    """

    key: str
    slot_id: int
    queue_id: int
    is_made: bool = False
    is_deleting: bool = False
    has_limit: bool = False


def find(connection: Connection, crawl_id: int, keys: Iterable[str]) -> dict[str, Queue]:
    """Find queues by their keys; slots that are not there are made, queues are not."""
    wanted = sorted(set(keys))
    asked = {"crawl": crawl_id, "keys": text_array(wanted)}
    found = {one.key: one for one in typed(connection.execute(FIND, asked), Queue)}
    if len(found) < len(wanted):
        made = slots.intern_slots(connection, [key for key in wanted if key not in found])
        found |= {key: Queue(key, slot, 0) for key, slot in made.items()}
    return found


def make(connection: Connection, crawl_id: int, found: Mapping[str, Queue]) -> dict[str, Queue]:
    """Return queues by their keys, and make those that are not there.

    The names of what is put into them are taken before, as all do.
    """
    missing: dict[tuple[int, int], int | None] = {
        (crawl_id, one.slot_id): None for one in found.values() if not one.queue_id
    }
    numbers = queues.find_or_make(connection, missing)
    made = {
        key: one if one.queue_id else one._replace(queue_id=numbers[crawl_id, one.slot_id])
        for key, one in found.items()
    }
    marks.make_queues(
        connection, crawl_id, [one.queue_id for one in made.values() if not one.is_made]
    )
    return made
