"""The crawls of a database as one sees them from above."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store import health
from scrapy_itemgraph.store.admin import counting, run_lists, run_progress, status, task_counts
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from scrapy_itemgraph.model.health import Health, RunFacts

CRAWLS = text(f"""
    WITH shown AS MATERIALIZED (
        SELECT c.* FROM crawls c
        WHERE c.name > :after
            AND (CAST(:names AS text[]) IS NULL OR c.name = ANY (CAST(:names AS text[])))
        ORDER BY c.name LIMIT :limit)
    SELECT c.id, c.name, c.created_at, r.started_at AS run_started_at,
        CASE WHEN r.is_finished THEN r.ended_at END AS run_finished_at,
        last.stopped_at, last.reason,
        (SELECT count(*) FROM processes p
            WHERE p.crawl_id = c.id AND p.stopped_at IS NULL AND NOT {IS_DEAD}) AS workers,
        lately.done, lately.failed, lately.items, lately.scraped
    FROM shown c
    LEFT JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    LEFT JOIN (
        SELECT DISTINCT ON (p.crawl_id) p.crawl_id, p.stopped_at, p.reason FROM processes p
        WHERE p.crawl_id = ANY (ARRAY(SELECT id FROM shown)) AND p.stopped_at IS NOT NULL
            AND p.reason IS DISTINCT FROM 'simulated'
        ORDER BY p.crawl_id, p.stopped_at DESC) AS last ON last.crawl_id = c.id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(m.done), 0) AS done, coalesce(sum(m.failed), 0) AS failed,
            coalesce(sum(m.items), 0) AS items, coalesce(sum(m.scraped), 0) AS scraped
        FROM task_minutes m
        WHERE m.crawl_id = c.id
            AND m.minute >= date_trunc('minute', clock_timestamp()) - interval '1 minute'
            AND m.minute < date_trunc('minute', clock_timestamp())) AS lately
    ORDER BY c.name
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
    led_to_known: int
    retries: int
    failed: int
    failed_in_run: int
    refused: int
    given_up: int
    estimated: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlOverview:
    """A crawl with its health, state and numbers, by task too, and the last full minute's counts.

    `health` is red, amber or green, and `why` says why; `last_runs` are the last ten, the newest
    first. `estimated` names the numbers that are estimates, for they are above 100,000. `items` are
    those of the graph, `scraped_last_minute` counts scraped items. `run` is the present or last.
    `stopped_at` and `reason` are those of the worker that stopped last.
    """

    crawl: str
    health: Health
    why: str
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
    last_runs: tuple[RunFacts, ...]
    progress: run_progress.Progress
    tasks: tuple[TaskNumbers, ...]


def overview(
    connection: Connection, *, names: Collection[str] | None, after: str, limit: int
) -> list[CrawlOverview]:
    """Return crawls in the order of their names, of those behind `after`; all, or some by name.

    It takes as many statements for a hundred crawls as for one.
    """
    given = {"names": None if names is None else list(names), "after": after, "limit": limit}
    rows = connection.execute(CRAWLS, given).all()
    crawls = [row.id for row in rows]
    counted = counting.count(connection, task_counts.OVERVIEW, crawls=crawls)
    of_each: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for one in counted:
        of_each[one.pop("crawl")].append(one)
    items = status.items_of_each(connection, crawls)
    runs = run_lists.last_of_each(connection, crawls)
    paces = run_progress.paces(connection, [row.id for row in rows if row.workers])
    due = status.next_due(connection, crawls)
    healths = health.of_each(connection, crawls)
    return [
        CrawlOverview(
            **_columns(row),
            **_numbers(of_each[row.id], items[row.id]),
            health=healths[row.id].health,
            why=healths[row.id].why,
            last_runs=healths[row.id].runs,
            run=runs.get(row.id),
            progress=run_progress.of_tasks(of_each[row.id], paces.get(row.id), runs.get(row.id)),
            next_due=due.get(row.id),
        )
        for row in rows
        if row.id in healths  # not deleted just now
    ]


def _columns(row: Row[Any]) -> dict[str, Any]:
    """Return what a crawl's own row tells."""
    same = ("workers", "created_at", "run_started_at", "run_finished_at", "stopped_at", "reason")
    return {
        "crawl": row.name,
        "state": _state(row.workers, row.run_started_at, row.run_finished_at),
        "done_last_minute": int(row.done),
        "failed_last_minute": int(row.failed),
        "items_last_minute": int(row.items),
        "scraped_last_minute": int(row.scraped),
        **{name: getattr(row, name) for name in same},
    }


def _numbers(counted: Sequence[dict[str, Any]], items: int) -> dict[str, Any]:
    """Return a crawl's numbers, which are added up of its tasks', and those of each task."""
    tasks = tuple(TaskNumbers(**one, estimated=counts.estimated(one)) for one in counted)
    numbers = {
        name: counts.total(getattr(one, of_task) for one in tasks)
        for name, of_task in _TOTALS.items()
    }
    numbers["items"] = items
    return {
        **{name: int(number) for name, number in numbers.items()},
        "estimated": counts.estimated(numbers),
        "tasks": tasks,
    }


def _state(workers: int, started: datetime | None, finished: datetime | None) -> CrawlState:
    if workers:
        return CrawlState.RUNNING
    if started is None:
        return CrawlState.NEVER_RUN
    return CrawlState.INTERRUPTED if finished is None else CrawlState.FINISHED
