"""Queues of a frontier that are there, found by the names of their crawls and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.store.columns import typed

if TYPE_CHECKING:
    from sqlalchemy import Connection

LAST_SLOT = 2**31 - 1
LAST_ITEM = 2**63 - 1

# Whether an item `i` is within a span.
IS_WITHIN = """(i.slot_id, i.id) > (CAST(:slot AS int), CAST(:item AS bigint))
        AND (i.slot_id, i.id) <= (CAST(:last_slot AS int), CAST(:last_item AS bigint))"""

CRAWLS = text("""
    SELECT c.id, c.name FROM crawls c
    WHERE EXISTS (SELECT FROM frontier_queues f WHERE f.crawl_id = c.id OFFSET 0) ORDER BY c.id
""")

FIND_CRAWL = text("""
    SELECT c.id AS crawl_id, t.id AS task_id FROM crawls c
    LEFT JOIN tasks t ON t.crawl_id = c.id AND t.name = :task
    WHERE c.name = :crawl AND EXISTS (
        SELECT FROM frontier_queues f WHERE f.crawl_id = c.id OFFSET 0)
""")

FIND_QUEUE = text("""
    SELECT c.id AS crawl_id, t.id AS task_id, q.id AS queue_id, q.slot_id FROM crawls c
    JOIN limits l ON l.kind = 'slot' AND l.name = :key
    JOIN queues q ON q.crawl_id = c.id AND q.slot_id = l.id
    JOIN frontier_queues f ON f.queue_id = q.id
    LEFT JOIN tasks t ON t.crawl_id = c.id AND t.name = :task
    WHERE c.name = :crawl
""")


class Cursor(NamedTuple):
    """A place in the order of a crawl's URLs: they go by slot and item."""

    slot_id: int
    item_id: int


class Scope(NamedTuple):
    """A crawl with a frontier, or one queue of it. `task_id` is its `fetch`, if it has one."""

    crawl_id: int
    task_id: int | None
    queue_id: int | None = None
    slot_id: int | None = None

    @property
    def start(self) -> Cursor:
        """The place before its first URL."""
        return Cursor(0, 0) if self.slot_id is None else Cursor(self.slot_id, 0)

    @property
    def end(self) -> Cursor:
        """The place behind its last URL."""
        return Cursor(LAST_SLOT if self.slot_id is None else self.slot_id, LAST_ITEM)

    def span(self, after: Cursor, last: Cursor | None = None) -> dict[str, Any]:
        """Return as parameters: what is behind a place, up to another, or up to the end."""
        last = last or self.end
        return {
            "crawl": self.crawl_id,
            "slot": after.slot_id,
            "item": after.item_id,
            "last_slot": last.slot_id,
            "last_item": last.item_id,
        }


class FoundQueue(NamedTuple):
    """One queue, and the task `fetch` of its crawl, if it has one."""

    crawl_id: int
    task_id: int | None
    queue_id: int
    slot_id: int


def crawls(connection: Connection) -> dict[int, str]:
    """Return the names of the crawls that have queues of a frontier, by their ids."""
    return {row.id: row.name for row in connection.execute(CRAWLS)}


def find(connection: Connection, crawl: str, key: str | None) -> Scope | None:
    """Return a crawl that has queues of a frontier, or with a key one of these; None: no such."""
    if key is not None:
        queue = find_queue(connection, crawl, key)
        return None if queue is None else Scope(*queue)
    given = {"crawl": crawl, "task": frontier.TASK}
    found = connection.execute(FIND_CRAWL, given).first()
    return None if found is None else Scope(found.crawl_id, found.task_id)


def find_queue(connection: Connection, crawl: str, key: str) -> FoundQueue | None:
    """Return a queue of a crawl's frontier by its key; None: there is none."""
    given = {"crawl": crawl, "key": key, "task": frontier.TASK}
    found = typed(connection.execute(FIND_QUEUE, given), FoundQueue)
    return found[0] if found else None
