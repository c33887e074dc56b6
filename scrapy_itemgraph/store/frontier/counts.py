"""How many URLs of a queue are completed, for its limit: counted one by one, however many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.store.frontier.lookup import FoundQueue

COMPLETED = text("""
    SELECT count(*) FROM items i
    CROSS JOIN LATERAL (
        SELECT FROM results r
        WHERE r.item_id = i.id AND r.task_id = :task AND r.completed_at IS NOT NULL
        OFFSET 0) AS completed
    WHERE i.crawl_id = :crawl AND i.slot_id = :slot AND i.in_frontier
""")


def completed(connection: Connection, queue: FoundQueue) -> int:
    """Return how many URLs of a queue are completed, as puts count them."""
    given = {"crawl": queue.crawl_id, "slot": queue.slot_id, "task": queue.task_id}
    number: int = connection.execute(COMPLETED, given).scalar_one()
    return number
