"""Jobs of workers whose crawl people steer, and what workers are told by it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from support import steering

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store.registry import dead_processes, jobs, workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.server


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@pytest.fixture
def name(database) -> str:
    """Return the name of a crawl in the queue, of the spider `s` without arguments."""
    return steering.committed(database, steering.add)


@asynccontextmanager
async def worker(database: str, **start: Any) -> AsyncIterator[WorkerGraph]:
    """Start a worker of the spider `s`, and have it end."""
    given = {"crawl": CrawlStart("s"), "spider": "s", "tasks": discover(Books)} | start
    graph = await WorkerGraph.open(Settings.of(database_url=database), **given)
    try:
        yield graph
    finally:
        await graph.close("finished")


def rows(database: str, statement: str) -> list[tuple]:
    """Return what is committed."""
    found = steering.committed(
        database, lambda connection: connection.execute(sa.text(statement)).all()
    )
    return [tuple(row) for row in found]


def told(database: str) -> list[tuple]:
    """Return what workers did to the crawl's history, in order."""
    return rows(
        database,
        "SELECT what, detail->>'origin', detail->>'state' FROM crawl_events "
        "WHERE by LIKE 'worker %' ORDER BY id",
    )


async def claims(graph: WorkerGraph) -> int:
    """Return how much work a worker gets."""
    return len((await graph.claims.claim(ClaimBudget(most=5))).claims)


def test_a_worker_of_a_steered_crawl_has_a_job_and_claims_as_long_as_it_may(database, name):
    """SS-3: by hand or by Scrapyd it joins and ends one; paused it gets nothing, and why."""

    async def run() -> None:
        async with worker(database, job="abc") as graph:
            await graph.commits.seed([CreateItem(f"B{n}", tags=["book"]) for n in range(9)])
            assert await graph.job.look() is None
            assert await claims(graph) == 5
            steering.committed(database, steering.change, name, "pause", reason="too fast")
            assert await claims(graph) == 0
            order = await graph.job.look()
            assert order is not None
            assert order.reason == "paused"
            assert "was paused by anna@desk at " in order.sentence
            steering.committed(database, steering.change, name, "resume")
            assert await graph.job.look() is None
            assert await claims(graph) == 4
        async with worker(database):
            pass

    asyncio.run(run())

    assert rows(database, "SELECT origin, state, reason, scrapyd_job FROM jobs ORDER BY id") == [
        ("scrapyd", "completed", "finished", "abc"),
        ("hand", "completed", "finished", None),
    ]
    assert told(database) == [
        ("started", "scrapyd", None),
        ("ended", "scrapyd", "completed"),
        ("started", "hand", None),
        ("ended", "hand", "completed"),
    ]


def test_a_worker_of_a_crawl_that_nobody_steers_leaves_no_trace_in_the_queue(database):
    """Neither a job nor an event, and nothing that tells it to stop."""

    async def run() -> None:
        async with worker(database) as graph:
            await graph.commits.seed([CreateItem("B", tags=["book"])])
            assert await claims(graph) == 1
            await graph.upkeep.keep_up()
            assert await graph.job.look() is None

    asyncio.run(run())

    assert rows(database, "SELECT id FROM jobs") == rows(database, "SELECT id FROM crawl_events")
    assert rows(database, "SELECT id FROM jobs") == []


def test_a_crawl_that_is_steered_from_now_on_counts_and_stops_those_who_run_it(database):
    """MNB-1: a worker that was there before counts at once; by its upkeep it learns of it."""

    async def run() -> None:
        async with worker(database) as graph:
            name = steering.committed(database, steering.add)
            assert rows(database, "SELECT origin, state FROM jobs") == [("hand", "running")]
            await graph.upkeep.keep_up()
            assert await graph.job.look() is None
            assert rows(database, "SELECT origin, state FROM jobs") == [("hand", "running")]
            assert told(database) == [("started", "hand", None)]
            steering.committed(database, steering.change, name, "abort")
            order = await graph.job.look()
            assert order is not None
            assert order.reason == "aborted"
            assert f"scrapy itemgraph crawls revive {name}" in order.sentence

    asyncio.run(run())


def a_job(connection: sa.Connection, name: str) -> int:
    """Make a job as a runner does, before it starts its process."""
    return connection.scalar(
        sa.text(
            "INSERT INTO jobs (crawl_id, origin) SELECT id, 'runner' FROM crawls "
            "WHERE name = :name RETURNING id"
        ),
        {"name": name},
    )


def test_a_process_of_a_runner_works_on_its_jobs_crawl_until_that_is_ended(database, name):
    """Whatever its arguments are; declared lost it gets no more work, and leaves the job alone."""
    second = steering.committed(database, steering.add, name="second")
    number = steering.committed(database, a_job, second)

    async def run() -> None:
        async with worker(database, runners_job=number, crawl=CrawlStart("s", {"a": "1"})) as graph:
            await graph.commits.seed([CreateItem("B", tags=["book"])])
            assert rows(database, f"SELECT state, worker_id FROM jobs WHERE id = {number}") == [
                ("running", graph.worker_id)
            ]
            assert await graph.job.look() is None
            steering.committed(
                database,
                lambda connection: connection.execute(
                    sa.text("UPDATE jobs SET state = 'temporary-error', ended_at = now()")
                ),
            )
            assert await claims(graph) == 0
            order = await graph.job.look()
            assert order is not None
            assert order.reason == "superseded"

    asyncio.run(run())

    assert rows(database, "SELECT state, reason FROM jobs") == [("temporary-error", None)]
    assert rows(database, "SELECT c.name FROM items i JOIN crawls c ON c.id = i.crawl_id") == [
        ("second",)
    ]


def test_a_process_that_begins_after_the_crawls_end_ends_at_once(database, name):
    """MNB-3: others were faster than its start: it begins no other run, which fetched all again."""
    number = steering.committed(database, a_job, name)

    async def run() -> None:
        async with worker(database, runners_job=number) as graph:
            await graph.run.mark_started()
            await graph.run.mark_started()
            await graph.upkeep.keep_up()
            assert await graph.run.finish()
        late = steering.committed(database, a_job, name)
        async with worker(database, runners_job=late) as graph:
            order = await graph.job.look()
            assert order is not None
            assert order.reason == "finished"
            assert "brought the crawl 's' to its end as this process began" in order.sentence
        async with worker(database) as graph:
            assert await graph.job.look() is None
            assert graph.run.number == 2

    asyncio.run(run())

    assert rows(database, "SELECT number, is_finished FROM runs ORDER BY number") == [
        (1, True),
        (2, False),
    ]


def test_a_process_that_inherited_the_environment_of_a_runners_one_is_by_hand(
    database, name, caplog
):
    """Another spider's start is none of the job; it is said, and the job stays its process's."""
    number = steering.committed(database, a_job, name)

    async def run() -> None:
        async with worker(database, runners_job=number, crawl=CrawlStart("t"), spider="t") as graph:
            assert graph.crawl_id != rows(database, "SELECT crawl_id FROM jobs")[0][0]

    asyncio.run(run())

    assert f"ITEMGRAPH_JOB names the job {number}, which is none of this process" in caplog.text
    assert rows(database, "SELECT state, worker_id FROM jobs") == [("pending", None)]


def test_who_buries_a_worker_ends_its_job(database, name):
    """SS-3: a job of no runner whose process died is a temporary error, and the history has it."""

    def die(connection: sa.Connection) -> None:
        crawl_id = connection.scalar(sa.text("SELECT id FROM crawls"))
        lost = workers.register(
            connection,
            crawl_id,
            spider="s",
            host="here",
            process_id=1,
            job=None,
            lease=timedelta(seconds=-1),
        )
        assert jobs.make(connection, lost.id, scrapyd_job=None) is not None

    steering.committed(database, die)
    steering.committed(
        database,
        lambda connection: dead_processes.take_over(
            connection, connection.scalar(sa.text("SELECT id FROM crawls")), 0
        ),
    )

    assert rows(database, "SELECT state, reason FROM jobs") == [
        ("temporary-error", "its process died")
    ]
    assert told(database) == [("started", "hand", None), ("ended", "hand", "temporary-error")]
