"""A worker on procrastinate, and what fills its queue; runs in the benchmark's own venv.

Its asynchronous worker with the connector for psycopg, on uvloop, with several jobs at once and a
pool without its check of each connection. A job writes, and defers the new item's, in one
transaction; the worker fetches jobs one by one, and ends each in a transaction of its own, after
that of the writes, for `finish_job` takes no connection: after a crash a job runs again whose
writes are committed.

It does not give: a fence against a worker taken for dead that commits later, deduplication of what
is deferred by the item's name and aliases, expiry, dependencies, merges, round robin over hosts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys

import foreign
import psycopg
import tallies
import uvloop
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

WRITE = foreign.WRITE.format(items="%s", names="%s", data="%s")
JOBS = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args)
    SELECT 'default', 'parse', 0, jsonb_build_object('item', id) FROM items ORDER BY id
"""


async def fill(where: dict, count: int) -> None:
    """Make the tables of an empty database, items, and a job for each."""
    app = App(connector=PsycopgConnector(kwargs=where, min_size=1))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    async with await psycopg.AsyncConnection.connect(**where, autocommit=True) as connection:
        await connection.execute(foreign.TABLES)
        await connection.execute(foreign.FILL.format(count=count))
        await connection.execute(JOBS)
        await connection.execute("VACUUM ANALYZE")


async def work(given: dict, tally: tallies.Tally) -> None:
    """Work until told to stop."""
    numbers = itertools.count()
    at_once = given["batch"]
    app = App(connector=PsycopgConnector())

    @app.task(name=foreign.TASK)
    async def parse(item: int) -> None:
        name, data = foreign.new_item(given["worker"], next(numbers))
        async with pool.connection() as connection:
            rows = await (await connection.execute(WRITE, ([item], [name], [data]))).fetchall()
            for (number,) in rows:
                await parse.configure(connection=connection).defer_async(item=number)
        tally.committed += 1

    size = at_once + 4  # the worker has connections for itself
    pool = AsyncConnectionPool(kwargs=given["where"], min_size=size, max_size=size, open=False)
    async with pool, app.open_async(pool):
        working = asyncio.ensure_future(
            app.run_worker_async(
                concurrency=at_once, install_signal_handlers=False, delete_jobs=given["deletes"]
            )
        )
        over = asyncio.ensure_future(tally.over.wait())
        await asyncio.wait([working, over], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        working.cancel()
        await asyncio.wait([working])


async def main() -> None:
    """Fill, say what is written, or work, as the parent asks."""
    logging.disable(logging.WARNING)
    given = tallies.given()
    if given["what"] == "fill":
        await fill(given["where"], given["count"])
    elif given["what"] == "written":
        async with await psycopg.AsyncConnection.connect(**given["where"]) as connection:
            counts = await (await connection.execute(foreign.WRITTEN)).fetchone()
            ended = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
            (finished,) = await (await connection.execute(ended)).fetchone() or (0,)
        print(json.dumps([*(counts or ()), finished]))
    else:
        await tallies.measured(lambda tally: work(given, tally), given["warm"], given["seconds"])


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
