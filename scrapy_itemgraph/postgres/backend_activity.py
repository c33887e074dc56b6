"""What the server does while a statement of ours has no answer.

It is asked on a connection of its own, so that a server at work, one where somebody holds a lock,
and one that does not answer at all can be told apart.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from scrapy_itemgraph.postgres import urls
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    import sqlalchemy as sa

# In the middle of a pipeline a process that waits for us calls itself active.
LOOK = """\
SELECT a.pid, a.state IS DISTINCT FROM 'active' AND a.state IS NOT NULL
        OR a.wait_event = 'ClientRead' AS is_idle,
    a.wait_event_type = 'Lock' AS is_locked,
    (SELECT l.relation::regclass::text FROM pg_locks l
        WHERE l.pid = a.pid AND NOT l.granted AND l.relation IS NOT NULL LIMIT 1) AS relation,
    b.pid AS holder, b.application_name, b.usename, b.client_addr, a.xact_start
FROM pg_stat_activity a
LEFT JOIN LATERAL (
    SELECT h.pid, h.application_name, h.usename, host(h.client_addr) AS client_addr
    FROM pg_stat_activity h WHERE h.pid = ANY(pg_blocking_pids(a.pid)) LIMIT 1) b ON true
WHERE a.pid = ANY(%s)"""

# Ends transactions that nobody goes on with; behind a pooler a process may be somebody else's by
# now, so the transaction is named by its beginning too.
END = """\
SELECT pg_terminate_backend(a.pid)
FROM unnest(CAST(%s AS int[]), CAST(%s AS timestamptz[])) AS lost(pid, begun_at)
JOIN pg_stat_activity a ON a.pid = lost.pid AND a.xact_start = lost.begun_at
WHERE a.state LIKE 'idle in transaction%%' OR a.wait_event = 'ClientRead'"""

# psycopg reads moments in no other style; behind a pooler nothing is set for a session.
STYLE = "SELECT set_config('DateStyle', 'ISO, MDY', true)"


@dataclass(frozen=True, slots=True)
class Backend:
    """What the server's process behind one of our connections does."""

    is_idle: bool = False  # it has nothing to do: what we sent, or its answer, was lost
    lock: str | None = None  # what it waits for, for a message
    begun_at: datetime | None = None  # its transaction

    @classmethod
    def read(cls, row: Any) -> Backend:
        """Make one of a row of LOOK."""
        _, is_idle, is_locked, relation, holder, application, user, address, begun_at = row
        if not is_locked:
            return cls(is_idle=bool(is_idle), begun_at=begun_at)
        what = f"a lock on {relation}" if relation else "a lock"
        if holder is None:
            return cls(lock=what)
        names = [application or "no name", f"user {user}", *([f"at {address}"] if address else ())]
        return cls(lock=f"{what} that the server's process {holder} holds ({', '.join(names)})")


async def look(
    connect: Mapping[str, Any], processes: Collection[int], seconds: float
) -> dict[int, Backend] | None:
    """Ask what processes of the server do, as far as they live; None if it does not say in time."""
    rows = await _ask(connect, seconds, LOOK, [list(processes)])
    return None if rows is None else {row[0]: Backend.read(row) for row in rows}


async def end(
    connect: Mapping[str, Any], transactions: Mapping[int, datetime], seconds: float
) -> None:
    """End transactions that nobody goes on with, so that what they lock is free.

    They are given by the server's process, and the moment at which they were begun.
    """
    await _ask(connect, seconds, END, [list(transactions), list(transactions.values())])


async def _ask(
    connect: Mapping[str, Any], seconds: float, statement: LiteralString, given: list[Any]
) -> list[Any] | None:
    """Run a statement on a new connection; None if there is no answer in time."""
    connection: psycopg.AsyncConnection[Any] | None = None
    try:
        async with asyncio.timeout(seconds):
            connection = await psycopg.AsyncConnection.connect(autocommit=True, **connect)
        with cut_after(seconds, connection):
            async with connection.transaction():
                await connection.execute(STYLE)
                return await (await connection.execute(statement, given)).fetchall()
    except (psycopg.Error, OSError, TimeoutError):
        return None
    finally:
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()


def cut(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """End a connection under whoever waits on it; for them it is lost at once.

    To cancel the statement or close the connection may mean to wait for the very server.
    """
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut_after(seconds: float, connection: psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """End a connection under who waits on it, if that lasts longer."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def is_waiting(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bool:
    """Tell whether a statement was sent, and its answer is not there."""
    status = psycopg.pq.TransactionStatus.ACTIVE
    return not connection.closed and connection.info.transaction_status == status


def sentence(url: sa.URL, seconds: float, lock: str | None) -> str:
    """Say what has been waited for, for so long."""
    period = wording.format_period(round(seconds))
    if lock is not None:
        return (
            f"{urls.name(url)} has kept us waiting for {period}, for "
            f"{lock}. End that transaction, or wait until it ends."
        )
    return (
        f"{urls.name(url)} has not answered for {period}. Look "
        "whether it runs, and whether the network to it works."
    )
