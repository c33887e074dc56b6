"""What people ask of the graph: reads, none of which locks or changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.snapshots import ResultSnapshot
from scrapy_itemgraph.store.admin import progress_reports
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.sql_conditions import (
    IS_FRESH,
    IS_READY,
    IS_READY_ALONE,
    IS_READY_BESIDE_OTHERS,
    IS_STOPPED,
    STANDS,
    is_stale,
)
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

MANY = 100_000


# Items whose data names a URL: they are found by reading all of a crawl's.
OF_URL = text(f"""
    SELECT i.name AS item, {PAGE} FROM items i
    WHERE i.crawl_id = :crawl AND json_typeof(i.data->'url') = 'string' AND i.data->>'url' = :url
    ORDER BY i.id LIMIT :limit
""")  # noqa: S608 - our own columns


# The state of a result `r`, which need not be there, of a task `t`.
STATE = f"""CASE
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
        a.started_at, a.ended_at, a.worker_id AS worker, w.process_id, w.host
    FROM attempts a
    JOIN tasks t ON t.id = a.task_id
    LEFT JOIN workers w ON w.id = a.worker_id
    WHERE a.item_id = :item ORDER BY a.id DESC LIMIT :limit
""")

# Outstanding work in the order in which it would be claimed, were all of it in one queue.
WORKLIST = text(f"""
    SELECT i.name AS item, {PAGE}, w.task, w.is_stale, w.nice, w.tries, w.deaths, w.stalls,
        w.not_before,
        s.name AS slot
    FROM (
        SELECT w.*, t.name AS task FROM work w JOIN tasks t ON t.id = w.task_id
        WHERE w.crawl_id = :crawl AND w.token IS NULL
            AND (CAST(:task AS text) IS NULL OR t.name = :task)
        ORDER BY w.is_stale, w.nice, w.seq
        LIMIT :limit) w
    JOIN items i ON i.id = w.item_id
    JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id
    ORDER BY w.is_stale, w.nice, w.seq
""")  # noqa: S608 - our own columns

TASKS = text(f"""
    SELECT t.name, t.spider, t.version, t.ttl, t.nice, t.is_enabled, t.is_registered,
        t.max_failures,
        ARRAY(SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = t.id ORDER BY 1) AS tags,
        ARRAY(SELECT d.name FROM task_dependencies td JOIN tasks d ON d.id = td.depends_on_id
            WHERE td.task_id = t.id ORDER BY 1) AS depends_on,
        coalesce(w.waiting, 0) AS waiting, coalesce(w.delayed, 0) AS delayed,
        coalesce(w.claimed, 0) AS claimed,
        coalesce(r.completed, 0) AS completed, coalesce(r.fresh - r.due, 0) AS fresh,
        coalesce(r.due, 0) AS due,
        coalesce(r.held, 0) AS held,
        coalesce(f.failures, 0) AS failures, coalesce(f.refusals, 0) AS refusals
    FROM tasks t
    LEFT JOIN (
        SELECT task_id, count(*) FILTER (WHERE token IS NULL AND not_before IS NULL) AS waiting,
            count(*) FILTER (WHERE not_before IS NOT NULL) AS delayed,
            count(*) FILTER (WHERE token IS NOT NULL) AS claimed
        FROM work WHERE crawl_id = :crawl GROUP BY task_id) w ON w.task_id = t.id
    LEFT JOIN (
        SELECT r.task_id, count(r.completed_at) AS completed,
            count(*) FILTER (WHERE {IS_FRESH}) AS fresh,
            count(*) FILTER (WHERE {STANDS}
                AND r.due_at <= (SELECT clock_timestamp())) AS due,
            count(*) FILTER (WHERE r.is_held) AS held
        FROM results r JOIN tasks t ON t.id = r.task_id
        WHERE t.crawl_id = :crawl GROUP BY r.task_id) r ON r.task_id = t.id
    LEFT JOIN (
        SELECT f.task_id, count(*) FILTER (WHERE NOT f.is_refusal) AS failures,
            count(*) FILTER (WHERE f.is_refusal) AS refusals
        FROM failures f JOIN tasks t ON t.id = f.task_id
        WHERE t.crawl_id = :crawl AND f.handled_at IS NULL GROUP BY f.task_id) f
        ON f.task_id = t.id
    WHERE t.crawl_id = :crawl
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

CRAWLS = text("SELECT name FROM crawls ORDER BY name")
ITEMS = text("SELECT count(*) FROM items WHERE crawl_id = :crawl")
WORKERS = text("""
    SELECT id, spider, host, process_id, job, started_at, lease_until,
        lease_until < clock_timestamp() AS is_late,
        (SELECT count(*) FROM work WHERE work.worker_id = workers.id) AS claims
    FROM workers WHERE crawl_id = :crawl AND stopped_at IS NULL ORDER BY id
""")
NEXT_DUE = text("""
    SELECT min(first.due_at) FROM tasks t
    CROSS JOIN LATERAL (
        SELECT r.due_at FROM results r
        WHERE r.task_id = t.id AND r.due_at IS NOT NULL
        ORDER BY r.due_at LIMIT 1) AS first
    WHERE t.crawl_id = :crawl AND t.is_registered
""")
OLD_SNAPSHOT = text("""
    SELECT pid, application_name, now() - xact_start AS age FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND xact_start < now() - interval '10 minutes'
    ORDER BY xact_start LIMIT 1
""")


_OPEN_FAILURES = """tasks t JOIN failures f ON f.task_id = t.id
        WHERE t.crawl_id = :crawl AND f.handled_at IS NULL"""

# What a log line counts, and what of it.
COUNTED = {
    "disabled": f"""work w JOIN tasks t ON t.id = w.task_id
        WHERE w.crawl_id = :crawl AND {IS_READY} AND NOT t.is_enabled""",
    "stopped": f"""work w JOIN stopped ON stopped.id = w.task_id
        WHERE w.crawl_id = :crawl AND {IS_READY}""",
    "blocked": f"""blocked CROSS JOIN LATERAL (
            SELECT w.task_id FROM work w
            WHERE w.queue_id = blocked.id AND {IS_READY_BESIDE_OTHERS}) AS w
        WHERE w.task_id NOT IN (SELECT id FROM closed)
        UNION ALL
        SELECT FROM work w JOIN blocked ON blocked.id = w.queue_id
        WHERE w.crawl_id = :crawl AND {IS_READY_ALONE}
            AND w.task_id NOT IN (SELECT id FROM closed)""",  # noqa: S608 - our own conditions
    "fresh": f"""tasks t JOIN results r ON r.task_id = t.id
        WHERE t.crawl_id = :crawl AND t.is_registered AND {STANDS}
            AND (r.expires_at IS NULL OR r.due_at > (SELECT clock_timestamp()))""",
    "due": """tasks t CROSS JOIN LATERAL (
            SELECT FROM results r
            WHERE r.task_id = t.id AND r.due_at <= (SELECT clock_timestamp())
                AND NOT r.is_held AND r.invalidated_at IS NULL AND r.task_version = t.version
            LIMIT :many) AS r
        WHERE t.crawl_id = :crawl AND t.is_registered""",
    "waiting": f"""work w WHERE w.crawl_id = :crawl AND {IS_READY}
        AND w.task_id NOT IN (SELECT id FROM closed)
        AND w.queue_id NOT IN (SELECT id FROM blocked)""",  # noqa: S608
    "given_up": """tasks t JOIN results r ON r.task_id = t.id
        WHERE t.crawl_id = :crawl AND r.is_held AND NOT EXISTS (
            SELECT FROM failures f WHERE f.item_id = r.item_id AND f.task_id = r.task_id
                AND f.handled_at IS NULL)""",
    "later": "work w WHERE w.crawl_id = :crawl AND w.not_before IS NOT NULL",
    "claimed": """work w JOIN workers o ON o.id = w.worker_id
        WHERE o.crawl_id = :crawl AND w.token IS NOT NULL""",
    "failures": f"{_OPEN_FAILURES} AND NOT f.is_refusal",
    "lost": f"{_OPEN_FAILURES} AND f.error->>'type' IN ('worker died', 'stalled')",
    "refusals": f"{_OPEN_FAILURES} AND f.is_refusal",
}

# The counts; each stops at a number that nobody reads to the end.
_COUNTS = ", ".join(
    f"(SELECT count(*) FROM (SELECT FROM {what} LIMIT :many) AS counted) AS {name}"  # noqa: S608
    for name, what in COUNTED.items()
)
SUMMARY = text(f"""
    WITH stopped AS MATERIALIZED (
        SELECT t.id FROM tasks t
        WHERE t.crawl_id = :crawl AND t.is_enabled AND {IS_STOPPED}),
    blocked AS MATERIALIZED (
        SELECT q.id FROM queues q JOIN limits l ON l.id = q.slot_id
        WHERE q.crawl_id = :crawl AND l.blocked_by = 'person'
            AND l.blocked_until > clock_timestamp()),
    closed AS MATERIALIZED (
        SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl AND NOT t.is_enabled
        UNION SELECT id FROM stopped)
    SELECT {_COUNTS}, clock_timestamp() AS now
""")  # noqa: S608 - our own conditions


class ItemOfUrl(NamedTuple):
    """An item whose data names a URL; `method` is that of its request."""

    item: str
    url: str
    method: str | None


class Attempt(NamedTuple):
    """An attempt at a task of an item; what is None of its worker is not known any more."""

    task: str
    version: str
    number: int
    outcome: str
    error: dict[str, Any] | None
    started_at: datetime
    ended_at: datetime
    worker: int | None
    process_id: int | None
    host: str | None


class OutstandingWork(NamedTuple):
    """Work that nobody has claimed."""

    item: str
    url: str | None
    method: str | None
    task: str
    is_stale: bool
    nice: int
    tries: int
    deaths: int
    stalls: int
    not_before: datetime | None
    slot: str


class TaskState(NamedTuple):
    """A task as it is declared, and what is done, waiting and failed of it."""

    name: str
    spider: str
    version: str
    ttl: timedelta | None
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
    failures: int
    refusals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a crawl has and lacks, counted up to a hundred thousand each.

    `waiting` is work that could be claimed; none is in two of the numbers.
    """

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
    next_due: datetime | None
    now: datetime
    sweeps: tuple[progress_reports.Sweep, ...] = ()

    @property
    def resuming(self) -> str | None:
        """What a start says that goes on with a run: what is done, and what is not yet."""
        left = self.waiting + self.claimed
        if not self.fresh and not left:
            return None
        return f"resuming: {_count(self.fresh)} done, {_count(left)} waiting"

    def lines(self) -> list[str]:
        """Return what a person should know, a line each."""
        lines = [f"{_count(self.fresh)} results are fresh"]
        if self.fresh:
            lines[0] += " (of their task's present version, within its ttl: not made again)"
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
            "held by a failure (scrapy itemgraph failures, handle)": self.failures - self.lost,
            "held because its workers died or stalled (likewise)": self.lost,
            "given up by handle --no-retry (scrapy itemgraph expire)": self.given_up,
            "refused by offsite, robots.txt or a middleware (likewise)": self.refusals,
        }
        found = [f"{_count(number)} {why}" for why, number in left.items() if number > 0]
        lines.append("left: " + ("; ".join(found) if found else "nothing"))
        if self.sweeps:
            open_ = "; ".join(map(str, self.sweeps))
            lines.append(f"these numbers are not final: {open_}; the next run goes on with it")
        return lines


def _count(number: int) -> str:
    return f"{number:,}" if number < MANY else f"more than {MANY:,}"


def of_url(connection: Connection, crawl_id: int, url: str, *, limit: int) -> list[ItemOfUrl]:
    """Return the first items that have a URL in their data."""
    found = connection.execute(OF_URL, {"crawl": crawl_id, "url": url, "limit": limit})
    return typed(found, ItemOfUrl)


def results(connection: Connection, crawl_id: int, item_id: int) -> list[ResultSnapshot]:
    """Return what each task of an item produced, and those that have not run yet."""
    rows = connection.execute(RESULTS, {"crawl": crawl_id, "item": item_id})
    return [ResultSnapshot(**{**row._asdict(), "metadata": row.metadata or {}}) for row in rows]


def attempts(connection: Connection, item_id: int, *, limit: int) -> list[Attempt]:
    """Return the last attempts at an item's tasks, the latest first."""
    return typed(connection.execute(ATTEMPTS, {"item": item_id, "limit": limit}), Attempt)


def worklist(
    connection: Connection, crawl_id: int, *, task: str | None, limit: int
) -> list[OutstandingWork]:
    """Return outstanding, unclaimed work."""
    given = {"crawl": crawl_id, "task": task, "limit": limit}
    return typed(connection.execute(WORKLIST, given), OutstandingWork)


def tasks(connection: Connection, crawl_id: int) -> list[TaskState]:
    """Return every task with what is done, waiting and failed of it."""
    return typed(connection.execute(TASKS, {"crawl": crawl_id}), TaskState)


def crawls(connection: Connection) -> list[str]:
    """Return the names of all crawls."""
    return list(connection.execute(CRAWLS).scalars())


def summary(connection: Connection, crawl_id: int) -> Summary:
    """Count a crawl for a log line."""
    row = connection.execute(SUMMARY, {"crawl": crawl_id, "many": MANY}).one()
    due = connection.execute(NEXT_DUE, {"crawl": crawl_id}).scalar()
    return Summary(
        **row._asdict(),
        next_due=due,
        sweeps=tuple(progress_reports.sweeps(connection, crawl_id)),
    )


def status(connection: Connection, crawl_id: int) -> dict[str, Any]:
    """Return a crawl's numbers: items, tasks, workers, sweeps, and what hinders vacuum."""
    old = connection.execute(OLD_SNAPSHOT).first()
    return {
        "items": connection.execute(ITEMS, {"crawl": crawl_id}).scalar_one(),
        "tasks": [row._asdict() for row in tasks(connection, crawl_id)],
        "workers": [row._asdict() for row in connection.execute(WORKERS, {"crawl": crawl_id})],
        "sweeps": progress_reports.open_sweeps(connection, crawl_id),
        "under_way": progress_reports.under_way(connection),
        "next_due": connection.execute(NEXT_DUE, {"crawl": crawl_id}).scalar(),
        "old_snapshot": None if old is None else old._asdict(),
    }
