"""A database that is silent or locked: the crawl waits, and makes no failures that are none."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support.projects import Project, until
from support.proxies import Proxy, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

# What waits in SQLAlchemy's pool would be an error after half a second, and we ask what the server
# does after two, so that the tests need not take a minute each.
SPIDER = """
from scrapy_itemgraph.connections import awaited_answers
from sqlalchemy.pool import QueuePool

QueuePool.__init__.__defaults__ = (5, 10, 0.5, False)
awaited_answers.LOOK_AFTER, awaited_answers.LOOK_EVERY = 2, 0.5


class S(scrapy.Spider):
    name = "s"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 16}

    def seeds(self):
        for number in range(40):
            yield seed(f"PAGE:{number}", f"/slow/0.3/{number}")

    @task(tags=["page"])
    async def parse_page(self, response, item):
        for number in range(4):
            await item.get_item(f"PAGE:{number}")
        yield {"url": response.url}

    async def start(self):
        for number in range(40):
            yield scrapy.Request(f"{SITE}/redirect?to=/page/plain/{number}")

    def parse(self, response):
        yield {"url": response.url}
"""
PLAIN = {f"/redirect?to=/page/plain/{number}" for number in range(40)}
ITEMS = {f"PAGE:{number}" for number in range(40)}


@pytest.fixture
def network(engine) -> Iterator[tuple[Proxy, str]]:
    """Put a proxy before the test's own database."""
    with proxy(engine) as (one, url):
        yield one, url


@pytest.fixture
def silenced(network, tmp_path, site) -> Project:
    """Return a project that comes to its database through the proxy."""
    return Project(tmp_path, network[1], site.url).write(SPIDER)


def assert_all_is_done(project: Project) -> None:
    """Each page was done once."""
    assert project.errors() == []
    assert project.request_outcomes() == {path: ["ok"] for path in PLAIN}
    assert project.outcomes() == {name: ["ok"] for name in ITEMS}


def assert_all_is_done_in_the_end(project: Project) -> None:
    """Each page was done, and none ever failed."""
    assert project.errors() == []
    for outcomes, pages in ((project.request_outcomes(), PLAIN), (project.outcomes(), ITEMS)):
        assert outcomes.keys() == pages
        assert {tries[-1] for tries in outcomes.values()} == {"ok"}
        assert "failed" not in str(outcomes)


def assert_nothing_happened(project: Project, site) -> None:
    """Every page was done once, and there is no failure."""
    assert_all_is_done(project)
    assert {path for path, hits in site.hits.items() if hits > 1} <= {"/robots.txt"}


def test_a_silent_database_is_waited_for(silenced, network, site):
    """While no packets come callbacks, redirects, claims and commits wait, and nothing fails."""
    process = silenced.start("crawl", "s")
    until(lambda: site.hits["/slow/0.3/5"] > 0, silenced.log)

    network[0].freeze()
    silenced.wait_for("has not answered for")
    network[0].thaw()
    run = silenced.finish(process)

    assert run.code == 0, run.log
    assert run.stats["reason"] == "finished", run.log
    assert run.log.count("The crawl waits for it up to 15m (ITEMGRAPH_PATIENCE)") == 1
    assert_nothing_happened(silenced, site)


@contextmanager
def locked(engine: sa.Engine, table: str) -> Iterator[int]:
    """Hold a lock that nothing passes on a table; yield the server's process that has it."""
    with engine.connect() as connection, connection.begin():
        process = connection.scalar(sa.text("SELECT pg_backend_pid()"))
        connection.execute(sa.text(f"LOCK TABLE {table}"))
        yield process


def test_a_lock_on_a_table_is_waited_for(project, engine, site):
    """While somebody holds a lock the crawl says whose it is, and waits."""
    project.write(SPIDER)
    process = project.start("crawl", "s")
    until(lambda: site.hits["/slow/0.3/5"] > 0, project.log)

    with locked(engine, "items") as holder:
        project.wait_for(f"a lock on items that the server's process {holder} holds (")
    run = project.finish(process)

    assert run.code == 0, run.log
    assert run.stats["reason"] == "finished", run.log
    assert run.log.count("(ITEMGRAPH_PATIENCE), and then goes on") == 1
    assert_nothing_happened(project, site)


def test_a_connection_that_is_half_open_is_found(silenced, network, site):
    """What was asked on connections that nobody passes on any more is asked again on others."""
    last = 'f"/slow/0.3/{number}" if number < 39 else "/gate"'
    silenced.write(SPIDER.replace('f"/slow/0.3/{number}"', last))
    process = silenced.start("crawl", "s")
    until(lambda: site.hits["/slow/0.3/5"] > 0, silenced.log)

    network[0].forget()
    site.may_answer.set()
    run = silenced.finish(process)

    assert run.code == 0, run.log
    assert "was lost on the way to or from the database" in run.log
    assert silenced.claimed() == 0
    assert_all_is_done(silenced)


def test_a_database_that_stays_silent_ends_the_crawl(silenced, network, site):
    """After the patience the crawl ends for a reason of its own; its pages are no failures."""
    more = ("-s", "ITEMGRAPH_PATIENCE=4s", "-s", "ITEMGRAPH_LEASE=5")
    process = silenced.start("crawl", "s", *more)
    until(lambda: site.hits["/slow/0.3/5"] > 0, silenced.log)

    network[0].freeze()
    run = silenced.finish(process)
    network[0].thaw()

    assert run.code == 1
    assert run.stats["reason"] == "itemgraph_database_gone", run.log
    assert "has not answered for" in run.log
    run = silenced.crawl(*more)
    assert run.stats["reason"] == "finished", run.log
    assert_all_is_done_in_the_end(silenced)


def test_an_interrupt_ends_a_crawl_that_waits(silenced, network, site):
    """Ctrl-C ends a crawl soon, also while its callbacks wait for a silent database."""
    process = silenced.start("crawl", "s", "-s", "ITEMGRAPH_LEASE=5")
    until(lambda: site.hits["/slow/0.3/5"] > 0, silenced.log)
    network[0].freeze()
    silenced.wait_for("has not answered for")

    process.send_signal(signal.SIGINT)
    run = silenced.finish(process, seconds=45)
    network[0].thaw()

    assert run.stats["reason"] == "shutdown", run.log
    run = silenced.crawl("-s", "ITEMGRAPH_LEASE=5")
    assert run.stats["reason"] == "finished", run.log
    assert_all_is_done_in_the_end(silenced)


# Commands

IMPATIENT = """
from scrapy_itemgraph.connections import patience

patience.NOTE_AFTER, patience.GIVE_UP_AFTER = {note}, {end}
"""


@pytest.fixture
def commands(tmp_path):
    """Return what starts a command of a project, with times of its own in seconds."""

    def start(project: Project, *arguments: str, note: float = 1, end: float = 600):
        directory = tmp_path / "impatient"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(IMPATIENT.format(note=note, end=end))
        if not (project.directory / "proj").exists():
            project.write("")
        return project.start("itemgraph", *arguments, PYTHONPATH=str(directory))

    return start


def test_a_command_says_which_lock_it_waits_for_and_gives_up(project, commands, engine):
    """It names the holder once, ends with one clear line, and leaves nothing in the server."""
    with locked(engine, "crawls") as holder:
        run = project.finish(commands(project, "add", "A", "--crawl", "s", end=4))
        with engine.connect() as connection:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IS NOT NULL"
            until(lambda: connection.scalar(sa.text(waiting)) == 0)

    assert run.code == 1
    note, line = run.log.splitlines()
    what = f"a lock on crawls that the server's process {holder} holds (scrapy-itemgraph, user "
    assert what in note
    assert "waits up to 4s; Ctrl-C ends it" in note
    assert line.startswith("scrapy itemgraph: The PostgreSQL server at ")
    assert what in line


def test_a_command_goes_on_when_the_lock_is_free(project, commands, engine):
    """What it waited for comes; then it does what it was told."""
    with locked(engine, "crawls"):
        process = commands(project, "add", "A", "--crawl", "s")
        project.wait_for("Ctrl-C ends it")
    run = project.finish(process)

    assert run.code == 0, run.log
    assert project.rows("SELECT name FROM items") == [("A",)]


def test_a_command_gives_a_silent_server_up(silenced, network, commands):
    """A server that takes the connection and says nothing is named, and given up."""
    network[0].freeze()
    run = silenced.finish(commands(silenced, "status", end=4))

    assert run.code == 1
    note, line = run.log.splitlines()
    assert f"127.0.0.1:{network[0].port}" in note
    assert "has not answered for" in note
    assert line.startswith("scrapy itemgraph: The PostgreSQL server at ")
    assert "has not answered for" in line


@pytest.mark.parametrize("how", ["silent", "locked"])
def test_an_interrupt_ends_a_command_that_waits(silenced, network, commands, engine, how):
    """Ctrl-C ends a command at once, whatever it waits for."""
    with locked(engine, "crawls"):
        if how == "silent":
            network[0].freeze()
        process = commands(silenced, "add", "A", "--crawl", "s")
        silenced.wait_for("Ctrl-C ends it")
        process.send_signal(signal.SIGINT)
        run = silenced.finish(process, seconds=20)
        network[0].thaw()

    assert run.code == 130
    assert len(run.log.splitlines()) == 1


def test_what_the_server_works_on_is_never_given_up(project, commands, engine):
    """A command whose statement takes long is not one that waits."""
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM sum(n) FROM generate_series(1, 5000000) n; RETURN NEW; END'"
            )
        )
        connection.execute(
            sa.text(
                "CREATE TRIGGER slow BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION slowly()"
            )
        )

    run = project.finish(commands(project, "add", "A", "--crawl", "s", note=0.2, end=0.5))

    assert run.code == 0, run.log
    assert run.log == "scrapy itemgraph: made the crawl 's'\n"
