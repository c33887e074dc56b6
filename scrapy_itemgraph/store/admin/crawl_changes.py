"""What is done to a whole crawl at once, by a person: starting anew, ageing, new times to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.due_times import stored_expiry
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.items import item_ids
from scrapy_itemgraph.store.registry import dead_processes
from scrapy_itemgraph.store.registry.crawls import own_crawl
from scrapy_itemgraph.store.registry.item_sweeps import open_sweep
from scrapy_itemgraph.store.sql_conditions import NEXT_DUE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.due_times import Expiry

STEP = 1000
RESTART_STEP = 5000

ITEMS = text("SELECT count(*) FROM items WHERE crawl_id = :crawl")

# What has expired already, and still has, keeps its place: it is not staged again.
RECOMPUTE = text(f"""
    UPDATE results r
    SET expires_at = {NEXT_DUE},
        due_at = CASE WHEN r.expires_at IS NULL OR r.due_at IS NOT NULL
            OR {NEXT_DUE} > clock_timestamp() THEN {NEXT_DUE} END
    FROM tasks t
    WHERE t.id = :task AND r.task_id = t.id AND r.completed_at IS NOT NULL
        AND NOT r.ttl_overridden AND r.expires_at IS DISTINCT FROM {NEXT_DUE}
""")  # noqa: S608 - our own expression

SCHEDULE_OF = text("SELECT schedule FROM task_schedules WHERE task_id = :task")

COMPLETED = text("""
    SELECT r.item_id, r.completed_at FROM results r
    WHERE r.task_id = :task AND r.item_id > :after AND r.completed_at IS NOT NULL
        AND NOT r.ttl_overridden
    ORDER BY r.item_id LIMIT :limit
""")

# As RECOMPUTE does it.
RESCHEDULE = text("""
    UPDATE results r
    SET expires_at = found.due,
        due_at = CASE WHEN r.expires_at IS NULL OR r.due_at IS NOT NULL
            OR found.due > clock_timestamp() THEN found.due END
    FROM unnest(CAST(:items AS bigint[]), CAST(:due AS timestamptz[])) AS found(item_id, due)
    WHERE r.task_id = :task AND r.item_id = found.item_id
        AND r.expires_at IS DISTINCT FROM found.due
""")

# What a restart deletes, in this order; results, tags and failures go with their items.
OF_CRAWL = {
    "work": "work WHERE crawl_id = :crawl",
    "attempts": "attempts WHERE item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)",
    "failures": "failures WHERE item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)",
    "results": "results WHERE item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)",
    "links of pages": "page_links WHERE item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)",
    "tags": "tags WHERE crawl_id = :crawl",
    "blobs": "blobs WHERE item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)",
    "aliases": "aliases WHERE crawl_id = :crawl",
    "links": "links WHERE parent_id IN (SELECT item_id FROM depths WHERE crawl_id = :crawl)",
    "depths": "depths WHERE crawl_id = :crawl",
    "steps of depths": "depth_work WHERE crawl_id = :crawl",
    "sweeps of depths": "depth_sweeps WHERE crawl_id = :crawl",
    "items": "items WHERE crawl_id = :crawl",
    "sweeps": "sweeps WHERE crawl_id = :crawl",
    "journal": "journal WHERE crawl_id = :crawl",
    "marks of feeds": "feed_items WHERE feed_id IN (SELECT id FROM feeds WHERE crawl_id = :crawl)",
    "feeds": "feeds WHERE crawl_id = :crawl",
    "cookies": "cookies WHERE crawl_id = :crawl",
    "keys of the state": "spider_state WHERE crawl_id = :crawl",
    "logins": "logins WHERE crawl_id = :crawl",
    "runs": "runs WHERE crawl_id = :crawl",
    "totals": "totals WHERE crawl_id = :crawl",
    "latencies": "task_latencies WHERE crawl_id = :crawl",
    "groups of failures": "failure_groups WHERE crawl_id = :crawl",
    "callbacks": "tasks WHERE crawl_id = :crawl AND is_callback",
}

# What hangs on items: deleted with some thousand of them at a time.
OF_ITEMS = {
    name: f"{name} WHERE item_id = ANY (CAST(:items AS bigint[]))"
    for name in ("work", "attempts", "failures", "results", "tags", "blobs", "aliases", "depths")
} | {
    "links": "links WHERE parent_id = ANY (CAST(:items AS bigint[]))",
    "links of pages": "page_links WHERE item_id = ANY (CAST(:items AS bigint[]))",
    "items": "items WHERE id = ANY (CAST(:items AS bigint[]))",
}

FREE_NAMES = text("""
    UPDATE crawls SET names_freed = names_freed + 1 WHERE id = :crawl
""")

# Of queues of its frontier, which stay with what is set for them, nothing is completed any more.
FORGET_COMPLETED = text("UPDATE frontier_queues SET completed = 0 WHERE crawl_id = :crawl")

# Their moments are whole seconds; when they are looked into next follows from these.
AGE_QUEUES = text("""
    UPDATE frontier_queues f
    SET last_served = greatest(0, f.last_served - past.seconds),
        blocked_until = greatest(0, f.blocked_until - past.seconds)
    FROM (SELECT CAST(floor(extract(epoch FROM CAST(:period AS interval))) AS bigint) AS seconds)
        AS past
    WHERE f.crawl_id = :crawl
""")

AGE_TURNS = text("""
    UPDATE queues q SET next_at = q.next_at - :period
    FROM frontier_queues f WHERE f.crawl_id = :crawl AND q.id = f.queue_id
""")

AGED = {
    "crawls": ("id = :crawl", ("created_at", "queued_at", "next_at")),
    "schedules": (
        "crawl_id = :crawl",
        ("starts_at", "next_at", "last_at", "created_at"),
    ),
    "jobs": (
        "crawl_id = :crawl",
        ("due_at", "not_before", "created_at", "started_at", "ended_at", "updated_at"),
    ),
    "places": ("crawl_id = :crawl", ("since",)),
    "crawl_events": ("crawl_id = :crawl", ("at",)),
    "notices": ("crawl_id = :crawl", ("created_at", "next_at", "sent_at", "given_up_at")),
    "rulesets": ("crawl_id = :crawl", ("created_at",)),
    "runs": ("crawl_id = :crawl", ("started_at", "ended_at")),
    "processes": (
        "crawl_id = :crawl AND stopped_at IS NOT NULL",
        ("started_at", "locked_at", "seen_at", "stopped_at"),
    ),
    "tasks": ("crawl_id = :crawl", ("source_changed_at",)),
    "items": ("crawl_id = :crawl", ("not_before", "created_at", "updated_at")),
    "blobs": ("item_id IN (SELECT id FROM items WHERE crawl_id = :crawl)", ("attached_at",)),
    "results": (
        "task_id IN (SELECT id FROM tasks WHERE crawl_id = :crawl)",
        ("created_at", "completed_at", "invalidated_at", "expires_at", "due_at"),
    ),
    "failures": (
        "task_id IN (SELECT id FROM tasks WHERE crawl_id = :crawl)",
        ("occurred_at", "handled_at"),
    ),
    "failure_groups": ("crawl_id = :crawl", ("first_seen", "last_seen")),
    "attempts": (
        "task_id IN (SELECT id FROM tasks WHERE crawl_id = :crawl)",
        ("started_at", "ended_at"),
    ),
    "work": ("crawl_id = :crawl", ("not_before", "claimed_at")),
    "journal": ("crawl_id = :crawl", ("created_at",)),
}


def recompute_ttl(connection: Connection, crawl_id: int, task_id: int) -> int:
    """Set when a task's results expire from its present time to live, or by its schedule.

    Return how many changed.
    """
    own_crawl(connection, crawl_id)
    expiry = stored_expiry(connection.execute(SCHEDULE_OF, {"task": task_id}).scalar())
    if expiry is None:
        changed = connection.execute(RECOMPUTE, {"task": task_id}).rowcount
    else:
        changed = _reschedule(connection, task_id, expiry)
    if changed:
        open_sweep(connection, crawl_id, task_id)
    return changed


def _reschedule(connection: Connection, task_id: int, expiry: Expiry) -> int:
    """Set when a task's results expire by its schedule, some thousand at a time."""
    changed, last = 0, 0
    while True:
        page = {"task": task_id, "after": last, "limit": RESTART_STEP}
        rows = connection.execute(COMPLETED, page).all()
        if not rows:
            return changed
        last = rows[-1].item_id
        due = [expiry.next_due(row.completed_at, row.item_id) for row in rows]
        found = {"task": task_id, "items": [row.item_id for row in rows], "due": due}
        changed += connection.execute(RESCHEDULE, found).rowcount


def restart(
    connection: Connection, crawl_id: int, reached: Callable[[int, int], None] | None = None
) -> dict[str, int]:
    """Delete what a crawl has, and count it; the crawl stays known, and its declared tasks."""
    total = connection.execute(ITEMS, {"crawl": crawl_id}).scalar_one()
    counts = dict.fromkeys(OF_CRAWL, 0)
    engine.hot_path(connection)
    last = 0
    while items := item_ids(connection, crawl_id, after=last, limit=RESTART_STEP):
        last = items[-1]
        for name, count in delete_items(connection, items).items():
            counts[name] += count
        engine.announce(connection, "restart", counts["items"], total)
        if reached is not None:
            reached(counts["items"], total)
    for name, where in OF_CRAWL.items():
        deleted = text(f"DELETE FROM {where}")  # noqa: S608 - our own constants
        counts[name] += connection.execute(deleted, {"crawl": crawl_id}).rowcount
    connection.execute(FORGET_COMPLETED, {"crawl": crawl_id})
    connection.execute(FREE_NAMES, {"crawl": crawl_id})
    return counts


def delete_items(connection: Connection, items: Sequence[int]) -> dict[str, int]:
    """Delete items with all that hangs on them; return how much of what."""
    counts = {}
    for name, where in OF_ITEMS.items():
        deleted = text(f"DELETE FROM {where}")  # noqa: S608
        counts[name] = connection.execute(deleted, {"items": list(items)}).rowcount
    return counts


def age(connection: Connection, crawl_id: int, period: timedelta) -> None:
    """Move every time of a crawl back by `period`."""
    own_crawl(connection, crawl_id)
    for table, (where, columns) in AGED.items():
        moved = ", ".join(f"{column} = {column} - :period" for column in columns)
        statement = text(f"UPDATE {table} SET {moved} WHERE {where}")  # noqa: S608
        connection.execute(statement, {"crawl": crawl_id, "period": period})
    for statement in (AGE_QUEUES, AGE_TURNS):
        connection.execute(statement, {"crawl": crawl_id, "period": period})


def refuse_workers(connection: Connection, crawl_id: int) -> None:
    """Refuse what cannot be done while a worker of the crawl lives; the error names it."""
    dead = {one.id for one in dead_processes.lost(connection, crawl_id)}
    for row in connection.execute(status.WORKERS, {"crawl": crawl_id}):
        if row.id not in dead:
            raise OperationError(
                f"worker {row.id} (process {row.process_id} on {row.host}) runs this crawl; "
                "stop it first"
            )
