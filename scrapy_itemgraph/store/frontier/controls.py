"""What people and crawlers set for queues of a frontier: delays, blocks, limits, a pause of all.

Who hands out reads it where it stands. When a queue is looked into again is said beside it, in
`queues.next_at`, and is pulled back where what is set may let the queue be served sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.frontier import counts, lookup
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.frontier.lookup import FoundQueue

SET_DELAY = text("UPDATE frontier_queues SET delay = :delay WHERE queue_id = :queue")

SET_DEFAULT_DELAY = text("UPDATE frontier SET default_delay = :delay")

SET_BLOCK = text("UPDATE frontier_queues SET blocked_until = :moment WHERE queue_id = :queue")

SET_LIMIT = text("""
    UPDATE frontier_queues SET crawl_limit = :limit, completed = :completed
    WHERE queue_id = :queue
""")

# In the order in which all lock queues.
LOOK_AGAIN_IN_ALL = text("""
    UPDATE queues q SET next_at = clock_timestamp()
    FROM (
        SELECT q.id FROM frontier_queues f JOIN queues q ON q.id = f.queue_id
        WHERE f.crawl_id = :crawl AND f.delay IS NULL
            AND q.next_at > (SELECT clock_timestamp())
        FOR NO KEY UPDATE OF q) AS again
    WHERE q.id = again.id
""")

SET_ACTIVE = text("UPDATE frontier SET is_active = :is_active")

SET_OWN_ACTIVE = text("""
    UPDATE frontier_nodes SET is_active = :is_active WHERE process_id = :process
""")

END_PAUSES = text("UPDATE frontier_nodes SET is_active = true WHERE NOT is_active")

# Servers that live and are paused by themselves.
PAUSED = f"""
    SELECT FROM frontier_nodes n JOIN processes p ON p.id = n.process_id
    WHERE NOT n.is_active AND (CAST(:process AS int) IS NULL OR n.process_id = :process)
        AND NOT {IS_DEAD}
"""
IS_ACTIVE = text(f"SELECT f.is_active AND NOT EXISTS ({PAUSED}) FROM frontier f")  # noqa: S608


def set_delay(connection: Connection, queue_id: int, seconds: int) -> None:
    """Set how many seconds a queue waits after it was served."""
    connection.execute(SET_DELAY, {"queue": queue_id, "delay": seconds})
    queues.look_again(connection, [queue_id])


def set_default_delay(connection: Connection, seconds: int) -> Sequence[int]:
    """Set it for queues that have no delay of their own; return the crawls that have queues."""
    connection.execute(SET_DEFAULT_DELAY, {"delay": seconds})
    return list(lookup.crawls(connection))


def look_again(connection: Connection, crawl_id: int) -> None:
    """Have a crawl's queues without a delay of their own looked into again.

    Whoever hands out by the delay of before has ended by then.
    """
    crawls.own_crawl(connection, crawl_id)
    connection.execute(LOOK_AGAIN_IN_ALL, {"crawl": crawl_id})


def block_until(connection: Connection, queue_id: int, moment: int) -> None:
    """Hand nothing out of a queue through a second; one that is past ends the block."""
    connection.execute(SET_BLOCK, {"queue": queue_id, "moment": moment})
    queues.look_again(connection, [queue_id])


def set_limit(connection: Connection, queue: FoundQueue, limit: int) -> None:
    """Hand nothing out of a queue once so many of its URLs are completed; 0: without limit.

    No URL is put into the crawl while they are counted.
    """
    crawls.own_crawl(connection, queue.crawl_id)
    completed = counts.completed(connection, queue) if limit else 0
    given = {"queue": queue.queue_id, "limit": limit or None, "completed": completed}
    connection.execute(SET_LIMIT, given)
    queues.look_again(connection, [queue.queue_id])


def set_active(connection: Connection, process_id: int | None, *, is_active: bool) -> None:
    """Have URLs handed out or not: by one server, or with None by all, also by those to come."""
    if process_id is not None:
        given = {"process": process_id, "is_active": is_active}
        connection.execute(SET_OWN_ACTIVE, given)
        return
    connection.execute(SET_ACTIVE, {"is_active": is_active})
    if is_active:
        connection.execute(END_PAUSES)


def is_active(connection: Connection, process_id: int | None) -> bool:
    """Tell whether one server hands URLs out, or with None all that live."""
    answer: bool = connection.execute(IS_ACTIVE, {"process": process_id}).scalar_one()
    return answer
