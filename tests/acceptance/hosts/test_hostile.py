"""What a hostile database or website sends ends no more than the claim that it concerns."""

from __future__ import annotations

import json
import signal

import pytest
import scrapy
import sqlalchemy as sa
from support.projects import until

from scrapy_itemgraph.postgres import engine as engines

pytestmark = pytest.mark.tracebacks("raise ValueError(NAME)", "ITEMGRAPH_MAX_OPERATIONS")

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/index"]

    def parse(self, response):
        for n in range(4):
            yield scrapy.Request(f"{SITE}/page/{n}", self.page)

    def page(self, response):
        yield {"path": response.url}
"""
TRAPS = """
import dataclasses

import scrapy


class Leaving(scrapy.Request):
    def __init__(self, *args, **kwargs):
        raise SystemExit("bye")


@dataclasses.dataclass(frozen=True)
class Interrupting:
    def __hash__(self):
        raise KeyboardInterrupt
"""
BAIT = """
import dataclasses
import pathlib

pathlib.Path("imported").touch()


@dataclasses.dataclass
class Card:
    pass
"""


def tamper(project, path, request):
    """Write something else where a stored request is."""
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE items SET data = jsonb_set(data::jsonb, '{request}', CAST(:new AS jsonb)) "
                "WHERE data->>'url' = :url"
            ),
            {"new": json.dumps(request), "url": project.site_url + path},
        )
    engine.dispose()


def test_a_row_that_would_run_code_is_the_failure_of_its_claim(project):
    """Rows that name a module, or whose classes raise SystemExit, fail alone; the crawl goes on."""
    project.write(SPIDER, 'ITEMGRAPH_ALLOWED_MODULES = ["proj.traps"]\n', traps=TRAPS, bait=BAIT)
    assert project.crawl().code == 0
    card = {"$": "dataclass", "c": "proj.bait:Card", "v": {}}
    trap = {"$": "dataclass", "c": "proj.traps:Interrupting", "v": {}}
    tamper(project, "/page/0", {"callback": "page", "meta": {"card": card}})
    tamper(project, "/page/1", {"callback": "page", "class": "proj.traps:Leaving"})
    tamper(project, "/page/2", {"callback": "page", "meta": {"x": {"$": "set", "v": [trap]}}})

    run = project.crawl("-s", 'ITEMGRAPH_CALLBACKS={"page": {"version": "2"}}')

    assert (run.code, run.stats["reason"]) == (0, "finished"), run.log
    assert {path: done[-1] for path, done in project.request_outcomes().items()} == {
        "/index": "ok",
        "/page/0": "failed",
        "/page/1": "failed",
        "/page/2": "failed",
        "/page/3": "ok",
    }
    messages = " ".join(message for _, message in project.errors())
    assert all(one in messages for one in ("proj.bait", "SystemExit: bye", "KeyboardInterrupt"))
    assert not (project.directory / "imported").exists()


FORGER = """
NAME = "A\\n2026-01-01 00:00:00 [scrapy] CRITICAL: forged\\x1b[2J\\x9b\\u202e"


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed(NAME)

    @task(tags=["page"], max_attempts=1)
    def parse(self, response, item):
        item.log("warn", NAME)
        yield AddTag(NAME)
        yield CreateItem(id=NAME + "2", data={"text": NAME})
        raise ValueError(NAME)
"""


def test_what_a_website_sends_forges_no_line(project):
    """Ids and errors with newlines and escapes stay in their line: in logs, tables and JSON."""
    run = project.write(FORGER).crawl()

    lines = run.log.split("\n")
    ours = [line for line in lines if "[scrapy_itemgraph" in line]
    assert sum("forged" in line for line in ours) >= 2, run.log
    assert all(line.isprintable() for line in ours)
    shown = (["failures"], ["failures", "1"], ["failures", "--json"], ["show", "--json", "A?"])
    for command in (*shown, ["worklist"]):
        name = project.rows("SELECT name FROM items")[0][0]
        ran = project.scrapy("itemgraph", *(one.replace("A?", name) for one in command))
        assert "forged" in ran.output or command in (["failures"], ["worklist"]), (command, ran)
        assert all(line.isprintable() for line in ran.output.split("\n")), command
    missing = project.scrapy("itemgraph", "show", name + "x")
    assert "forged" in missing.log
    assert all(line.isprintable() for line in missing.log.split("\n"))


WITH_LOOP = pytest.mark.skipif(
    scrapy.version_info < (2, 16), reason="older Scrapy takes a plain generator without a loop"
)

ENDLESS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for name in ("A", "B"):
            yield seed(name, "/page/" + name)

    def outputs(self, kind, item):
        if item.id == "B" and kind != "cap":
            return
        self.logger.info("it begins")
        while True:
            if kind == "nothing":
                yield None
            elif kind == "requests":
                yield scrapy.Request(SITE + "/never", dont_filter=True, callback=self.never)
            else:
                yield UpdateMetadata({"a": 1})
            if kind == "cap" and item.id == "B":
                return

    def never(self, response, item):
        pass

    @task(tags=["page"], max_attempts=1)
    def parse(self, response, item):
        yield from self.outputs(self.kind, item)
"""
ASYNC = """
    @task(tags=["page"], max_attempts=1)
    async def parse(self, response, item):
        for one in self.outputs(self.kind, item):
            yield one
"""


def endless(is_async):
    """Return the spider, with a callback of one kind or the other."""
    return ENDLESS if not is_async else ENDLESS.rpartition("    @task")[0] + ASYNC.lstrip("\n")


@pytest.mark.edge
@pytest.mark.parametrize(
    ("kind", "is_async"),
    [
        pytest.param("nothing", False, marks=WITH_LOOP),
        pytest.param("operations", False, marks=WITH_LOOP),
        pytest.param("requests", False, marks=WITH_LOOP),
        ("operations", True),
    ],
)
def test_a_callback_that_never_ends_is_given_back_at_sigint(project, kind, is_async):
    """While a callback goes on for ever others run; SIGINT ends the crawl and gives it back."""
    project.write(endless(is_async))
    process = project.start("crawl", "s", "-a", f"kind={kind}")
    project.wait_for("it begins")
    until(lambda: ("B", "parse", "ok", None) in project.attempts(), project.log)
    process.send_signal(signal.SIGINT)
    run = project.finish(process)

    assert run.code == 0, run.log
    assert run.stats["reason"] == "shutdown"
    assert run.stats["itemgraph/released"] == 1
    assert project.claimed() == 0
    assert project.outcomes() == {"B": ["ok"], "A": ["released"]}


@pytest.mark.edge
@pytest.mark.parametrize("is_async", [pytest.param(False, marks=WITH_LOOP), True])
def test_two_sigints_end_a_callback_that_never_ends(project, is_async):
    """As in stock Scrapy a second SIGINT ends the process at once."""
    project.write(endless(is_async))
    process = project.start("crawl", "s", "-a", "kind=operations")
    project.wait_for("it begins")
    process.send_signal(signal.SIGINT)
    project.wait_for("Received SIGINT, shutting down gracefully")
    process.send_signal(signal.SIGINT)
    run = project.finish(process)

    assert "Received SIGINT twice, forcing unclean shutdown" in run.log
    assert "Spider closed" not in run.log


@pytest.mark.edge
def test_an_execution_has_a_cap_on_operations(project):
    """One that yields more than ITEMGRAPH_MAX_OPERATIONS fails alone, by that name."""
    project.write(endless(is_async=False), "ITEMGRAPH_MAX_OPERATIONS = 5000\n")
    run = project.crawl("-a", "kind=cap")

    assert run.stats["reason"] == "finished"
    assert project.outcomes() == {"A": ["failed"], "B": ["ok"]}
    ((_, message),) = project.errors()
    assert "more than 5,000 operations" in message
    assert "ITEMGRAPH_MAX_OPERATIONS" in message


MANY = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/index"]
    count = 5000

    def parse(self, response):
        for n in range(self.count):
            yield scrapy.Request(f"{SITE}/page/{n}", self.page)
        for n in range(0, self.count, 2):
            yield scrapy.Request(f"{SITE}/page/{n}", self.page)

    def page(self, response):
        pass
"""


def test_a_page_of_many_links_is_one_transaction(project):
    """Thousands of links, committed in slices, are there at once, each once and in their order."""
    project.write(MANY)
    run = project.crawl("-s", "LOG_LEVEL=INFO", "-s", "CLOSESPIDER_PAGECOUNT=1")

    assert run.stats["itemgraph/op/enqueue_request"] == 5001
    assert run.stats["dupefilter/filtered"] == 2500
    found = project.rows(
        "SELECT data->>'url', i.xmin::text FROM items i JOIN work w ON w.item_id = i.id "
        "WHERE name LIKE 'REQ:%' ORDER BY i.id"
    )
    assert [url for url, _ in found] == [f"{project.site_url}/page/{n}" for n in range(5000)]
    assert len({transaction for _, transaction in found}) == 1
