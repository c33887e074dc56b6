"""What people ask of the graph: reads, none of which locks or changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts, documents
from scrapy_itemgraph.model.snapshots import ResultSnapshot
from scrapy_itemgraph.postgres.engine import NOW
from scrapy_itemgraph.store import health
from scrapy_itemgraph.store.admin import (
    counting,
    depth_reports,
    frontier_stats,
    progress_reports,
    run_lists,
    run_progress,
    task_counts,
)
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.sql_conditions import IS_GONE, is_stale
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

# The state of a result `r`, which need not be there, of a task `t`.
STATE = f"""CASE
            WHEN r.hold IS NOT NULL THEN r.hold
            WHEN {IS_GONE} THEN 'gone'
            WHEN r.is_held THEN 'held'
            WHEN r.completed_at IS NULL THEN 'never run'
            WHEN {is_stale()} THEN 'stale'
            ELSE 'fresh'
        END"""

# Every task that an item's tags call for, or that has a result of it, with its state.
RESULTS = text(f"""
    SELECT t.name AS task, r.task_version AS version, r.metadata, r.is_successful,
        coalesce(r.is_held, false) AS is_held, r.invalidated_at IS NOT NULL AS is_invalidated,
        r.completed_at, r.expires_at,
        {STATE} AS state
    FROM tasks t
    LEFT JOIN results r ON r.task_id = t.id AND r.item_id = :item
    WHERE t.crawl_id = :crawl AND (r.item_id IS NOT NULL OR (t.is_registered AND EXISTS (
        SELECT FROM task_tags tt JOIN tags g ON g.tag_name = tt.tag_name
        WHERE tt.task_id = t.id AND g.item_id = :item)))
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

# The last attempts at an item's tasks.
ATTEMPTS = text("""
    SELECT t.name AS task, a.task_version AS version, a.number, a.outcome, a.error,
        coalesce(a.log, '[]') AS log, a.started_at, a.ended_at, a.worker_id AS worker,
        p.process_id, p.host, j.id AS job, s.number AS ruleset, a.page
    FROM attempts a
    JOIN tasks t ON t.id = a.task_id
    LEFT JOIN processes p ON p.id = a.worker_id
    LEFT JOIN rulesets s ON s.id = a.ruleset_id
    LEFT JOIN LATERAL (
        SELECT j.id FROM jobs j
        WHERE j.worker_id = a.worker_id AND j.worker_id IS NOT NULL
        ORDER BY j.worker_id DESC, j.id DESC LIMIT 1) AS j ON true
    WHERE a.item_id = :item ORDER BY a.id DESC LIMIT :limit
""")

CRAWLS = text("SELECT name FROM crawls ORDER BY name")
WORKERS = text("""
    SELECT p.id, w.spider, p.host, p.process_id, w.job, p.started_at, p.lease_until,
        p.lease_until < clock_timestamp() AS is_late, w.error, w.error_at,
        p.code, w.code_file,
        (SELECT count(*) FROM work x
            WHERE x.worker_id = p.id AND x.token IS NOT NULL) AS claims,
        ARRAY(SELECT t.name FROM tasks t
            WHERE t.crawl_id = :crawl AND p.id = ANY (t.left_by) ORDER BY 1) AS leaves
    FROM processes p JOIN workers w ON w.id = p.id
    WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL ORDER BY p.id
""")
NEXT_DUE = text("""
    SELECT t.crawl_id, min(first.due_at) AS due_at FROM tasks t
    CROSS JOIN LATERAL (
        SELECT r.due_at FROM results r
        WHERE r.task_id = t.id AND r.due_at IS NOT NULL
        ORDER BY r.due_at LIMIT 1) AS first
    WHERE t.crawl_id = ANY (CAST(:crawls AS int[])) AND t.is_registered
    GROUP BY t.crawl_id
""")
OLD_SNAPSHOT = text("""
    SELECT pid, application_name, now() - xact_start AS age FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND xact_start < now() - interval '10 minutes'
    ORDER BY xact_start LIMIT 1
""")


class Attempt(NamedTuple):
    """An attempt at a task of an item; what is None of its worker is not known any more.

    `job` is the number of the job that ran its worker, `ruleset` that of the rules it kept to.

    `log` has what its callbacks logged: `seconds` after the claim, `category` and `message`; `page`
    is what `model.page_records` keeps of its page, None where nothing is kept.
    """

    task: str
    version: str
    number: int
    outcome: str
    error: dict[str, Any] | None
    log: list[dict[str, Any]]
    started_at: datetime
    ended_at: datetime
    worker: int | None
    process_id: int | None
    host: str | None
    job: int | None
    ruleset: int | None
    page: dict[str, Any] | None


class DeclaredTask(NamedTuple):
    """A task as it is declared; its names are those of a `TaskState`."""

    name: str
    spider: str
    version: str
    ttl: timedelta | None
    schedule: dict[str, Any] | None
    nice: int
    is_enabled: bool
    is_registered: bool
    max_failures: int | None
    tags: list[str]
    depends_on: list[str]


class TaskState(NamedTuple):
    """A task as it is declared, and what is done, waiting and failed of it.

    `done` counts what is done in the present or last run, and is good, `led_to_known` what of that
    is done because its redirect led to a known page. `retries` of what is `delayed` were tried
    before: the run waits for these alone. `failed`, `refused`, `given_up` and `gone` are why pairs
    are held; `failed_in_run` of what has `failed` did so in the run. `skipped`, `stashed` and
    `left` pairs are set aside, whatever else is so of them. `estimated` names the numbers that are
    estimates, for they are above 100,000.
    """

    name: str
    spider: str
    version: str
    ttl: timedelta | None
    schedule: dict[str, Any] | None
    nice: int
    is_enabled: bool
    is_registered: bool
    max_failures: int | None
    tags: list[str]
    depends_on: list[str]
    waiting: int
    delayed: int
    claimed: int
    completed: int
    fresh: int
    due: int
    held: int
    gone: int
    skipped: int
    stashed: int
    left: int
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
class Summary:
    """What a crawl has and lacks; numbers above 100,000 are estimates.

    `waiting` is work that could be claimed; none is in two of the numbers. `has_tasks` tells
    whether it has tasks, and not plain callbacks alone.
    """

    has_tasks: bool
    fresh: int
    due: int
    waiting: int
    disabled: int
    stopped: int
    blocked: int
    given_up: int
    later: int
    claimed: int
    failures: int
    lost: int
    refusals: int
    gone: int
    skipped: int
    stashed: int
    left: int
    next_due: datetime | None
    now: datetime
    sweeps: tuple[progress_reports.Sweep, ...] = ()

    @property
    def resuming(self) -> str | None:
        """What a start says that goes on with a run: what is done, and what is not yet."""
        left = counts.total([self.waiting, self.claimed])
        if not self.fresh and not left:
            return None
        return f"resuming: {counts.shown(self.fresh)} done, {counts.shown(left)} waiting"

    def lines(self) -> list[str]:
        """Return what a person should know, a line each."""
        lines = [self._fresh()]
        if self.next_due is not None:
            seconds = (self.next_due - self.now).total_seconds()
            when = "fell due" if seconds <= 0 else f"falls due in {wording.format_period(seconds)}"
            lines[0] += f"; the next {when}"
        left = {
            "waiting": self.waiting,
            "of disabled tasks (scrapy itemgraph enable TASK)": self.disabled,
            "of tasks stopped by max_failures (scrapy itemgraph handle --task TASK)": self.stopped,
            "of blocked slots (scrapy itemgraph unblock SLOT)": self.blocked,
            "not before a later time": self.later,
            "that fell due since (the next run takes them)": self.due,
            "claimed by others": self.claimed,
            "held by a failure (scrapy itemgraph failures, handle)": counts.less(
                self.failures, self.lost
            ),
            "held because its workers died or stalled (likewise)": self.lost,
            "given up by handle --no-retry (scrapy itemgraph expire)": self.given_up,
            "refused by offsite, robots.txt or a middleware (likewise)": self.refusals,
            "gone, by the website's answer (scrapy itemgraph worklist --gone)": self.gone,
            "skipped (scrapy itemgraph pages list --skipped)": self.skipped,
            "stashed (scrapy itemgraph pages list --stashed)": self.stashed,
            "left when the spider closed its run (scrapy itemgraph pages list --left)": self.left,
        }
        found = [f"{counts.shown(number)} {why}" for why, number in left.items() if number > 0]
        lines.append("left: " + ("; ".join(found) if found else "nothing"))
        if self.sweeps:
            open_ = "; ".join(map(str, self.sweeps))
            lines.append(f"these numbers are not final: {open_}; the next run goes on with it")
        return lines

    def _fresh(self) -> str:
        number = counts.shown(self.fresh)
        if not self.has_tasks:
            return "1 page is done" if self.fresh == 1 else f"{number} pages are done"
        kept = " (of their task's present version, within its ttl: this run keeps them)"
        return f"{number} results are fresh{kept if self.fresh else ''}"


def results(connection: Connection, crawl_id: int, item_id: int) -> list[ResultSnapshot]:
    """Return what each task of an item produced, and those that have not run yet."""
    rows = connection.execute(RESULTS, {"crawl": crawl_id, "item": item_id})
    return [ResultSnapshot(**{**row._asdict(), "metadata": row.metadata or {}}) for row in rows]


def attempts(connection: Connection, item_id: int, *, limit: int) -> list[Attempt]:
    """Return the last attempts at an item's tasks, the latest first."""
    return typed(connection.execute(ATTEMPTS, {"item": item_id, "limit": limit}), Attempt)


def declared(connection: Connection, crawl_id: int) -> list[DeclaredTask]:
    """Return every task as it is declared; nothing is counted."""
    return typed(connection.execute(task_counts.DECLARED, {"crawl": crawl_id}), DeclaredTask)


def open_failures(connection: Connection, crawl_id: int) -> int:
    """Count the open failures and refusals of a crawl."""
    rows = counting.count(connection, task_counts.FAILURES_OF_TASKS, crawl=crawl_id)
    return counts.total(row[name] for row in rows for name in task_counts.FAILURES)


def tasks(connection: Connection, crawl_id: int) -> list[TaskState]:
    """Return every task with what is done, waiting and failed of it."""
    rows = counting.count(connection, task_counts.TASKS, crawl=crawl_id)
    return [TaskState(**row, estimated=counts.estimated(row)) for row in rows]


def crawls(connection: Connection) -> list[str]:
    """Return the names of all crawls."""
    return list(connection.execute(CRAWLS).scalars())


def items(connection: Connection, crawl_id: int) -> int:
    """Count a crawl's items."""
    return items_of_each(connection, [crawl_id])[crawl_id]


def items_of_each(connection: Connection, crawls: Sequence[int]) -> dict[int, int]:
    """Count the items of some crawls."""
    rows = counting.count(connection, task_counts.ITEMS, crawls=list(crawls))
    return {row["crawl"]: row["items"] for row in rows}


def next_due(connection: Connection, crawls: Sequence[int]) -> dict[int, datetime]:
    """Return when the next result of crawls falls due, or the first fell; of those with one."""
    rows = connection.execute(NEXT_DUE, {"crawls": list(crawls)})
    return {row.crawl_id: row.due_at for row in rows}


def summary(connection: Connection, crawl_id: int) -> Summary:
    """Count a crawl for a log line."""
    rows = counting.count(connection, task_counts.OF_SUMMARY, crawl=crawl_id)
    registered = [row for row in rows if row["is_registered"]]
    open_ = [row for row in rows if row["is_enabled"] and not row["is_stopped"]]

    def total(name: str, of: Iterable[dict[str, Any]] = rows) -> int:
        return counts.total(row[name] for row in of)

    blocked = total("blocked", open_)
    return Summary(
        has_tasks=any(not row["is_callback"] for row in registered),
        fresh=total("fresh", registered),
        due=total("due", registered),
        waiting=counts.less(total("waiting", open_), blocked),
        disabled=total("waiting", (row for row in rows if not row["is_enabled"])),
        stopped=total("waiting", (row for row in rows if row["is_stopped"])),
        blocked=blocked,
        later=total("delayed"),
        **{name: total(name) for name in ("given_up", "claimed", "failures", "lost")},
        **{name: total(name) for name in ("refusals", "gone", "skipped", "stashed", "left")},
        next_due=next_due(connection, [crawl_id]).get(crawl_id),
        now=connection.execute(NOW).scalar_one(),
        sweeps=tuple(progress_reports.sweeps(connection, crawl_id)),
    )


def status(connection: Connection, crawl_id: int) -> dict[str, Any]:
    """Return a crawl's health and numbers: run, progress, tasks, sweeps, what hinders vacuum.

    Those of its frontier, if it has one, are what crawlers have and may get.

    `estimated` names the numbers that are estimates.
    """
    found = health.of_crawl(connection, crawl_id)
    number = items(connection, crawl_id)
    run = run_lists.last(connection, crawl_id)
    listed = [row._asdict() for row in tasks(connection, crawl_id)]
    running = [crawl_id] if run is not None and run.workers > 0 else []
    pace = run_progress.paces(connection, running).get(crawl_id)
    return {
        "health": found.health,
        "why": found.why,
        "items": number,
        "run": None if run is None else run._asdict(),
        "estimated": counts.estimated({"items": number}),
        "progress": documents.of(run_progress.of_tasks(listed, pace, run)),
        "tasks": listed,
        "workers": [row._asdict() for row in connection.execute(WORKERS, {"crawl": crawl_id})],
        "next_due": next_due(connection, [crawl_id]).get(crawl_id),
        "depth": documents.of(depth_reports.standing(connection, crawl_id)),
        "frontier": documents.of(frontier_stats.of_crawl(connection, crawl_id)),
        **going_on(connection, crawl_id),
    }


def going_on(connection: Connection, crawl_id: int) -> dict[str, Any]:
    """Return open sweeps of a crawl, long work of any process, and what hinders vacuum."""
    old = connection.execute(OLD_SNAPSHOT).first()
    return {
        "sweeps": progress_reports.open_sweeps(connection, crawl_id),
        "under_way": progress_reports.under_way(connection),
        "old_snapshot": None if old is None else old._asdict(),
    }
