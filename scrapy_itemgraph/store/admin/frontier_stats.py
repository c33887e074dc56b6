"""How many URLs and queues a frontier has: exact up to 100,000, estimated beyond.

A URL is completed that has a result and no work. Of a queue with a limit those are told as
completed that count for it: also what is to be fetched again, for its result has expired. A queue
is active that has something to fetch, now or later, blocked or not, as upstream's server counts it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import counts, frontier
from scrapy_itemgraph.model.frontier import Stats
from scrapy_itemgraph.store.admin.counting import Counted, Groups, count
from scrapy_itemgraph.store.frontier import listings
from scrapy_itemgraph.store.frontier.lookup import Scope

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HELD = """w.not_before > (SELECT clock_timestamp()) AND w.tries > 0
            AND w.task_id = CAST(:task AS int)"""

_IS_COMPLETED = """EXISTS (
            SELECT FROM results r
            WHERE r.item_id = i.id AND r.task_id = :task AND r.completed_at IS NOT NULL OFFSET 0)
        AND NOT EXISTS (
            SELECT FROM work w WHERE w.item_id = i.id AND w.task_id = :task OFFSET 0)"""


def _urls(rows: str, join: str) -> dict[str, Counted]:
    urls = Counted(table="items", alias="i", join=join, rows=rows, sampled="i.in_frontier")
    return {"urls": urls, "completed": replace(urls, condition=_IS_COMPLETED, weight=4)}


OF_CRAWL = Groups(
    columns="t.id",
    source="crawls t",
    where="t.id = :crawl",
    counted={
        **_urls(
            "SELECT i.id FROM items i WHERE i.crawl_id = t.id AND i.in_frontier",
            "i.crawl_id = t.id",
        ),
        "in_process": Counted(
            table="work",
            alias="w",
            join="w.crawl_id = t.id",
            rows=f"""SELECT FROM work w
                WHERE w.crawl_id = t.id AND w.tries <> 0 AND {_HELD}""",
            sampled=_HELD,
        ),
        "queues": Counted(
            table="frontier_queues",
            alias="f",
            join="f.crawl_id = t.id",
            rows="SELECT FROM frontier_queues f WHERE f.crawl_id = t.id",
            sampled="true",
        ),
        "active_queues": Counted(
            table="frontier_queues",
            alias="f",
            join="f.crawl_id = t.id",
            rows="SELECT * FROM frontier_queues f WHERE f.crawl_id = t.id",
            sampled="true",
            condition=listings.HAS_WORK,
            weight=8,
        ),
    },
)

OF_QUEUE = Groups(
    columns="t.id",
    source="queues t",
    where="t.id = :queue",
    counted={
        **_urls(
            """SELECT i.id FROM items i
            WHERE i.crawl_id = t.crawl_id AND i.slot_id = t.slot_id AND i.in_frontier""",
            "i.crawl_id = t.crawl_id AND i.slot_id = t.slot_id",
        ),
        "in_process": Counted(
            table="work",
            alias="w",
            join="w.queue_id = t.id",
            rows=f"SELECT FROM work w WHERE w.queue_id = t.id AND {_HELD}",
            sampled=_HELD,
        ),
    },
)

# A queue, and how many of its URLs are completed where that is counted.
QUEUE = text(f"""
    SELECT {listings.HAS_WORK} AS is_active,
        CASE WHEN f.crawl_limit IS NOT NULL THEN f.completed END AS completed
    FROM frontier_queues f WHERE f.queue_id = :queue
""")  # noqa: S608 - our own conditions


# A crawl that has a frontier, and its task.
FIND = text("""
    SELECT c.id, t.id AS task_id FROM crawls c
    LEFT JOIN tasks t ON t.crawl_id = c.id AND t.name = :task
    WHERE c.id = :crawl AND c.frontier IS NOT NULL
""")


def of_crawl(connection: Connection, crawl_id: int) -> Stats | None:
    """Return how many URLs and queues a crawl's frontier has; None: it has no frontier."""
    found = connection.execute(FIND, {"crawl": crawl_id, "task": frontier.TASK}).first()
    return None if found is None else stats(connection, Scope(*found))


def stats(connection: Connection, scope: Scope) -> Stats:
    """Return how many URLs and queues a crawl's frontier has, or one queue of it."""
    given = {"task": scope.task_id}
    if scope.queue_id is None:
        found = count(connection, OF_CRAWL, crawl=scope.crawl_id, **given)
        numbers = found[0]
        size = counts.less(numbers["urls"], numbers["completed"])
    else:
        found = count(connection, OF_QUEUE, queue=scope.queue_id, **given)
        queue = connection.execute(QUEUE, {"queue": scope.queue_id, **given}).first()
        if queue is None:  # it was deleted meanwhile
            return Stats()
        size = counts.less(found[0]["urls"], found[0]["completed"])
        numbers = {**found[0], "queues": 1, "active_queues": int(queue.is_active)}
        if queue.completed is not None:
            numbers["completed"] = queue.completed
    told = {name: numbers[name] for name in ("in_process", "queues", "active_queues")}
    return Stats(
        size=int(size),
        completed=int(numbers["completed"]),
        is_estimated=bool(counts.estimated({"size": size, **numbers})),
        **{name: int(number) for name, number in told.items()},
    )
