"""A database that went back: a standby is promoted that was behind, a backup is restored.

What it lacks is fetched again, by the workers that went on meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import oracle
import psycopg
import pytest
import servers
from projects import Project, until

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

PAGES = 250
WARNING = "WARNING: The database went back: "

LINKS = f"""
def links(number):
    near = range(4 * number + 1, min(4 * number + 5, {PAGES}))
    return [*near, number // 2, number * 7 % {PAGES}]
"""

TASKS = f"""
{LINKS}

class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE:0", "/page/0")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({{"size": len(response.body)}})
        for link in links(int(item.id.partition(":")[2])):
            yield seed(f"PAGE:{{link}}", f"/page/{{link}}")
"""

PLAIN = f"""
{LINKS}

class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        for link in links(int(response.url.rpartition("/")[2])):
            yield response.follow(f"/page/{{link}}", self.parse_other)

    def parse_other(self, response):
        return self.parse(response)
"""

SETTINGS = """
DOWNLOAD_DELAY = 0.01
ITEMGRAPH_COMMIT_INTERVAL = 0.02
"""

DONE = "SELECT count(DISTINCT item_id) FROM results WHERE completed_at IS NOT NULL"


@contextmanager
def promoted(primary: servers.Server, until_done: Callable[[int], None], behind: int, fall: int):
    """Let a standby fall behind, the primary go on, be killed, and the standby be promoted."""
    with servers.standby(primary, is_synchronous=False) as standby:
        url = (
            f"postgresql://postgres:open%20sesame@127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            "/postgres?target_session_attrs=read-write"
        )

        def happen() -> servers.Server:
            until_done(behind)
            standby.fall_behind()
            until_done(fall)
            primary.kill()
            standby.promote()
            return standby

        yield url, happen


@contextmanager
def restored(primary: servers.Server, until_done: Callable[[int], None], behind: int, fall: int):
    """Take a backup, let the crawl go on, and start the backup in the place of the server."""
    copies = []

    def happen() -> servers.Server:
        until_done(behind)
        copy = servers.backup(primary)
        copies.append(copy)
        server = copy.__enter__()
        until_done(fall)
        primary.kill()
        server.start()
        return server

    try:
        yield primary.url, happen
    finally:
        for copy in copies:
            copy.__exit__(None, None, None)


class Case(NamedTuple):
    """What is crawled by how many workers, and when, by pages done, what happens."""

    how: Callable[..., AbstractContextManager[tuple[str, Callable[[], servers.Server]]]]
    spider: str
    workers: int
    behind: int
    fall: int


CASES = [
    Case(promoted, TASKS, 2, 40, 80),
    Case(restored, PLAIN, 2, 40, 150),
    Case(promoted, PLAIN, 1, 5, 20),
    Case(promoted, PLAIN, 3, 100, 130),
    Case(restored, TASKS, 1, 60, 200),
    Case(restored, TASKS, 3, 5, 120),
]


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.slow if one not in CASES[:2] else ()) for one in CASES],
)
def test_what_a_database_lacks_that_went_back_is_fetched_again(tmp_path, site, case: Case):
    """All pages are there in the end, nothing is outstanding, and the workers end by themselves."""
    with (
        servers.own_postgres() as primary,
        psycopg.connect(primary.url, autocommit=True) as witness,
    ):

        def until_done(pages: int) -> None:
            until(lambda: witness.execute(DONE).fetchone()[0] >= pages, project.log)

        with case.how(primary, until_done, case.behind, case.fall) as (url, happen):
            project = Project(tmp_path, url, site.url).write(case.spider, SETTINGS)
            started = [project.start("crawl", "s")]
            until(lambda: site.hits["/page/3"] > 0, project.log)
            started += [project.start("crawl", "s") for _ in range(case.workers - 1)]
            server = happen()
            check(server, [project.finish(process) for process in started])


def check(server: servers.Server, runs: list) -> None:
    """Check that a crawl came to its end, of all pages, and said what had happened."""
    logs = "".join(run.log for run in runs)
    assert {run.code for run in runs} == {0}, logs
    assert WARNING in logs
    with psycopg.connect(server.url) as connection:
        done = connection.execute(
            "SELECT i.data->>'url' FROM items i JOIN results r ON r.item_id = i.id "
            "WHERE r.completed_at IS NOT NULL"
        ).fetchall()
        outstanding = connection.execute("SELECT count(*) FROM work").fetchone()
        failures = connection.execute("SELECT count(*) FROM failures").fetchone()
    pages = {url.rpartition("/")[2] for (url,) in done}
    assert pages == {str(number) for number in range(PAGES)}, logs
    assert (outstanding, failures) == ((0,), (0,))
    engine = engines.sync_engine(server.url)
    with engine.begin() as connection:
        oracle.assert_worklist_is_true(connection, 1)
    engine.dispose()
