"""Crawls through PgBouncer: session and transaction mode do, statement mode is refused."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

import pytest
from bouncers import bouncer
from projects import Project

from scrapy_itemgraph import refresh, task
from scrapy_itemgraph.graph import CrawlGraph
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.tasks import discover

PATIENCE = 60.0

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


def wait_for(project: Project, text: str) -> None:
    """Wait until the log has `text`."""
    deadline = time.monotonic() + PATIENCE
    while text not in project.log():
        assert time.monotonic() < deadline, project.log()
        time.sleep(0.02)  # reading the log again is all the waiting there is


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_two_workers_share_a_crawl_and_one_takes_over_when_the_other_is_killed(
    mode, engine, database, tmp_path
):
    """In both modes a worker's death is seen at once, and its claims are done by the other."""
    with bouncer(engine, mode) as url:
        project = Project(tmp_path, url).write(SPIDER, SETTINGS)
        doomed = project.start("crawl", "s", "-a", "hang=1")
        wait_for(project, "HOLDS")
        other = project.start("crawl", "s", "-a", "slow=1")
        wait_for(project, "WORKS")
        doomed.send_signal(signal.SIGKILL)
        doomed.communicate()
        (tmp_path / "killed").touch()

        run = project.finish(other)

    direct = Project(tmp_path, database)
    assert run.stats["finish_reason"] == "finished", run.log
    outcomes = Counter(tuple(some) for some in direct.outcomes().values())
    assert set(outcomes) == {("ok",), ("died", "ok")}
    assert outcomes.total() == 20
    assert direct.rows("SELECT reason FROM workers ORDER BY id") == [("died",), ("finished",)]


def test_news_of_others_work_come_through_in_session_mode(engine, database):
    """A worker behind PgBouncer in session mode is woken as if it were not there."""

    async def run(url: str) -> None:
        settings = Settings(database_url=url)
        graph = await CrawlGraph.open(
            settings, crawl="books", spider="spider", tasks=discover(Books)
        )
        try:
            await asyncio.to_thread(until_it_listens)
            await asyncio.to_thread(tell, graph._crawl_id)
            await asyncio.wait_for(graph.wait(3600), PATIENCE)
        finally:
            await graph.close("finished")

    def until_it_listens() -> None:
        deadline = time.monotonic() + PATIENCE
        while not listening():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def listening() -> bool:
        with engine.connect() as connection:
            return connection.exec_driver_sql(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
                "AND query = 'LISTEN itemgraph' AND state = 'idle')"
            ).scalar_one()

    def tell(crawl: int) -> None:
        with engine.begin() as connection:
            connection.execute(refresh.NOTIFY, {"crawl": str(crawl)})

    with bouncer(engine, "session") as url:
        asyncio.run(run(url))


def test_statement_mode_is_refused(engine, tmp_path):
    """PgBouncer in statement mode has no transactions, and the crawl ends with what it says."""
    with bouncer(engine, "statement") as url:
        run = Project(tmp_path, url).write(SPIDER, SETTINGS).crawl()

    assert "transaction blocks not allowed" in run.log
    assert run.stats["finish_reason"] == "itemgraph_error"


def test_a_pool_with_room_for_locks_alone_is_too_small(engine, tmp_path):
    """In transaction mode each worker's lock keeps a server connection; there must be more."""
    with bouncer(engine, "transaction", pool_size=1, query_wait_timeout=1) as url:
        project = Project(tmp_path, url).write(SPIDER, SETTINGS)
        process = project.start("crawl", "s")
        wait_for(project, "query_wait_timeout")
        process.kill()
        process.communicate()
