"""What the workers of a crawl did in all, by task: reads for people and for monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.columns import typed

if TYPE_CHECKING:
    from sqlalchemy import Connection

TOTALS = text("""
    SELECT k.name AS task, t.done, t.retried, t.failed, t.refused, t.gone, t.items, t.scraped,
        t.bytes, t.statuses
    FROM totals t LEFT JOIN tasks k ON k.id = t.task_id
    WHERE t.crawl_id = :crawl ORDER BY t.task_id LIMIT :limit
""")

MOST_TASKS = 10_000


class TaskTotals(NamedTuple):
    """All that was done of a task; `task` is None of what is of none, such as robots.txt.

    `done`, `retried`, `failed`, `refused` and `gone` count executions by their end, `items` those
    of the graph that they made, `scraped` scraped items. `statuses` counts requests by their HTTP
    status, "none" those without an answer; `bytes` are those of the answers' bodies as sent.
    """

    task: str | None
    done: int
    retried: int
    failed: int
    refused: int
    gone: int
    items: int
    scraped: int
    bytes: int
    statuses: dict[str, int]


def totals(connection: Connection, crawl_id: int) -> list[TaskTotals]:
    """Return what was done of each task of a crawl, what is of no task first."""
    return typed(connection.execute(TOTALS, {"crawl": crawl_id, "limit": MOST_TASKS}), TaskTotals)
