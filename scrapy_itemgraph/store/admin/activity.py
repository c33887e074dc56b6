"""What workers did lately, by the minute, and the workers themselves: reads for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
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

# What ended in each second, among the newest attempts of the database, and which items were made
# then, among the newest of the crawl. It `is_whole` where these go back far enough.
SECONDS = text("""
    WITH looked AS MATERIALIZED (
        SELECT a.task_id, a.outcome, a.ended_at, a.scraped FROM attempts a
        ORDER BY a.id DESC LIMIT :most),
    made AS MATERIALIZED (
        SELECT i.created_at FROM items i WHERE i.crawl_id = :crawl
        ORDER BY i.crawl_id DESC, i.id DESC LIMIT :most)
    SELECT x.second, sum(x.done) AS done, sum(x.failed) AS failed, sum(x.items) AS items,
        sum(x.scraped) AS scraped,
        (SELECT count(*) < :most OR min(l.ended_at) < :since FROM looked l)
            AND (SELECT count(*) < :most OR min(m.created_at) < :since FROM made m) AS is_whole
    FROM (
        SELECT date_trunc('second', a.ended_at) AS second,
            CASE WHEN a.outcome IN ('ok', 'unchanged', 'known') THEN 1 ELSE 0 END AS done,
            CASE a.outcome WHEN 'failed' THEN 1 ELSE 0 END AS failed,
            0 AS items, coalesce(a.scraped, 0) AS scraped
        FROM looked a
        WHERE a.ended_at >= :since
            AND a.task_id IN (SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl)
        UNION ALL
        SELECT date_trunc('second', m.created_at), 0, 0, 1, 0 FROM made m
        WHERE m.created_at >= :since) AS x
    GROUP BY 1 ORDER BY 1
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
            AND x.reason IS DISTINCT FROM 'simulated'
            ORDER BY x.stopped_at DESC LIMIT :stopped)) AS p
    JOIN workers w ON w.id = p.id
    CROSS JOIN LATERAL (
        SELECT count(*) AS claims, min(k.claimed_at) AS oldest_claim FROM work k
        WHERE k.worker_id = p.id AND k.token IS NOT NULL) AS held
    ORDER BY p.stopped_at DESC NULLS FIRST, p.id
""")  # noqa: S608 - our own condition

MOST_WORKERS = 1000
MOST_MINUTES = 20_000
MOST_LOOKED_AT = 10_000  # attempts and items, for what was done by the second


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


class SecondOfCrawl(NamedTuple):
    """What was done in a second, as `TaskMinute` has it; `items` are all that the graph got."""

    second: datetime
    done: int
    failed: int
    items: int
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


def seconds(connection: Connection, crawl_id: int, since: datetime) -> list[SecondOfCrawl]:
    """Return what was done in each second since a moment, where it was something.

    Nothing where the newest `MOST_LOOKED_AT` attempts of the database, and items of the crawl, do
    not go back that far.
    """
    engine.hot_path(connection)
    given = {"crawl": crawl_id, "since": since, "most": MOST_LOOKED_AT}
    rows = connection.execute(SECONDS, given).all()
    return [SecondOfCrawl(*row[:-1]) for row in rows if row.is_whole]


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
