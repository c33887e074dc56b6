"""The example project as an egg on a real Scrapyd: jobs at once, cancelled, killed, rescheduled."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from conftest import new_database
from support import manuals, scrapyds, servers, steering
from support.projects import PACKAGE, Project

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

pytestmark = pytest.mark.tracebacks("could not convert string to float")  # the shop's odd price

EXAMPLE = PACKAGE / "example_project"
PATIENCE = 60.0
# Few at a time, so that two jobs get a share each of a small shop.
SHARED = {"ITEMGRAPH_CLAIM_BATCH": "4", "CONCURRENT_REQUESTS_PER_DOMAIN": "2"}
OLD_PAGE = "/mint-tea-loose"
# Of each such pair one commit is all there may be; products and cards run again when expired.
ONCE = ("parse_shop", "parse_category", "parse_reviews", "fetch_photo")


def shop_module() -> ModuleType:
    """Load the example shop's site."""
    spec = importlib.util.spec_from_file_location("shop_site", EXAMPLE / "shop" / "site.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop_site"] = module
    spec.loader.exec_module(module)
    return module


class Gate:
    """Holds the product pages that some user agents ask for."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self._closed: set[str] = set()
        self._changed = threading.Condition()

    def close(self, *agents: str) -> None:
        """Hold these agents' requests from now on."""
        with self._changed:
            self._closed.update(agents)

    def open(self, *agents: str) -> None:
        """Let these agents' requests through."""
        with self._changed:
            self._closed.difference_update(agents)
            self._changed.notify_all()

    def until_waiting(self, *agents: str) -> bool:
        """Return when each of these agents waits for a page."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self.waiting[agent] for agent in agents), PATIENCE
            )

    def pass_through(self, agent: str, path: str) -> None:
        """Return when the agent may have the page."""
        if not path.startswith("/product/") or path.endswith(OLD_PAGE):
            return
        with self._changed:
            self.waiting[agent] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: agent not in self._closed, PATIENCE)
            self.waiting[agent] -= 1


class Shop:
    """The example shop's site with a gate; `reset` lets its first day begin again."""

    def __init__(self) -> None:
        self.module = module = shop_module()

        class Handler(module.Handler):
            def do_GET(self) -> None:  # noqa: N802 - as http.server calls it
                self.server.gate.pass_through(self.headers["User-Agent"], self.path)
                with suppress(OSError):  # who asked may have been killed
                    super().do_GET()

        self.server = module.Server(0, 1)
        self.server.RequestHandlerClass = Handler
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.reset()

    def reset(self) -> Gate:
        """Forget who asked for what; return a gate that is open."""
        self.server.shop = self.module.Shop(1)
        self.server.gate = Gate()
        return self.server.gate


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """Serve the shop."""
    shop = Shop()
    thread = threading.Thread(target=shop.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield shop
    shop.server.shutdown()
    thread.join()
    shop.server.server_close()


@pytest.fixture(scope="module")
def scrapyd() -> Iterator[scrapyds.Scrapyd]:
    """Run a Scrapyd that the example project is deployed to."""
    scrapyds.require()
    with servers.open_directory() as directory, scrapyds.server(directory) as running:
        running.deploy(EXAMPLE)
        yield running


@pytest.fixture(scope="module")
def undisturbed(scrapyd, shop, server_url, template) -> Iterator[tuple[Project, str]]:
    """Yield the database that one job crawled into from beginning to end, and the job."""
    with new_database(server_url, template) as url:
        shop.reset()
        job = scrapyd.schedule("shop", {"ITEMGRAPH_DATABASE_URL": url}, site=shop.url)
        scrapyd.until_finished(job)
        yield Project(scrapyd.directory, url), job


@pytest.fixture
def gate(shop) -> Iterator[Gate]:
    """Let the shop's first day begin, with a gate that is open again in the end."""
    gate = shop.reset()
    yield gate
    gate.open("one", "two")


@pytest.fixture
def start(scrapyd, shop) -> Callable[..., str]:
    """Return what schedules a job that calls itself `agent` towards the shop."""

    def start(agent: str, **settings: str) -> str:
        return scrapyd.schedule("shop", {"USER_AGENT": agent, **SHARED, **settings}, site=shop.url)

    return start


def attempts(project: Project, job: str) -> Counter[str]:
    """Count the outcomes of a job's attempts, by the job id on its worker."""
    rows = project.rows(
        "SELECT a.outcome FROM attempts a JOIN workers w ON w.id = a.worker_id "
        f"WHERE w.job = '{job}'"
    )
    return Counter(outcome for (outcome,) in rows)


def claimed(project: Project, job: str, *, of_what_stays: bool = False) -> int:
    """Count what a job has claimed; pages of lists and an old address are deleted in the end."""
    goes = f"(i.name LIKE 'PAGE:%' OR i.name LIKE '%{OLD_PAGE}')"
    ((count,),) = project.rows(
        "SELECT count(*) FROM work k JOIN workers w ON w.id = k.worker_id "
        f"JOIN items i ON i.id = k.item_id WHERE w.job = '{job}' "
        f"AND NOT ({of_what_stays} AND {goes})"
    )
    return count


def connections(project: Project) -> int:
    """Count the connections to the database, without the one that asks."""
    ((count,),) = project.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    return count


def commits(project: Project) -> Counter[tuple[str, str]]:
    """Count the commits of each pair that is to have one."""
    rows = project.attempts()
    return Counter(
        (item, task) for item, task, outcome, _ in rows if outcome == "ok" and task in ONCE
    )


def reasons(project: Project) -> dict[str, str]:
    """Return why the worker of each job stopped."""
    return dict(project.rows("SELECT job, reason FROM workers JOIN processes USING (id)"))


@pytest.mark.slow
def test_a_job_runs_from_the_egg_and_its_id_is_on_worker_and_attempts(scrapyd, undisturbed):
    """A deployed spider crawls to the end; who did it can be told by Scrapyd's job id."""
    project, job = undisturbed

    log = scrapyd.log(job)
    assert "'finish_reason': 'finished'" in log, log
    assert reasons(project) == {job: "finished"}
    ((count,),) = project.rows("SELECT count(*) FROM attempts")
    assert attempts(project, job).total() == count > 100
    assert len(manuals.pages(project.url, "shop")) > 40


def test_two_jobs_share_a_crawl_one_cancelled_one_killed_and_nothing_is_lost(
    scrapyd, gate, start, undisturbed, database
):
    """SIGINT gives work back, SIGKILL leaves it to others, and the next jobs do the rest, once."""
    project = Project(scrapyd.directory, database)
    gate.close("one", "two")
    # The site is asked for more at once by both than one of them may ask alone.
    settings = {"ITEMGRAPH_DATABASE_URL": database, "CONCURRENT_REQUESTS_PER_DOMAIN": 64}
    first = start("one", **settings)
    second = start("two", **settings)
    assert gate.until_waiting("one", "two"), scrapyd.log(first) + scrapyd.log(second)

    assert 2 < connections(project) <= 2 * 5

    assert scrapyd.cancel(first) == "running"
    scrapyd.until(lambda: "Received SIGINT" in scrapyd.log(first), first)
    gate.open("one")
    scrapyd.until_finished(first)
    assert scrapyd.cancel(second, "KILL") == "running"
    scrapyd.until_finished(second)

    assert reasons(project) == {first: "shutdown", second: None}
    assert "died" not in attempts(project, first)
    assert claimed(project, first) == 0
    left = claimed(project, second, of_what_stays=True)
    assert left > 0

    gate.open("two")
    rest = (
        start("three", ITEMGRAPH_DATABASE_URL=database),
        start("four", ITEMGRAPH_DATABASE_URL=database),
    )
    scrapyd.until_finished(*rest)

    assert reasons(project) == {
        first: "shutdown",
        second: "died",
        **dict.fromkeys(rest, "finished"),
    }, "\n".join(map(scrapyd.log, rest))
    assert attempts(project, second)["died"] == left
    assert manuals.pages(database, "shop") == manuals.pages(undisturbed[0].url, "shop")
    assert commits(project) == commits(undisturbed[0])
    assert set(commits(project).values()) == {1}


def test_jobs_obey_the_state_of_their_crawl(scrapyd, shop, gate, start, database):
    """Paused while it runs, a job ends; scheduled then it fetches nothing; resumed one does all."""
    project = Project(scrapyd.directory, database)
    name = steering.committed(database, steering.add, spider="shop")  # the site does not count
    gate.close("one")
    first = start("one", ITEMGRAPH_DATABASE_URL=database)
    assert gate.until_waiting("one"), scrapyd.log(first)

    steering.committed(database, steering.change, name, "pause")
    scrapyd.until(lambda: "was paused by anna@desk" in scrapyd.log(first), first)
    gate.open("one")
    second = start("two", ITEMGRAPH_DATABASE_URL=database)
    scrapyd.until_finished(first, second)

    assert reasons(project) == dict.fromkeys([first, second], "paused")
    assert attempts(project, second).total() == claimed(project, first) == 0

    steering.committed(database, steering.change, name, "resume")
    third = start("three", ITEMGRAPH_DATABASE_URL=database)
    scrapyd.until_finished(third)

    jobs = project.rows("SELECT scrapyd_job, origin, state, reason FROM jobs ORDER BY id")
    assert jobs == [
        (first, "scrapyd", "cancelled", "paused"),
        (second, "scrapyd", "cancelled", "paused"),
        (third, "scrapyd", "completed", "finished"),
    ]
    assert project.rows(f"SELECT state FROM crawls WHERE name = '{name}'") == [("finished",)]


@pytest.mark.slow
def test_jobs_without_a_server_of_their_own_share_the_embedded_one(
    scrapyd, gate, start, undisturbed
):
    """It stands under Scrapyd's working directory, as the log says, and two jobs at once use it."""
    gate.close("one", "two")
    jobs = start("one"), start("two")
    assert gate.until_waiting("one", "two"), "\n".join(map(scrapyd.log, jobs))
    gate.open("one", "two")
    scrapyd.until_finished(*jobs)

    data_dir = scrapyd.directory / ".scrapy" / "itemgraph"
    assert any(f"in {data_dir}" in scrapyd.log(job) for job in jobs)
    with embedded(data_dir) as url:
        assert reasons(Project(scrapyd.directory, url)) == dict.fromkeys(jobs, "finished")
        assert manuals.pages(url, "shop") == manuals.pages(undisturbed[0].url, "shop")


@contextmanager
def embedded(data_dir) -> Iterator[str]:
    """Yield the URL of an embedded server."""
    server = EmbeddedServer.start(data_dir)
    try:
        yield server.url
    finally:
        server.close()
