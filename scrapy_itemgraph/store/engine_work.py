"""What each worker's engine has, or may have: of the work of a worker that died this is suspect.

It is written before anything is handed out, so that work which kills its process at once is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

WRITE = text("""
    INSERT INTO handed AS h (worker_id, items, tasks)
    VALUES (:worker, CAST(:items AS bigint[]), CAST(:tasks AS int[]))
    ON CONFLICT (worker_id) DO UPDATE SET items = excluded.items, tasks = excluded.tasks
""")

ADD = text("""
    INSERT INTO handed AS h (worker_id, items, tasks)
    VALUES (:worker, CAST(:items AS bigint[]), CAST(:tasks AS int[]))
    ON CONFLICT (worker_id) DO UPDATE
    SET items = h.items || excluded.items, tasks = h.tasks || excluded.tasks
""")

# A crash of PostgreSQL may forget what this transaction wrote: then it blames nobody.
HURRY = text("SELECT set_config('synchronous_commit', 'off', true)")

FORGET = text("DELETE FROM handed WHERE worker_id = ANY (CAST(:workers AS int[]))")


def write(connection: Connection, worker_id: int, pairs: Collection[tuple[int, int]]) -> None:
    """Note that of a worker's work its engine has these (item, task) pairs alone."""
    connection.execute(WRITE, {"worker": worker_id, **columns(pairs, items=0, tasks=1)})


def write_alone(connection: Connection, worker_id: int, pairs: Collection[tuple[int, int]]) -> None:
    """Do the same in a transaction that does nothing else."""
    connection.execute(HURRY)
    write(connection, worker_id, pairs)


def add(connection: Connection, worker_id: int, pairs: Collection[tuple[int, int]]) -> None:
    """Note that a worker's engine has further pairs."""
    connection.execute(ADD, {"worker": worker_id, **columns(pairs, items=0, tasks=1)})


def forget(connection: Connection, worker_ids: Sequence[int]) -> None:
    """Forget what workers had that are no more."""
    connection.execute(FORGET, {"workers": list(worker_ids)})
