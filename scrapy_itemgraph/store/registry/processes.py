"""Processes: who works with this database, and who of them lives.

A process shows that it lives by a lock, which the server frees when the process dies, and by a
lease that it renews. How a death is found out is in `dead_processes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.sql_conditions import IS_DEAD
from scrapy_itemgraph.tools import memory

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection


class NewProcess(NamedTuple):
    """A process that was registered just now, by the clock of the database."""

    id: int
    started_at: datetime


class LivingProcess(NamedTuple):
    """A process that lives: its number, its kind, and where it runs."""

    id: int
    kind: str
    process_id: int
    host: str


REGISTER = text("""
    INSERT INTO processes (kind, crawl_id, host, process_id, code, memory, lease_until)
    VALUES (:kind, :crawl, :host, :process, :code, :memory,
        clock_timestamp() + CAST(:lease AS interval))
    RETURNING id, started_at
""")

LOCKED = text("UPDATE processes SET locked_at = clock_timestamp() WHERE id = :process")

RENEW = text("""
    UPDATE processes SET lease_until = clock_timestamp() + CAST(:lease AS interval),
        seen_at = clock_timestamp(), memory = :memory
    WHERE id = :process AND stopped_at IS NULL
    RETURNING id
""")

STOP = text("""
    UPDATE processes SET stopped_at = clock_timestamp(), reason = :reason
    WHERE id = :process AND stopped_at IS NULL
""")

LIVING = text(f"""
    SELECT p.id, p.kind, p.process_id, p.host FROM processes p
    WHERE p.stopped_at IS NULL AND NOT {IS_DEAD} ORDER BY p.id
""")  # noqa: S608 - our own condition

# A lease that ends before its process was seen last has nothing that would count anew from the
# start of the server.
END_LEASES = text("""
    UPDATE processes SET lease_until = started_at
    WHERE stopped_at IS NULL AND started_at < :since AND lease_until > started_at
""")


def register(
    connection: Connection,
    kind: str,
    *,
    crawl_id: int | None = None,
    host: str,
    process_id: int,
    lease: timedelta,
    code: str | None = None,
) -> NewProcess:
    """Register this process; `crawl_id` is the crawl that a worker works on."""
    given: dict[str, Any] = {"kind": kind, "crawl": crawl_id, "code": code, "lease": lease}
    given |= {"host": host, "process": process_id, "memory": memory.resident()}
    return NewProcess(*connection.execute(REGISTER, given).one())


def mark_locked(connection: Connection, process_id: int) -> None:
    """Note that the process holds its lock from now on."""
    connection.execute(LOCKED, {"process": process_id})


def renew(connection: Connection, process_id: int, lease: timedelta) -> bool:
    """Renew this process's lease, and note its memory; False if it was given up for dead."""
    given = {"process": process_id, "lease": lease, "memory": memory.resident()}
    return connection.execute(RENEW, given).first() is not None


def stop(connection: Connection, process_id: int, reason: str) -> None:
    """Note that a process ended, and why."""
    connection.execute(STOP, {"process": process_id, "reason": reason})


def end_leases(connection: Connection, since: datetime) -> None:
    """End the leases of all processes that started before `since`: they are dead."""
    connection.execute(END_LEASES, {"since": since})


def living(connection: Connection) -> list[LivingProcess]:
    """Return the processes of all kinds that live."""
    return typed(connection.execute(LIVING), LivingProcess)
