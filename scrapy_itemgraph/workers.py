"""Workers: running crawl processes, and what becomes of the claims of the dead.

All functions take a connection and never commit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph import attempts, failures, holdings, refresh, sessions, work
from scrapy_itemgraph.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row

REGISTER_WORKER = text("""
    INSERT INTO workers (crawl_id, spider, host, process_id, job, lease_until)
    VALUES (:crawl, :spider, :host, :process, :job,
        clock_timestamp() + CAST(:lease AS interval))
    RETURNING id, started_at
""")

LOCKED_WORKER = text("UPDATE workers SET locked_at = clock_timestamp() WHERE id = :worker")

STARTED_WORKER = text("UPDATE workers SET has_started = true WHERE id = :worker")

HEARTBEAT = text("""
    UPDATE workers SET lease_until = clock_timestamp() + CAST(:lease AS interval)
    WHERE id = :worker AND stopped_at IS NULL
    RETURNING id
""")

STOP_WORKER = text("""
    UPDATE workers SET stopped_at = clock_timestamp(), reason = :reason
    WHERE id = :worker AND stopped_at IS NULL
""")

# Workers whose lease is over, or whose lock is free although taken since the server started.
DEAD_WORKERS = text("""
    SELECT w.id FROM workers w
    WHERE w.crawl_id = :crawl AND w.stopped_at IS NULL AND w.id <> :worker
        AND (w.lease_until < clock_timestamp()
            OR (w.locked_at > pg_postmaster_start_time()
                AND pg_try_advisory_xact_lock(CAST('workers'::regclass::oid AS int), w.id)))
    FOR NO KEY UPDATE OF w SKIP LOCKED
""")

END_LEASES = text("""
    UPDATE workers SET lease_until = clock_timestamp()
    WHERE stopped_at IS NULL AND started_at < :since AND lease_until > clock_timestamp()
""")

BURY_WORKERS = text("""
    UPDATE workers SET stopped_at = clock_timestamp(), reason = 'died'
    WHERE id = ANY (CAST(:workers AS int[]))
""")

# Their claims. Not SKIP LOCKED: a commit of theirs that still runs ends its own.
ORPHANS = text("""
    SELECT w.item_id, w.task_id, w.token, w.worker_id, w.queue_id, w.deaths, w.tries,
        w.claimed_at, t.version, t.name AS task
    FROM unnest(CAST(:workers AS int[])) AS dead(id)
    JOIN work w ON w.worker_id = dead.id AND w.token IS NOT NULL
    JOIN tasks t ON t.id = w.task_id
    FOR UPDATE OF w
""")

FREE_ORPHANS = text("""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL, deaths = w.deaths + 1
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS orphan(item_id, task_id)
    WHERE w.item_id = orphan.item_id AND w.task_id = orphan.task_id
""")


def register(
    connection: Connection,
    crawl_id: int,
    *,
    spider: str,
    host: str,
    process_id: int,
    job: str | None,
    lease: timedelta,
) -> Row[Any]:
    """Register a running crawl process; returns its id and when the database says it started."""
    return connection.execute(
        REGISTER_WORKER,
        {
            "crawl": crawl_id,
            "spider": spider,
            "host": host,
            "process": process_id,
            "job": job,
            "lease": lease,
        },
    ).one()


def heartbeat(connection: Connection, worker_id: int, lease: timedelta) -> bool:
    """Renew a worker's lease; False when it was given up for dead."""
    row = connection.execute(HEARTBEAT, {"worker": worker_id, "lease": lease}).first()
    return row is not None


def mark_locked(connection: Connection, worker_id: int) -> None:
    """Note that the worker's advisory lock is held from now on."""
    connection.execute(LOCKED_WORKER, {"worker": worker_id})


def mark_started(connection: Connection, worker_id: int) -> None:
    """Note that the worker's `start()` came to its end."""
    connection.execute(STARTED_WORKER, {"worker": worker_id})


def stop(connection: Connection, worker_id: int, reason: str) -> None:
    """Note that a worker ended, and why."""
    connection.execute(STOP_WORKER, {"worker": worker_id, "reason": reason})
    sessions.free_login(connection, [worker_id])


def end_leases(connection: Connection, since: datetime) -> None:
    """Let the claims of all workers be taken over that started before `since`: they are dead."""
    connection.execute(END_LEASES, {"since": since})


def take_over(connection: Connection, crawl_id: int, worker_id: int) -> int:
    """Free the claims of a crawl's dead workers; return how many there were.

    Work that killed its third worker while it ran alone becomes a failure.
    """
    dead = list(
        connection.execute(DEAD_WORKERS, {"crawl": crawl_id, "worker": worker_id}).scalars()
    )
    if not dead:
        return 0
    connection.execute(BURY_WORKERS, {"workers": dead})
    sessions.free_login(connection, dead)
    orphans = connection.execute(ORPHANS, {"workers": dead}).all()
    fatal = [row for row in orphans if row.deaths >= work.SUSPECT_DEATHS]
    freed = [row for row in orphans if row.deaths < work.SUSPECT_DEATHS]
    if fatal:
        connection.execute(work.DROP, _pairs(fatal))
    if freed:
        connection.execute(FREE_ORPHANS, _pairs(freed))
    if orphans:
        attempts.record(connection, [_death(row) for row in orphans])
        there = set(refresh.lock_items(connection, [row.item_id for row in orphans]))
        failures.record(connection, [_killer(row) for row in fatal if row.item_id in there])
        work.reopen(connection, [row.item_id for row in orphans], [row.queue_id for row in freed])
    holdings.outlive(connection, dead)  # last, for commits lock items before queues
    return len(orphans)


def _killer(row: Row[Any]) -> failures.Failed:
    error = {
        "type": "worker died",
        "message": f"{row.deaths + 1} workers died while they ran {row.task} on this item",
    }
    return failures.Failed(
        item_id=row.item_id, task_id=row.task_id, version=row.version, error=json.dumps(error)
    )


def _death(row: Row[Any]) -> attempts.Attempt:
    return attempts.Attempt(
        item_id=row.item_id,
        task_id=row.task_id,
        worker_id=row.worker_id,
        token=row.token,
        version=row.version,
        number=row.tries + 1,
        outcome=Outcome.DIED,
        started_at=row.claimed_at,
    )


def _pairs(rows: Sequence[Row[Any]]) -> dict[str, list[int]]:
    return {"items": [row.item_id for row in rows], "tasks": [row.task_id for row in rows]}
