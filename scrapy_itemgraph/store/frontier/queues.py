"""Queues of a frontier: found by their keys, and made when the first URL is put into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store import queues, slots
from scrapy_itemgraph.store.columns import typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

MAKE = text("""
    INSERT INTO frontier_queues (queue_id, crawl_id)
    SELECT queue.id, :crawl FROM unnest(CAST(:queues AS int[])) AS queue(id)
    ON CONFLICT DO NOTHING
""")

LOCK = text("""
    SELECT f.queue_id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    JOIN frontier_queues f ON f.queue_id = wanted.id
    FOR NO KEY UPDATE OF f
""")

COUNT = text("""
    UPDATE frontier_queues f SET completed = greatest(0, f.completed + more.count)
    FROM unnest(CAST(:queues AS int[]), CAST(:counts AS bigint[])) AS more(queue_id, count)
    WHERE f.queue_id = more.queue_id AND f.crawl_limit IS NOT NULL
""")

# Queues whose turn is still to come; they are locked in the order in which commits lock them.
LOOK_AGAIN = text("""
    UPDATE queues q SET next_at = clock_timestamp()
    FROM (
        SELECT q.id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
        JOIN queues q ON q.id = wanted.id
        WHERE q.next_at > (SELECT clock_timestamp())
        FOR NO KEY UPDATE OF q) AS again
    WHERE q.id = again.id
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
    unmade = sorted(one.queue_id for one in made.values() if not one.is_made)
    if unmade:
        connection.execute(MAKE, {"crawl": crawl_id, "queues": unmade})
    return {key: made[slot] for key, slot in found.slots.items()}


def count_completed(connection: Connection, more: Mapping[int, int]) -> None:
    """Add to how many URLs of queues are completed; they are locked in the order of their ids.

    Those of which fewer are than before are looked into again: they may have been at their limit.
    """
    counts = {queue: more[queue] for queue in sorted(more) if more[queue]}
    if counts:
        connection.execute(LOCK, {"queues": list(counts)}).all()
        connection.execute(COUNT, {"queues": list(counts), "counts": list(counts.values())})
        look_again(connection, [queue for queue, count in counts.items() if count < 0])


def look_again(connection: Connection, queue_ids: Sequence[int]) -> None:
    """Have queues, in the order of their ids, looked into again as soon as URLs are asked for."""
    if queue_ids:
        connection.execute(LOOK_AGAIN, {"queues": queue_ids})
