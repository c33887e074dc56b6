"""Queues of a frontier: found by their keys, and made when the first URL is put into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store import queues, slots
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.urls import marks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

FIND = text("""
    SELECT slot.id AS slot_id, q.id AS queue_id, f.queue_id IS NOT NULL AS is_made,
        coalesce(f.is_deleting, false) AS is_deleting, f.crawl_limit IS NOT NULL AS has_limit
    FROM unnest(CAST(:slots AS int[])) AS slot(id)
    CROSS JOIN LATERAL (
        SELECT x.id FROM queues x WHERE x.crawl_id = :crawl AND x.slot_id = slot.id OFFSET 0) AS q
    LEFT JOIN LATERAL (
        SELECT * FROM frontier_queues x WHERE x.queue_id = q.id OFFSET 0) AS f ON true
""")


class Queue(NamedTuple):
    """A queue of a frontier as a put finds it; where it has a limit completed URLs are counted."""

    slot_id: int
    queue_id: int
    is_made: bool
    is_deleting: bool
    has_limit: bool


class Found(NamedTuple):
    """Slots by the keys of queues, and the queues that are there by their slots."""

    slots: dict[str, int]
    queues: dict[int, Queue]

    def is_deleting(self, key: str) -> bool:
        """Tell whether a queue is being deleted."""
        queue = self.queues.get(self.slots[key])
        return queue is not None and queue.is_deleting


def find(connection: Connection, crawl_id: int, keys: Iterable[str]) -> Found:
    """Find queues by their keys; slots that are not there are made, queues are not."""
    numbers = slots.intern_slots(connection, keys)
    asked = {"crawl": crawl_id, "slots": sorted(numbers.values())}
    found = typed(connection.execute(FIND, asked), Queue)
    return Found(numbers, {one.slot_id: one for one in found})


def make(connection: Connection, crawl_id: int, found: Found) -> dict[str, Queue]:
    """Return queues by their keys, and make those that are not there.

    The names of what is put into them are taken before, as all do.
    """
    made = dict(found.queues)
    missing: dict[tuple[int, int], int | None] = {
        (crawl_id, slot): None for slot in found.slots.values() if slot not in made
    }
    for (_, slot), queue in queues.find_or_make(connection, missing).items():
        made[slot] = Queue(slot, queue, False, False, False)
    marks.make_queues(
        connection, crawl_id, (one.queue_id for one in made.values() if not one.is_made)
    )
    return {key: made[slot] for key, slot in found.slots.items()}
