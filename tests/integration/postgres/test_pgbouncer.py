"""Crawls through PgBouncer: session and transaction mode do, statement mode is refused."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from support.bouncers import bouncer
from support.projects import PATIENCE, Project, Run, kill

from scrapy_itemgraph import task
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import notify

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(20):
            yield CreateItem(f"ITEM:{number}", tags=["item"])

    @task(tags=["item"], download=False)
    async def work(self, response, item):
        if hasattr(self, "hang"):
            self.logger.info("HOLDS %s", item.id)
            await asyncio.Event().wait()
        self.logger.info("WORKS")
        while hasattr(self, "slow") and not os.path.exists("killed"):
            await asyncio.sleep(0.02)
        yield UpdateMetadata({"id": item.id})
"""

SETTINGS = """
ITEMGRAPH_LEASE = 3600
ITEMGRAPH_CLAIM_BATCH = 2
CONCURRENT_REQUESTS = 2
"""


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_two_workers_share_a_crawl_and_one_takes_over_when_the_other_is_killed(
    mode, engine, database, tmp_path
):
    """A worker's death is seen at once in session mode, and in both with a session of its own."""
    settings = SETTINGS + (f"ITEMGRAPH_SESSION_URL = {database!r}" if mode == "transaction" else "")
    with bouncer(engine, mode) as url:
        run = taken_over(Project(tmp_path, url).write(SPIDER, settings))

    assert run.stats["finish_reason"] == "finished", run.log
    assert_all_is_done(Project(tmp_path, database))


def test_in_transaction_mode_one_server_connection_does_for_several_workers(
    engine, database, tmp_path
):
    """No worker keeps one, so a pool need not grow with them; deaths are seen by the lease."""
    with bouncer(engine, "transaction", pool_size=1) as url:
        run = taken_over(
            Project(tmp_path, url).write(SPIDER, SETTINGS + "ITEMGRAPH_LEASE = 6"),
        )

    assert run.stats["finish_reason"] == "finished", run.log
    assert "behind a pooler in transaction mode" in run.log
    assert_all_is_done(Project(tmp_path, database))


def taken_over(project: Project) -> Run:
    """Kill one of two workers while both have claims; return how the other one ended."""
    doomed = project.start("crawl", "s", "-a", "hang=1")
    project.wait_for("HOLDS")
    other = project.start("crawl", "s", "-a", "slow=1")
    project.wait_for("WORKS")
    kill(doomed)
    (project.directory / "killed").touch()
    return project.finish(other)


def assert_all_is_done(direct: Project) -> None:
    """Check that all was done once, and what the dead worker had once more."""
    outcomes = Counter(tuple(some) for some in direct.outcomes().values())
    assert set(outcomes) == {("ok",), ("died", "ok")}
    assert outcomes.total() == 20
    assert direct.rows("SELECT reason FROM processes ORDER BY id") == [("died",), ("finished",)]


def test_news_of_others_work_come_through_in_session_mode(engine, database):
    """A worker behind PgBouncer in session mode is woken as if it were not there."""

    async def run(url: str) -> None:
        settings = Settings.of(database_url=url)
        graph = await WorkerGraph.open(
            settings, crawl="books", spider="spider", tasks=discover(Books)
        )
        try:
            await graph.news.wait()  # there may have been news before it listened
            waiting = asyncio.ensure_future(graph.news.wait())
            await asyncio.wait([waiting], timeout=0.1)
            assert not waiting.done(), "it woke before there was news"

            await asyncio.to_thread(tell, graph.crawl_id)
            woken, _ = await asyncio.wait([waiting], timeout=PATIENCE)
            assert woken, "no news came through PgBouncer"
        finally:
            await graph.close("finished")

    def tell(crawl: int) -> None:
        with engine.begin() as connection:
            connection.execute(notify.NOTIFY, {"crawl": str(crawl)})

    with bouncer(engine, "session") as url:
        asyncio.run(run(url))


def test_statement_mode_is_refused(engine, tmp_path):
    """PgBouncer in statement mode has no transactions, and the crawl ends with what it says."""
    with bouncer(engine, "statement") as url:
        run = Project(tmp_path, url).write(SPIDER, SETTINGS).crawl()

    assert "transaction blocks not allowed" in run.log
    assert run.stats["finish_reason"] == "itemgraph_error"
