"""Workers: processes that run a crawl."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.store import in_flight, logins
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.registry.processes import NewProcess

# What workers are among processes.
KIND = "worker"

SIMULATED = "simulated"
"""Why a process ended that simulated one execution; no run of the crawl ended with it."""

REGISTER_WORKER = text("""
    INSERT INTO workers (id, spider, job, sources, code_file, uncounted)
    VALUES (:worker, :spider, :job, CAST(:sources AS json), :file, CAST(:uncounted AS text[]))
""")

STARTED_WORKER = text("UPDATE workers SET has_started = true WHERE id = :worker")

NOTE_ERROR = text("""
    UPDATE workers SET error = :error, error_at = clock_timestamp() WHERE id = :worker
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
    code: str | None = None,
    code_file: str | None = None,
    sources: Mapping[str, UUID] = MappingProxyType({}),
    uncounted: Sequence[str] = (),
) -> NewProcess:
    """Register a running crawl process: this one.

    `sources` are digests of its code by task; `code` is one of `code_file`. `uncounted` are names
    of arguments that tell no crawls apart.
    """
    process = processes.register(
        connection,
        KIND,
        crawl_id=crawl_id,
        host=host,
        process_id=process_id,
        lease=lease,
        code=code,
    )
    given: dict[str, Any] = {"worker": process.id, "spider": spider, "job": job, "file": code_file}
    given["sources"] = json.dumps(dict(sources), default=str)
    given["uncounted"] = list(uncounted)
    connection.execute(REGISTER_WORKER, given)
    return process


def note_error(connection: Connection, worker_id: int, error: str) -> None:
    """Note the last error that a worker's process logged."""
    connection.execute(NOTE_ERROR, {"worker": worker_id, "error": error})


def mark_started(connection: Connection, worker_id: int) -> None:
    """Note that the worker's `start()` came to its end."""
    connection.execute(STARTED_WORKER, {"worker": worker_id})


def stop(connection: Connection, worker_id: int, reason: str) -> None:
    """Note that a worker ended, and why."""
    processes.stop(connection, worker_id, reason)
    logins.free(connection, [worker_id])
    in_flight.forget(connection, [worker_id])
