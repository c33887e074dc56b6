"""What was done last: executions that ended well, the latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

MOST_LOOKED_AT = 50_000  # attempts, those of other crawls of the database among them
_LATEST = 2**63 - 1  # a number behind all attempts

DONE = text(f"""
    SELECT a.id AS number, i.name AS item, {PAGE}, t.name AS task, a.started_at, a.ended_at,
        coalesce(a.scraped, 0) AS scraped
    FROM (
        SELECT a.* FROM (
            SELECT a.id, a.item_id, a.task_id, a.outcome, a.started_at, a.ended_at, a.scraped
            FROM attempts a WHERE a.id < :before ORDER BY a.id DESC LIMIT :most) AS a
        WHERE a.outcome = :outcome
            AND a.task_id IN (SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl
                AND (CAST(:task AS int) IS NULL OR t.id = :task))
            AND (CAST(:since AS timestamptz) IS NULL OR a.ended_at >= :since)
        ORDER BY a.id DESC LIMIT :limit) AS a
    JOIN items i ON i.id = a.item_id
    JOIN tasks t ON t.id = a.task_id
    ORDER BY a.id DESC
""")  # noqa: S608 - our own columns


class Done(NamedTuple):
    """An execution that ended well; `scraped` is how many items it scraped.

    `url` and `method` are those of the item's data and request, None where it has none. `number`
    is where the list goes on.
    """

    number: int
    item: str
    url: str | None
    method: str | None
    task: str
    started_at: datetime | None
    ended_at: datetime
    scraped: int


def done(
    connection: Connection,
    crawl_id: int,
    task_id: int | None,
    *,
    since: datetime | None,
    before: int | None,
    limit: int,
) -> list[Done]:
    """Return executions that ended well, the latest first; those behind the number `before`.

    They are looked for among the 50,000 last attempts there.
    """
    engine.hot_path(connection)
    given = {
        "crawl": crawl_id,
        "task": task_id,
        "since": since,
        "before": _LATEST if before is None else before,
        "outcome": str(Outcome.OK),
        "most": MOST_LOOKED_AT,
        "limit": limit,
    }
    return typed(connection.execute(DONE, given), Done)
