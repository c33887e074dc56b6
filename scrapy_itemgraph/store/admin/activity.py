"""What workers did lately, by the minute, and the workers themselves: reads for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.admin.limit_names import limit_name
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

MINUTES = text("""
    SELECT m.minute, t.name AS task, m.done, m.retried, m.failed, m.refused, m.items, m.seconds,
        m.gone, m.scraped
    FROM task_minutes m LEFT JOIN tasks t ON t.id = m.task_id
    WHERE m.crawl_id = :crawl AND m.minute > clock_timestamp() - CAST(:period AS interval)
    ORDER BY m.minute, t.name
""")

REQUESTS = text("""
    SELECT l.kind, l.name, m.minute, m.requests
    FROM limit_minutes m JOIN limits l ON l.id = m.limit_id
    WHERE m.minute > clock_timestamp() - CAST(:period AS interval)
    ORDER BY m.minute DESC, m.requests DESC LIMIT :limit
""")

# Workers that have not stopped, and the last of those that have.
WORKERS = text(f"""
    SELECT p.id, w.spider, p.host, p.process_id, w.job, p.code, w.code_file, p.memory,
        p.started_at, p.seen_at,
        p.lease_until, p.stopped_at, p.reason, w.error, w.error_at,
        p.stopped_at IS NULL AND {IS_DEAD} AS is_dead, held.claims, held.oldest_claim,
        ARRAY(SELECT t.name FROM tasks t
            WHERE t.crawl_id = :crawl AND p.id = ANY (t.left_by) ORDER BY 1) AS leaves
    FROM (
        (SELECT x.* FROM processes x WHERE x.crawl_id = :crawl AND x.stopped_at IS NULL
            ORDER BY x.id LIMIT :limit)
        UNION ALL
        (SELECT x.* FROM processes x WHERE x.crawl_id = :crawl AND x.stopped_at IS NOT NULL
            ORDER BY x.stopped_at DESC LIMIT :stopped)) AS p
    JOIN workers w ON w.id = p.id
    CROSS JOIN LATERAL (
        SELECT count(*) AS claims, min(k.claimed_at) AS oldest_claim FROM work k
        WHERE k.worker_id = p.id AND k.token IS NOT NULL) AS held
    ORDER BY p.stopped_at DESC NULLS FIRST, p.id
""")  # noqa: S608 - our own condition

MOST_WORKERS = 1000
MOST_MINUTES = 20_000


class TaskMinute(NamedTuple):
    """What executions of a task did in a minute; `task` is None of seeds and `start()`.

    `done`, `retried`, `failed`, `refused` and `gone` count executions by their end, `items` what
    they made, `scraped` scraped items; `seconds` is how long they took together.
    """

    minute: datetime
    task: str | None
    done: int
    retried: int
    failed: int
    refused: int
    items: int
    seconds: float
    gone: int
    scraped: int


class LimitMinute(NamedTuple):
    """How many requests started under a limit in a minute; `name` is as `slots` has it."""

    name: str
    minute: datetime
    requests: int


class WorkerState(NamedTuple):
    """A crawl process: where it runs or ran, with what code and memory (bytes), and its claims.

    `code` is a digest of `code_file`, where that is known. `error` is the last that its process
    logged. `is_dead`: it has not said that it stopped, and lives no more. `leaves`: tasks whose
    work it leaves alone, for failures of them were handled with other code.
    """

    id: int
    spider: str
    host: str
    process_id: int
    job: str | None
    code: str | None
    code_file: str | None
    memory: int | None
    started_at: datetime
    seen_at: datetime
    lease_until: datetime
    stopped_at: datetime | None
    reason: str | None
    error: str | None
    error_at: datetime | None
    is_dead: bool
    claims: int
    oldest_claim: datetime | None
    leaves: list[str]


def minutes(connection: Connection, crawl_id: int, period: timedelta) -> list[TaskMinute]:
    """Return what was done in each minute that began within a period up to now."""
    return typed(connection.execute(MINUTES, {"crawl": crawl_id, "period": period}), TaskMinute)


def requests(connection: Connection, period: timedelta) -> list[LimitMinute]:
    """Return how many requests started under each limit in each minute, of all crawls."""
    given = {"period": period, "limit": MOST_MINUTES}
    return [
        LimitMinute(limit_name(row.kind, row.name), row.minute, row.requests)
        for row in connection.execute(REQUESTS, given)
    ]


def workers(connection: Connection, crawl_id: int, *, stopped: int) -> list[WorkerState]:
    """Return the workers that have not stopped, and then so many of those that have."""
    given = {"crawl": crawl_id, "stopped": stopped, "limit": MOST_WORKERS}
    return typed(connection.execute(WORKERS, given), WorkerState)
