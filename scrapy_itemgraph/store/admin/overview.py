"""The crawls of a database as one sees them from above."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store.admin import counting, run_lists, run_progress, status, task_counts
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

CRAWLS = text(f"""
    SELECT c.id, c.name, c.created_at, r.started_at AS run_started_at,
        CASE WHEN r.is_finished THEN r.ended_at END AS run_finished_at,
        last.stopped_at, last.reason,
        (SELECT count(*) FROM processes p
            WHERE p.crawl_id = c.id AND p.stopped_at IS NULL AND NOT {IS_DEAD}) AS workers,
        lately.done, lately.failed, lately.items, lately.scraped
    FROM crawls c
    LEFT JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    LEFT JOIN LATERAL (
        SELECT p.stopped_at, p.reason FROM processes p
        WHERE p.crawl_id = c.id AND p.stopped_at IS NOT NULL
        ORDER BY p.stopped_at DESC LIMIT 1) AS last ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(m.done), 0) AS done, coalesce(sum(m.failed), 0) AS failed,
            coalesce(sum(m.items), 0) AS items, coalesce(sum(m.scraped), 0) AS scraped
        FROM task_minutes m
        WHERE m.crawl_id = c.id
            AND m.minute >= date_trunc('minute', clock_timestamp()) - interval '1 minute'
            AND m.minute < date_trunc('minute', clock_timestamp())) AS lately
    WHERE c.name > :after AND (CAST(:name AS text) IS NULL OR c.name = :name)
    ORDER BY c.name LIMIT :limit
""")  # noqa: S608 - our own condition


# The numbers of a crawl, each with that of a task which is added up.
_TOTALS = {
    name: name
    for name in ("fresh", "waiting", "claimed", "due", "failures", "refusals", "held", "gone")
} | {"later": "delayed"}


class CrawlState(StrEnum):
    """How a crawl stands: a worker runs, or its last run is over, or it ended too early."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    NEVER_RUN = "never run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNumbers:
    """What is waiting, done and failed of a task; `estimated` names the estimates."""

    name: str
    is_enabled: bool
    is_registered: bool
    waiting: int
    delayed: int
    claimed: int
    fresh: int
    due: int
    held: int
    gone: int
    failures: int
    refusals: int
    done: int
    failed: int
    refused: int
    given_up: int
    estimated: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlOverview:
    """A crawl: its state, its numbers, also by task, and what the last full minute brought.

    `estimated` names the numbers that are estimates, for they are above 100,000. `items` are those
    of the graph, `scraped_last_minute` counts scraped items. `run` is the present or last one.
    `stopped_at` and `reason` are those of the worker that stopped last.
    """

    crawl: str
    state: CrawlState
    workers: int
    items: int
    fresh: int
    waiting: int
    claimed: int
    later: int
    due: int
    failures: int
    refusals: int
    held: int
    gone: int
    estimated: tuple[str, ...]
    done_last_minute: int
    failed_last_minute: int
    items_last_minute: int
    scraped_last_minute: int
    next_due: datetime | None
    created_at: datetime
    run_started_at: datetime | None
    run_finished_at: datetime | None
    stopped_at: datetime | None
    reason: str | None
    run: run_lists.RunLine | None
    progress: run_progress.Progress
    tasks: tuple[TaskNumbers, ...]


def overview(
    connection: Connection, *, name: str | None, after: str, limit: int
) -> list[CrawlOverview]:
    """Return crawls in the order of their names, of those behind `after`; or one."""
    given = {"name": name, "after": after, "limit": limit}
    found = []
    for row in connection.execute(CRAWLS, given).all():
        counted = counting.count(connection, task_counts.OVERVIEW, crawl=row.id)
        tasks = [TaskNumbers(**one, estimated=counts.estimated(one)) for one in counted]
        numbers = {
            name: counts.total(getattr(one, of_task) for one in tasks)
            for name, of_task in _TOTALS.items()
        }
        numbers["items"] = status.items(connection, row.id)
        found.append(
            CrawlOverview(
                crawl=row.name,
                state=_state(row.workers, row.run_started_at, row.run_finished_at),
                workers=row.workers,
                **{name: int(number) for name, number in numbers.items()},
                estimated=counts.estimated(numbers),
                done_last_minute=int(row.done),
                failed_last_minute=int(row.failed),
                items_last_minute=int(row.items),
                scraped_last_minute=int(row.scraped),
                run=run_lists.last(connection, row.id),
                progress=run_progress.progress(
                    connection, row.id, counted, is_running=row.workers > 0
                ),
                next_due=connection.execute(status.NEXT_DUE, {"crawl": row.id}).scalar(),
                created_at=row.created_at,
                run_started_at=row.run_started_at,
                run_finished_at=row.run_finished_at,
                stopped_at=row.stopped_at,
                reason=row.reason,
                tasks=tuple(tasks),
            )
        )
    return found


def _state(workers: int, started: datetime | None, finished: datetime | None) -> CrawlState:
    if workers:
        return CrawlState.RUNNING
    if started is None:
        return CrawlState.NEVER_RUN
    return CrawlState.INTERRUPTED if finished is None else CrawlState.FINISHED
