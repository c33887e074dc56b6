"""A standby that is promoted in mid-crawl: nothing that was committed is lost, and it goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import psycopg
import pytest
from support import oracle, servers
from support.projects import Project, until

from scrapy_itemgraph.connections import locks
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = 150

SPIDER = f"""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE:0", "/page/0")

    @task(tags=["page"])
    def parse_page(self, response, item):
        number = int(item.id.partition(":")[2])
        yield UpdateData({{"size": len(response.body)}})
        yield UpdateMetadata({{"number": number}})
        for link in range(4 * number + 1, min(4 * number + 5, {PAGES})):
            yield seed(f"PAGE:{{link}}", f"/page/{{link}}")
"""

SETTINGS = """
DOWNLOAD_DELAY = 0.01
ITEMGRAPH_COMMIT_INTERVAL = 0.02
"""

COMMITTED = """
    SELECT i.name, a.token FROM attempts a JOIN items i ON i.id = a.item_id
    WHERE a.outcome = 'ok'"""


@pytest.mark.parametrize(
    ("count", "fall", "after"),
    [
        pytest.param(1, servers.Server.kill, 50),
        pytest.param(2, servers.Server.stop, 5, marks=pytest.mark.slow),
        pytest.param(2, servers.Server.kill, 30, marks=pytest.mark.slow),
        pytest.param(3, servers.Server.kill, 100, marks=pytest.mark.slow),
    ],
)
def test_a_standby_that_is_promoted_goes_on_where_the_primary_was(
    tmp_path, site, count: int, fall: Callable[[servers.Server], None], after: int
):
    """What anybody saw committed is there, the rest is done again, and no worker is buried.

    Another one, which has the lock at the primary alone, is left to its lease.
    """
    with servers.own_postgres() as primary, servers.standby(primary) as standby:
        url = (
            f"postgresql://postgres:open%20sesame@127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            "/postgres?target_session_attrs=read-write"
        )
        project = Project(tmp_path, url, site.url).write(SPIDER, SETTINGS)
        started = [project.start("crawl", "s")]
        until(lambda: site.hits["/page/3"] > 0, project.log)
        started += [project.start("crawl", "s") for _ in range(count - 1)]
        with psycopg.connect(primary.url, autocommit=True) as witness:
            make_silent_worker(witness)
            seen: list = []

            def is_far() -> bool:
                seen[:] = witness.execute(COMMITTED).fetchall()
                return len(seen) >= after

            until(is_far, project.log)
            fall(primary)
        standby.promote()
        runs = [project.finish(process) for process in started]

        assert {run.code for run in runs} == {0}, "".join(run.log for run in runs)
        with psycopg.connect(standby.url) as connection:
            kept = connection.execute(COMMITTED).fetchall()
            workers = connection.execute("SELECT reason FROM processes ORDER BY reason").fetchall()
            outcomes = connection.execute("SELECT DISTINCT outcome FROM attempts").fetchall()
            data = connection.execute("SELECT name, data->>'size' FROM items").fetchall()
        assert not set(seen) - set(kept)
        assert {name for name, _ in kept} == {f"PAGE:{number}" for number in range(PAGES)}
        assert Counter(name for name, _ in kept).most_common(1)[0][1] == 1
        assert all(size is not None for _, size in data)
        assert workers == [*[("finished",)] * count, (None,)]
        assert outcomes == [("ok",)]
        engine = engines.sync_engine(standby.url)
        with engine.begin() as connection:
            oracle.assert_worklist_is_true(connection, 1)
        engine.dispose()


def make_silent_worker(connection: psycopg.Connection) -> None:
    """Register a worker that holds its lock by this connection, and does nothing."""
    with connection.transaction():
        ((number,),) = connection.execute(
            "INSERT INTO processes (kind, crawl_id, host, process_id, locked_at, lease_until) "
            "VALUES ('worker', 1, 'far', 1, clock_timestamp(), now() + interval '1 h') "
            "RETURNING id"
        ).fetchall()
        connection.execute(
            "INSERT INTO workers (id, spider, has_started) VALUES (%s, 's', true)", [number]
        )
        connection.execute(locks.LOCK % number)
