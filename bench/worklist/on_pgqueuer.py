"""A worker on pgqueuer, and what fills its queue; runs in the benchmark's own venv.

Two ways. `manager` is its QueueManager, as its documents show it, on asyncpg and uvloop (as its
command line does), with a batch size of its own and twice that many jobs at once, the least that it
allows: each job writes, and enqueues the new item's, in a transaction; that the job is done is
written later, in batches, so after a crash jobs run again whose writes are committed. `batches`
calls what the manager calls (`dequeue`, `enqueue`, `log_jobs`) by hand on one connection: as many
jobs as are dequeued at a time are written and ended in one transaction. That gives up the manager:
no heartbeats (a job that takes long is taken twice), and one job that fails takes its batch along.

Neither gives: a fence against a worker taken for dead that commits later, deduplication of what is
enqueued by the item's name and aliases, expiry, dependencies, merges, the round robin over hosts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import foreign
import tallies
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Queries, QueueManager
from pgqueuer.queries import EntrypointExecutionParameter

if TYPE_CHECKING:
    from pgqueuer.models import Job

WRITE = foreign.WRITE.format(items="$1", names="$2", data="$3")
CONNECTIONS = 8  # that write, beside those of the manager
HEARTBEAT = timedelta(seconds=30)


async def fill(where: dict, count: int) -> None:
    """Make the tables of an empty database, items, and a job for each."""
    connection = await asyncpg.connect(**where)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await connection.execute(foreign.TABLES)
    await connection.execute(foreign.FILL.format(count=count))
    for start in range(1, count + 1, 1000):
        await enqueue(queries, list(range(start, min(start + 1000, count + 1))))
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def enqueue(queries: Queries, items: list[int]) -> None:
    """Enqueue a job for each of these items."""
    payloads: list[bytes | None] = [str(item).encode() for item in items]
    await queries.enqueue([foreign.TASK] * len(items), payloads, [0] * len(items))


async def write(
    connection: asyncpg.Connection, queries: Queries, jobs: list[Job], new: list[tuple[str, str]]
) -> None:
    """Write what a job each did, and enqueue the new items, in the caller's transaction."""
    items = [int(job.payload or b"") for job in jobs]
    rows = await connection.fetch(
        WRITE, items, [name for name, _ in new], [data for _, data in new]
    )
    await enqueue(queries, [row["id"] for row in rows])


async def by_manager(given: dict, tally: tallies.Tally) -> None:
    """Work with the manager until told to stop."""
    numbers = itertools.count()
    idle: asyncio.LifoQueue = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        connection = await asyncpg.connect(**given["where"])
        idle.put_nowait((connection, Queries(AsyncpgDriver(connection))))
    pool = await asyncpg.create_pool(min_size=3, max_size=3, **given["where"])
    manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

    @manager.entrypoint(foreign.TASK)
    async def parse(job: Job) -> None:
        connection, queries = await idle.get()
        try:
            async with connection.transaction():
                new = [foreign.new_item(given["worker"], next(numbers))]
                await write(connection, queries, [job], new)
        finally:
            idle.put_nowait((connection, queries))
        tally.committed += 1

    async def stop() -> None:
        await tally.over.wait()
        manager.shutdown.set()

    batch = given["batch"]
    await asyncio.gather(manager.run(batch_size=batch, max_concurrent_tasks=2 * batch), stop())
    while not idle.empty():
        await idle.get_nowait()[0].close()
    await pool.close()


async def by_batches(given: dict, tally: tallies.Tally) -> None:
    """Dequeue, write and end jobs by hand until told to stop, a batch ahead, as ours does."""
    numbers = itertools.count()
    taking, writing = [await asyncpg.connect(**given["where"]) for _ in range(2)]
    queries = Queries(AsyncpgDriver(writing))
    entrypoints = {foreign.TASK: EntrypointExecutionParameter(concurrency_limit=0)}
    taken: asyncio.Queue[list[Job]] = asyncio.Queue(1)
    manager = uuid.uuid4()

    async def take() -> None:
        source = Queries(AsyncpgDriver(taking))
        while not tally.is_over:
            await taken.put(
                await source.dequeue(given["batch"], entrypoints, manager, None, HEARTBEAT)
            )
        await taken.put([])

    async def end() -> None:
        while True:
            jobs = await taken.get()
            if not jobs:
                if tally.is_over:
                    return
                continue
            new = [foreign.new_item(given["worker"], next(numbers)) for _ in jobs]
            async with writing.transaction():
                await write(writing, queries, jobs, new)
                await queries.log_jobs([(job, "successful", None) for job in jobs])
            tally.committed += len(jobs)

    await asyncio.gather(take(), end())
    await taking.close()
    await writing.close()


WAYS = {"manager": by_manager, "batches": by_batches}


async def main() -> None:
    """Fill, say what is written, or work, as the parent asks."""
    given = tallies.given()
    if given["what"] == "fill":
        await fill(given["where"], given["count"])
    elif given["what"] == "written":
        connection = await asyncpg.connect(**given["where"])
        ended = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        counts = [*await connection.fetchrow(foreign.WRITTEN), await connection.fetchval(ended)]
        await connection.close()
        print(json.dumps(counts))
    else:
        way = WAYS[given["way"]]
        await tallies.measured(lambda tally: way(given, tally), given["warm"], given["seconds"])


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
