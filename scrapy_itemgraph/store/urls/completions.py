"""How many URLs of queues are completed, for their limits, before and after a change of them.

A URL is completed that has a complete result of `fetch`, stale or not.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.postgres.arrays import number_array
from scrapy_itemgraph.postgres.event_loop import sorted_chunks
from scrapy_itemgraph.store import queues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

# The task `fetch` of a crawl, if a queue of it has a limit.
LIMITED = text("""
    SELECT t.id FROM tasks t
    WHERE t.crawl_id = :crawl AND t.name = :task AND EXISTS (
        SELECT FROM frontier_queues f
        WHERE f.crawl_id = :crawl AND f.crawl_limit IS NOT NULL OFFSET 0)
""")

# How many of some items are completed URLs, by queues that have a limit. Each queue is looked up by
# its number (OFFSET 0): a planner might read all that have a limit.
OF_ITEMS = text("""
    SELECT q.id AS queue_id, count(*) AS number
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT id, crawl_id, slot_id FROM items
        WHERE items.id = wanted.id AND items.in_frontier OFFSET 0) AS i
    CROSS JOIN LATERAL (
        SELECT id FROM queues
        WHERE queues.crawl_id = i.crawl_id AND queues.slot_id = i.slot_id OFFSET 0) AS q
    CROSS JOIN LATERAL (
        SELECT crawl_limit FROM frontier_queues f WHERE f.queue_id = q.id OFFSET 0) AS f
    CROSS JOIN LATERAL (
        SELECT FROM results r
        WHERE r.item_id = i.id AND r.task_id = :task AND r.completed_at IS NOT NULL
        OFFSET 0) AS completed
    WHERE f.crawl_limit IS NOT NULL
    GROUP BY q.id
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


class Tally:
    """How many of some items are completed URLs, by queues that have a limit.

    It is made before a transaction changes them. That has their locks, and shares the crawl's, so
    that no limit is set meanwhile.
    """

    def __init__(self, connection: Connection, crawl_id: int, items: Iterable[int]) -> None:
        self._connection = connection
        self._items = set(items)
        limited = {"crawl": crawl_id, "task": frontier.TASK}
        self._task_id: int | None = connection.execute(LIMITED, limited).scalar()
        self._before = self._counted()

    def more(self, new: Iterable[int] = ()) -> dict[int, int]:
        """Return how many more are completed now, by queue, with those that are new."""
        if self._task_id is None:
            return {}
        self._items.update(new)
        now = self._counted()
        return {queue: now[queue] - self._before[queue] for queue in {*now, *self._before}}

    def _counted(self) -> Counter[int]:
        found: Counter[int] = Counter()
        if self._task_id is None:
            return found
        for part in sorted_chunks(self._connection, self._items):
            found.update(of_items(self._connection, part, self._task_id))
        return found


def of_items(connection: Connection, items: Iterable[int], task_id: int | None) -> dict[int, int]:
    """Return how many of some items are completed URLs, by queues that have a limit."""
    given = {"items": number_array(items), "task": task_id}
    return {row.queue_id: row.number for row in connection.execute(OF_ITEMS, given)}


def add(connection: Connection, more: Mapping[int, int]) -> None:
    """Add to how many URLs of queues are completed; they are locked in the order of their ids.

    Those of which fewer are than before are looked into again: they may have been at their limit.
    """
    counts = {queue: more[queue] for queue in sorted(more) if more[queue]}
    if counts:
        connection.execute(LOCK, {"queues": list(counts)}).all()
        connection.execute(COUNT, {"queues": list(counts), "counts": list(counts.values())})
        queues.look_again(connection, [queue for queue, count in counts.items() if count < 0])
