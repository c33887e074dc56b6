"""A database that went back: a standby is promoted that was behind, a backup is restored.

What it lacks is fetched again, by the workers that went on meanwhile.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from support import oracle, servers, sites
from support.projects import Project, until

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

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

KEPT = f"""
{LINKS}

class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/0")  # known by its URL: fetched once

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {{"page": number}}
        for link in links(number):
            yield response.follow(f"/page/{{link}}")
"""

FEEDS = """
ITEMGRAPH_KEEP_ITEMS = True
FEEDS = {"kept.jl": {"format": "jsonlines"}}
"""

SETTINGS = """
DOWNLOAD_DELAY = 0.01
ITEMGRAPH_COMMIT_INTERVAL = 0.02
"""

DONE = "SELECT count(DISTINCT item_id) FROM results WHERE completed_at IS NOT NULL"
WORKERS = "SELECT count(*) FROM workers"
FEEDS_TO_BEGIN = "SELECT count(*) FROM feeds WHERE uri IS NULL"


class HeldSite(sites.Site):
    """A site that answers nothing while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer.set()

    def respond(self, *given):
        """Answer once that is allowed."""
        self.may_answer.wait(60)
        return super().respond(*given)


@dataclass
class Scene:
    """A crawl, the server that it begins on, and what becomes of that.

    `behind` is how many pages are done by then of which the next server knows, `fall` how many are
    when the first one ends.
    """

    primary: servers.Server
    site: HeldSite
    behind: int
    fall: int

    def count(self, query: str) -> int:
        """Return what a query counts at the first server."""
        with psycopg.connect(self.primary.url) as witness:
            return witness.execute(query).fetchone()[0]

    def until_done(self, pages: int) -> None:
        """Wait until so many pages are done."""
        until(lambda: self.count(DONE) >= pages)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Have nothing more done meanwhile than what is under way."""
        self.until_done(self.behind)
        self.site.may_answer.clear()
        try:
            yield
        finally:
            self.site.may_answer.set()


@contextmanager
def promoted(scene: Scene):
    """Let a standby fall behind, the primary go on, be killed, and the standby be promoted."""
    primary = scene.primary
    with servers.standby(primary, is_synchronous=False) as standby:
        url = (
            f"postgresql://postgres:open%20sesame@127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            "/postgres?target_session_attrs=read-write"
        )

        def happen() -> servers.Server:
            with scene.standing_still():
                standby.fall_behind()
            scene.until_done(scene.fall)
            primary.kill()
            standby.promote()
            return standby

        yield url, happen


@contextmanager
def restored(scene: Scene):
    """Take a backup, let the crawl go on, and start the backup in the place of the server."""
    with ExitStack() as stack:

        def happen() -> servers.Server:
            with scene.standing_still():
                copy = stack.enter_context(servers.backup(scene.primary))
            scene.until_done(scene.fall)
            scene.primary.kill()
            copy.start()
            return copy

        yield scene.primary.url, happen


class Case(NamedTuple):
    """What happens when, by pages done, to how many workers of which spider."""

    how: Callable[[Scene], AbstractContextManager[tuple[str, Callable[[], servers.Server]]]]
    spider: str
    workers: int
    behind: int
    fall: int


CASES = [
    Case(promoted, TASKS, 2, 40, 80),
    Case(restored, PLAIN, 2, 40, 150),
    Case(promoted, PLAIN, 1, 5, 40),
    Case(promoted, PLAIN, 3, 100, 140),
    Case(restored, TASKS, 1, 60, 200),
    Case(restored, TASKS, 3, 5, 120),
]


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.slow if one not in CASES[:2] else ()) for one in CASES],
)
def test_what_a_database_lacks_that_went_back_is_fetched_again(tmp_path, case: Case):
    """All pages are there in the end, nothing is outstanding, and the workers end by themselves."""
    crawl(tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("how", [promoted, restored])
def test_a_kept_feed_of_lines_is_cut_to_what_the_database_knows_of_it(tmp_path, how):
    """Of a database that went back, each item is in the feed once in the end."""
    crawl(tmp_path, Case(how, KEPT, 2, 50, 150), FEEDS)

    lines = (tmp_path / "kept.jl").read_text().splitlines()
    assert sorted(json.loads(line)["page"] for line in lines) == list(range(PAGES))


def crawl(directory: Path, case: Case, settings: str = "") -> None:
    """Crawl while it happens, and check what is there in the end."""
    with (
        servers.own_postgres() as primary,
        sites.site(HeldSite) as site,
        case.how(scene := Scene(primary, site, case.behind, case.fall)) as (url, happen),
    ):
        project = Project(directory, url, site.url).write(case.spider, SETTINGS + settings)
        started = [project.start("crawl", "s")]
        until(lambda: site.hits["/page/3"] > 0, project.log)
        site.may_answer.clear()
        started += [project.start("crawl", "s") for _ in range(case.workers - 1)]
        until(lambda: scene.count(WORKERS) == case.workers, project.log)
        until(lambda: scene.count(FEEDS_TO_BEGIN) == 0, project.log)
        site.may_answer.set()
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
