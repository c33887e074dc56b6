"""A worker of ours without Scrapy: it claims and commits by `WorkerGraph`, as a crawl's does.

Claims run ahead of commits by a batch, as `worker.claims` and `worker.committer` have it. Nothing
keeps to limits: slots have no terms here, as the queues that this is compared with have none.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import tallies
from support.races import Crawl, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model.operations import CreateItem, UpdateData, UpdateMetadata
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget, InFlight, Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.work import Claim

HOST = "site.example"
CRAWL, SPIDER = "books", "spider"  # as `races.Crawl` has them

# The first `done` items have a fresh result, all others work.
FILL = (
    "INSERT INTO limits (name) SELECT 'host' || n || :host FROM generate_series(0, :hosts - 1) n",
    """
    INSERT INTO queues (crawl_id, slot_id, is_live, next_at)
    SELECT :crawl, id, true, now() FROM limits WHERE name LIKE 'host%'
    """,
    """
    INSERT INTO items (id, crawl_id, slot_id, name, data) OVERRIDING SYSTEM VALUE
    SELECT n, :crawl, s.id, 'i' || n, json_build_object('url', 'http://' || s.name || '/page/' || n)
    FROM generate_series(1, :count) n
    JOIN limits s ON s.name = 'host' || n % :hosts || :host
    """,
    """
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, encode(substring(sha256(convert_to(name, 'UTF8')) FOR 16), 'hex')::uuid AS key,
        name, id FROM items ORDER BY key
    """,
    "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT id, 'page', :crawl FROM items",
    """
    INSERT INTO results (item_id, task_id, task_version, is_successful, completed_at, metadata)
    SELECT i.id, t.id, t.version, true, now(), '{"links": 10}' FROM items i, tasks t
    WHERE i.id <= :done
    """,
    """
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice)
    SELECT i.id, t.id, :crawl, q.id, k.id, false, 0
    FROM tasks t JOIN kinds k ON k.task_id = t.id CROSS JOIN items i
    JOIN queues q ON q.slot_id = i.slot_id
    WHERE i.id > :done ORDER BY i.id
    """,
    "SELECT setval('items_id_seq', (SELECT max(id) FROM items))",
)


class Pages:
    """One task, for each item with the tag `page`."""

    @task(tags=["page"])
    def parse(self, response, item): ...


def fill(url: str, *, count: int, done: int = 0, hosts: int = 1) -> None:
    """Fill an empty database: `count` items of as many hosts, the first `done` of them fresh."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    crawl = Crawl(engine, Pages, CRAWL)
    given = {"crawl": crawl.id, "count": count, "done": done, "hosts": hosts, "host": f".{HOST}"}
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for statement in FILL:
            text = sa.text(statement)
            connection.execute(text, {key: given[key] for key in text._bindparams})
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def written(url: str) -> int:
    """Return how many cycles are in the database, with all they write, and nothing besides."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        counts = connection.exec_driver_sql(
            "SELECT (SELECT count(*) FROM results WHERE metadata IS NOT NULL), "
            "(SELECT count(*) FROM items WHERE name NOT LIKE 'i%%'), "
            "(SELECT count(*) FROM items WHERE (data -> 'title') IS NOT NULL), "
            "(SELECT count(*) FROM attempts WHERE outcome = 'ok')"
        ).one()
    engine.dispose()
    if len(set(counts)) > 1:
        raise RuntimeError(f"results, new items, changed items and attempts differ: {counts}")
    return int(counts[0])


def changesets(claims: list[Claim], numbers: Iterator[int], worker: int) -> list[Changeset]:
    """Return what as many executions of `parse` did: data, metadata, and a new item each."""
    done = []
    for claim in claims:
        name = f"n{worker}-{next(numbers)}"
        done.append(
            ended(
                claim,
                UpdateData({"title": "A page"}),
                UpdateMetadata({"links": 10}),
                CreateItem(name, tags=["page"], data={"url": f"http://{claim.slot}/page/{name}"}),
            )
        )
    return done


async def open_graph(url: str) -> WorkerGraph:
    """Join the crawl of a database that `fill` filled, as one more worker."""
    settings = Settings.of(database_url=url)
    return await WorkerGraph.open(settings, crawl=CRAWL, spider=SPIDER, tasks=discover(Pages))


async def work(graph: WorkerGraph, batch: int, tally: tallies.Tally) -> None:
    """Claim and commit until told to stop, at the same time.

    With each claim the database is told what this worker has begun by then, as a crawl's tells it.
    """
    claimed: asyncio.Queue[list[Claim]] = asyncio.Queue(1)
    begun: set[tuple[int, int]] = set()

    async def claim() -> None:
        while not tally.is_over:
            result = await graph.claims.claim(
                ClaimBudget(most=batch, in_flight=InFlight(pairs=begun, room=batch))
            )
            claims = list(result.claims)
            begun.update((one.item_id, one.task_id) for one in claims)
            await claimed.put(claims)
            if not claims:
                await asyncio.sleep(0.005)
        await claimed.put([])

    async def commit() -> None:
        numbers = itertools.count()
        while True:
            claims = await claimed.get()
            if not claims and tally.is_over:
                return
            result = await graph.commits.commit(changesets(claims, numbers, graph.worker_id))
            if any(one.outcome is not Outcome.OK for one in result.applied):
                raise RuntimeError(f"not committed: {result.applied}")
            tally.committed += len(claims)
            begun.difference_update((one.item_id, one.task_id) for one in claims)

    await asyncio.gather(claim(), commit())


async def main() -> None:
    """Work as the parent asks."""
    given = tallies.given()
    graph = await open_graph(given["url"])
    try:
        await tallies.measured(
            lambda tally: work(graph, given["batch"], tally), given["warm"], given["seconds"]
        )
    finally:
        await graph.close("finished")


if __name__ == "__main__":
    asyncio.run(main())
