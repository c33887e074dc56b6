"""Crawls that people steer, of processes that were started by hand: they obey, and lose nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from support import sites, steering
from support.bouncers import bouncer
from support.projects import Project, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 2.0  # seconds after a command, at most, in which a request may leave

# All at once: a site that takes its time, a delay, a page whose answer is to be asked for again, a
# page that asks for more while it is under way, and a start() that goes on.
SPIDER = """
class S(scrapy.Spider):
    name = "s"
    custom_settings = {"DOWNLOAD_SLOTS": {"late": {"delay": 5, "concurrency": 1}}}

    async def start(self):
        for n in range(300):
            yield scrapy.Request(f"{SITE}/slow/0.05/{n}")
        for n in range(5):
            yield scrapy.Request(f"{SITE}/page/late/{n}", meta={"download_slot": "late"})
        for n in range(5):
            yield scrapy.Request(f"{SITE}/status/503?{n}", meta={"max_retry_times": 50})
        yield scrapy.Request(f"{SITE}/page/inline", self.parse_inline)
        while not os.path.exists("enough"):
            await asyncio.sleep(0.05)

    def parse(self, response):
        yield {"url": response.url}

    async def parse_inline(self, response):
        for n in range(500):
            await self.crawler.engine.download_async(scrapy.Request(f"{SITE}/page/inline/{n}"))
            await asyncio.sleep(0.05)
"""


# Each page finds that the session has expired, and a login takes its time.
LOGIN = """
class S(scrapy.Spider):
    name = "s"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 2}

    def seeds(self):
        for n in range(20):
            yield seed(f"PAGE:{n}", f"/page/{n}")

    @task(tags=["page"])
    def parse_page(self, response, item):
        if not os.path.exists("enough"):
            raise SessionExpired("log in")
        yield UpdateData({"done": True})

    def login(self):
        for n in range(300):
            yield scrapy.Request(f"{SITE}/slow/0.05/login/{n}", self.logged_in)

    def logged_in(self, response):
        pass
"""


class TimedSite(sites.Site):
    """A site that notes when it was asked for what, and answers nothing with an error any more."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.asked: list[tuple[float, str]] = []
        self.is_well = threading.Event()

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Note the request."""
        self.asked.append((time.monotonic(), target))
        return super().answer("/page/well" if self.is_well.is_set() else target)


@pytest.fixture
def site_kind() -> type[sites.Site]:
    """Return a site that notes when it was asked."""
    return TimedSite


@pytest.fixture
def site(site_kind) -> Iterator[TimedSite]:
    """Serve a site of the test's own."""
    with sites.site(site_kind) as one:
        yield one


def outstanding(project: Project) -> list[tuple]:
    """Return how much work there is, how much of it is claimed, and the tries of what was begun."""
    return project.rows("SELECT count(*), count(token), coalesce(sum(tries), 0) FROM work")


def reasons(project: Project) -> list[tuple]:
    """Return how each process of the crawl ended, and its job."""
    return project.rows(
        "SELECT p.reason, j.origin, j.state, j.reason FROM processes p "
        "LEFT JOIN jobs j ON j.worker_id = p.id WHERE p.kind = 'worker' ORDER BY p.id"
    )


def test_a_paused_crawl_sends_nothing_more_and_goes_on_when_it_is_resumed(project, site):
    """MNB-3: with a buffer, delays, retries, start() and pages under way: 2 s; nothing is lost."""
    project.write(SPIDER, 'ITEMGRAPH_CALLBACKS = {"parse": {}}')
    name = steering.committed(project.url, steering.add)
    process = project.start("crawl", "s", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=4")
    until(lambda: len(site.asked) > 60, project.log)

    paused_at = time.monotonic()
    steering.committed(project.url, steering.change, name, "pause", reason="the site is slow")
    run = project.finish(process)

    assert run.code == 0, run.log
    assert run.stats["reason"] == "paused", run.log
    late = [target for at, target in site.asked if at > paused_at + SOON]
    assert not late, run.log
    assert f"The crawl '{name}' was paused by anna@desk at " in run.log
    assert f"(the site is slow); to have it go on: scrapy itemgraph crawls resume {name}" in run.log
    assert reasons(project) == [("paused", "hand", "cancelled", "paused")]
    ((waiting, claimed, _),) = outstanding(project)
    assert waiting > 100
    assert claimed == 0

    begun = len(site.asked)
    again = project.crawl()

    assert again.code == 0, again.log
    assert again.stats["reason"] == "paused", again.log
    assert len(site.asked) == begun

    steering.committed(project.url, steering.change, name, "resume")
    site.is_well.set()
    (project.directory / "enough").touch()
    last = project.crawl()

    assert last.stats["reason"] == "finished", last.log
    assert outstanding(project) == [(0, 0, 0)]
    asked = Counter(target for _, target in site.asked if target.startswith("/slow/"))
    assert len(asked) == 300
    assert reasons(project)[-1] == ("finished", "hand", "completed", "finished")


@pytest.mark.server
def test_an_aborted_crawl_ends_behind_a_pooler_in_the_midst_of_a_login(project, site, engine):
    """MNB-3: nobody is told there, so it asks each second; nothing fails, all is done later."""
    name = steering.committed(project.url, steering.add)
    with bouncer(engine, "transaction") as url:
        behind = Project(project.directory, url, project.site_url).write(LOGIN)
        process = behind.start("crawl", "s")
        until(lambda: sum("login" in target for _, target in site.asked) > 5, behind.log)

        aborted_at = time.monotonic()
        steering.committed(project.url, steering.change, name, "abort")
        run = behind.finish(process)

    assert run.code == 0, run.log
    assert run.stats["reason"] == "aborted", run.log
    assert not [target for at, target in site.asked if at > aborted_at + SOON], run.log
    assert f"scrapy itemgraph crawls revive {name}" in run.log
    assert outstanding(project) == [(20, 0, 0)]

    steering.committed(project.url, steering.change, name, "revive")
    (project.directory / "enough").touch()
    last = project.write(LOGIN).crawl()

    assert last.stats["reason"] == "finished", last.log
    assert outstanding(project) == [(0, 0, 0)]
    assert project.rows("SELECT state FROM crawls") == [("finished",)]
