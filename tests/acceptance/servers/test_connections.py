"""How many connections to the server a crawl process has, counted at the server."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from support.bouncers import bouncer
from support.projects import Project

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(100):
            yield seed(f"PAGE:{number}", f"/page?{number}")

    @task(tags=["page"])
    async def parse_page(self, response, item):
        await asyncio.gather(*(item.get_item(f"PAGE:{number}") for number in range(4)))
        yield UpdateData({"size": len(response.body)})
        yield {"page": item.id}
"""

DROP_IN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page?0"]

    def parse(self, response):
        number = int(response.url.partition("?")[2])
        yield {"page": number}
        for link in range(4 * number + 1, min(4 * number + 5, 100)):
            yield response.follow(f"/page?{link}")
"""

KEPT = """
FEEDS = {"pages.jl": {"format": "jsonlines"}}
ITEMGRAPH_KEEP_ITEMS = True
"""


class Peak:
    """The most connections of others to a database at one time."""

    def __init__(self) -> None:
        self.connections = 0


@contextmanager
def counted(database: str) -> Iterator[Peak]:
    """Count the connections to a database again and again, but for those that are there already."""
    peak, over = Peak(), threading.Event()
    engine = engines.sync_engine(database)
    connection = psycopg.connect(**engine.dialect.create_connect_args(engine.url)[1])
    connection.autocommit = True
    before = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    known = [pid for (pid,) in connection.execute(before)]

    def count() -> None:
        while not over.wait(0.003):
            counts = connection.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend' "
                "AND pid <> ALL (%s)",
                [known],
            )
            peak.connections = max(peak.connections, *counts.fetchone())

    counting = threading.Thread(target=count)
    counting.start()
    try:
        yield peak
    finally:
        over.set()
        counting.join()
        connection.close()
        engine.dispose()


@pytest.mark.parametrize(("spider", "settings"), [(TASKS, ""), (DROP_IN, KEPT)])
def test_a_worker_has_three_connections(project, database, spider, settings):
    """Two of its pool, and one that holds its locks, listens and renews its lease.

    The pool has one more where the log says that the database answers late.
    """
    with counted(database) as peak:
        run = project.write(spider, settings).crawl()

    assert run.stats["finish_reason"] == "finished", run.log
    assert 2 <= peak.connections <= 3 + run.log.count("; one connection more")


def test_a_worker_has_one_connection_through_a_transaction_pooler(project, database, engine):
    """It needs one at a time there, however much the pooler could give."""
    with bouncer(engine, "transaction") as url, counted(database) as peak:
        run = Project(project.directory, url, project.site_url).write(TASKS).crawl()

    assert run.stats["finish_reason"] == "finished", run.log
    assert peak.connections == 1


def test_with_a_session_beside_the_pooler_it_has_one_more(project, database, engine):
    """ITEMGRAPH_SESSION_URL costs one connection that the pooler does not have."""
    settings = f"ITEMGRAPH_SESSION_URL = {database!r}" + KEPT
    with bouncer(engine, "transaction") as url, counted(database) as peak:
        run = Project(project.directory, url, project.site_url).write(TASKS, settings).crawl()

    assert run.stats["finish_reason"] == "finished", run.log
    assert peak.connections == 2
