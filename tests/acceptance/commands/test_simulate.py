"""`scrapy itemgraph simulate`: one task of one item, whose changes are shown and not made."""

from __future__ import annotations

import json
import signal

import pytest

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawls

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def __init__(self, **arguments):
        super().__init__(**arguments)
        if hasattr(self, "break"):
            raise KeyError("no such shop")

    def seeds(self):
        yield CreateItem("SEED")

    async def start(self):
        yield CreateItem("STARTED")

    @task(tags=["page"], ttl="1d")
    def parse(self, response, item):
        item.log("info", "at the page")
        item.log("selectors", "h1")
        yield CreateItem("NEW", tags=["page"], data={"url": SITE + "/page/new"})
        yield DeleteItem("GONE")
        yield {"title": "a book"}
        yield response.follow("/page/more", self.parse_more)

    def parse_more(self, response, item):
        yield UpdateData({"price": 2, "title": "more"})
        yield UpdateMetadata({"pages": 2})
        yield RenameItem(to="SKU:1", if_taken="merge")

    @task(tags=["other"], depends_on=["parse"])
    def reviews(self, response, item): ...

    @task(tags=["gated"])
    def gated(self, response, item):
        yield UpdateData({"title": response.css("h1::text").get()})

    @task(tags=["broken"])
    def breaks(self, response, item):
        yield UpdateData({"kept": True})
        if item.data.get("allow"):
            yield AllowFailure()
        raise ValueError("no price")

    @task(tags=["endless"])
    def endless(self, response, item):
        while True:
            yield CreateItem(prefix="X:")

    @task(tags=["login"])
    def logs_in(self, response, item):
        raise SessionExpired("please log in")

    def login(self):
        yield scrapy.Request(SITE + "/login", self.logged_in)

    def logged_in(self, response): ...
"""
# What a visit may write: who visited, and how limits were used.
WRITTEN = {"processes", "workers", "limits", "holdings", "handed"}


def simulate(project, *arguments, code=0):
    """Simulate, and return the document."""
    run = project.scrapy("itemgraph", "simulate", "s", *arguments, "--json")
    assert run.code == code, run.log + run.output
    return json.loads(run.output)


def refused(project, *arguments):
    """Simulate what is refused, and return the line that says why."""
    run = project.scrapy("itemgraph", "simulate", *arguments)
    assert (run.code, run.output) == (1, ""), run.log
    return run.log.splitlines()[-1]


def rows(project):
    """Return all rows of all tables that a simulation must not change."""
    tables = project.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    )
    return {
        name: sorted(project.rows(f"SELECT CAST(x AS text) FROM {name} x"))
        for (name,) in tables
        if name not in WRITTEN
    }


def picture(change, when):
    """Return the id, the names and the data of one side of a change."""
    side = change[when]
    return side["id"], set(side["aliases"]), side["data"]


@pytest.mark.edge
def test_a_simulation_shows_what_the_crawl_then_does(project, site):
    """SRAP-36: data, metadata, names, merges, work, follow-ups and logs are shown, and not made."""
    project.write(SPIDER)
    for name, tag, data in (
        ("URL:1", "page", {"url": f"{site.url}/page", "price": 1, "old": "x"}),
        ("SKU:1", "other", {"url": f"{site.url}/page", "stock": 3}),
        ("GONE", "other", {"url": f"{site.url}/page"}),
    ):
        given = ("--crawl", "s", "--tag", tag, "--data", json.dumps(data))
        assert project.scrapy("itemgraph", "add", name, *given).code == 0
    before = rows(project)

    found = simulate(project, "parse", "URL:1")

    assert rows(project) == before
    assert found["outcome"] == "ok"
    assert [one["url"] for one in found["requests"]] == [
        f"{site.url}/page",
        f"{site.url}/page/more",
    ]
    changes = {(one["after"] or one["before"])["id"]: one for one in found["changes"]}
    assert {name: one["kind"] for name, one in changes.items()} == {
        "URL:1": "merged",
        "SKU:1": "changed",
        "NEW": "new",
        "GONE": "deleted",
    }
    assert changes["URL:1"]["into"] == "SKU:1"
    into = changes["SKU:1"]
    merged = {"url": f"{site.url}/page", "price": 2, "old": "x", "title": "more", "stock": 3}
    assert picture(into, "after") == ("SKU:1", {"URL:1"}, merged)
    assert into["after"]["results"]["parse"]["metadata"] == {"pages": 2}
    assert into["after"]["results"]["parse"]["state"] == "fresh"
    assert list(into["after"]["work"]) == ["reviews"]
    assert list(changes["NEW"]["after"]["work"]) == ["parse"]
    assert [(line["category"], line["message"]) for line in found["log"]] == [
        ("info", "at the page"),
        ("selectors", "h1"),
    ]
    assert found["scraped"] == ["{'title': 'a book'}"]

    project.crawl()

    assert project.data()["SKU:1"] == merged


@pytest.mark.tracebacks("ValueError: no price")
def test_a_simulation_of_what_goes_wrong(project, site):
    """What fails, never ends or asks for a login is shown with what of it would be kept."""
    project.write(SPIDER)
    made = ("--url", f"{site.url}/page")
    allowing = json.dumps({"url": made[1], "allow": 1})

    dropped = simulate(project, "breaks", "A", *made, code=1)
    kept = simulate(project, "breaks", "A", "--data", allowing, code=1)
    endless = simulate(project, "endless", "A", *made, "-s", "ITEMGRAPH_MAX_OPERATIONS=50", code=1)
    expired = simulate(project, "logs_in", "A", *made, code=1)

    assert dropped["error"]["message"] == "no price"
    assert dropped["dropped"] == [{"op": "updateData", "merge": {"kept": True}}]
    (change,) = dropped["changes"]
    assert change["before"]["data"] == change["after"]["data"]
    assert change["after"]["results"]["breaks"]["state"] == "held"
    assert (kept["outcome"], kept["dropped"]) == ("failed", [])
    assert kept["changes"][0]["after"]["data"]["kept"] is True
    assert "ITEMGRAPH_MAX_OPERATIONS" in endless["error"]["message"]
    assert endless["changes"][0]["kind"] == "changed"
    assert expired["outcome"] == "released"
    assert "log in" in expired["released_because"]
    assert "/login" not in site.hits
    assert project.rows("SELECT name FROM crawls") == []


def test_a_saved_page_is_not_downloaded(project, site):
    """--response has the task read a file; one of another site is said to be."""
    project.write(SPIDER, "ROBOTSTXT_OBEY = True")
    page = project.directory / "saved.html"
    page.write_text('<link rel="canonical" href="https://other.example/1"><h1>A</h1>')
    made = ("gated", "A", "--url", f"{site.url}/page")

    found = simulate(project, *made, "--response", str(page))
    missing = refused(project, "s", *made, "--response", "nowhere.html")

    own = found["requests"][0]
    assert (own["url"], own["source"]) == (f"{site.url}/page", "saved")
    assert site.hits["/page"] == 0
    assert found["changes"][0]["after"]["data"]["title"] == "A"
    assert any("other.example" in line for line in found["warnings"])
    assert "nowhere.html" in missing


def test_bad_input_is_said_in_a_line(project, site):
    """An unknown spider, task or item is told with the near miss, and nothing is requested."""
    project.write(SPIDER)
    project.scrapy("itemgraph", "add", "SHELF:1", "--crawl", "s", "--tag", "page")

    assert "did you mean 'parse'?" in refused(project, "s", "prase", "SHELF:1")
    assert "there is no spider 'z'; the project has s" in refused(project, "z", "parse", "A")
    assert "did you mean 'SHELF:1'?" in refused(project, "s", "parse", "SHELF:2")
    assert "exists" in refused(project, "s", "parse", "SHELF:1", "--data", "{}")
    assert "KeyError" in refused(project, "s", "parse", "SHELF:1", "-a", "break=1")
    assert "ADDONS" in refused(project, "s", "parse", "SHELF:1", "-s", "ITEMGRAPH_ENABLED=0")
    assert not site.hits


def test_a_simulation_disturbs_no_claim(project, site):
    """What another worker has claimed meanwhile is simulated too, and commits as ever."""
    project.write(SPIDER)
    page = project.directory / "saved.html"
    page.write_text("<h1>A</h1>")
    given = ("--crawl", "s", "--tag", "gated", "--url", f"{site.url}/gate")
    project.scrapy("itemgraph", "add", "A", *given)
    crawl = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()

    found = simulate(project, "gated", "A", "--response", str(page))

    assert (found["outcome"], site.hits["/gate"]) == ("ok", 1)
    site.may_answer.set()
    run = project.finish(crawl)
    assert project.outcomes()["A"] == ["ok"]
    assert "itemgraph/lease_lost" not in run.stats


def test_ctrl_c_ends_a_simulation(project, site):
    """One that waits for a page ends at Ctrl-C as other commands do, and changes nothing."""
    project.write(SPIDER)
    given = ("gated", "A", "--url", f"{site.url}/gate")
    process = project.start("itemgraph", "simulate", "s", *given)
    assert site.arrived.wait(120), project.log()

    process.send_signal(signal.SIGINT)
    site.may_answer.set()
    run = project.finish(process)

    assert (run.code, run.output) == (130, "")
    assert project.rows("SELECT name FROM crawls") == []


def test_a_simulation_keeps_to_limits(project, site):
    """A worker without claims has the slot for as long as it visits, and none that is blocked."""
    project.write(SPIDER)
    given = ("gated", "A", "--url", f"{site.url}/gate")
    process = project.start("itemgraph", "simulate", "s", *given)
    assert site.arrived.wait(120), project.log()

    held = project.rows(
        "SELECT l.name, (SELECT count(*) FROM work) FROM holdings h "
        "JOIN limits l ON l.id = h.limit_id JOIN processes p ON p.id = h.worker_id "
        "WHERE p.stopped_at IS NULL"
    )
    site.may_answer.set()
    run = project.finish(process)
    project.scrapy("itemgraph", "block", "127.0.0.1", "--for", "1h")
    blocked = simulate(project, *given, code=1)

    assert held == [("127.0.0.1", 0)]
    assert "gated of A: ok" in run.output
    assert blocked["outcome"] == "released"
    assert blocked["released_because"].startswith("blocked: 127.0.0.1")
    assert site.hits["/gate"] == 1


def test_a_simulation_waits_for_nobody_for_long(project, site):
    """Where others keep a lock for seconds, the simulation gives up and says so."""
    project.write(SPIDER)
    project.scrapy("itemgraph", "add", "A", "--crawl", "s", "--tag", "page")
    engine = engines.sync_engine(project.url)
    try:
        with engine.begin() as connection:
            crawls.own_crawl(connection, crawls.find_crawl(connection, "s"))
            said = refused(project, "s", "parse", "A")
    finally:
        engine.dispose()

    assert "others have kept what the simulation needs for 3000 ms" in said


def test_pages_come_from_the_http_cache(project, site):
    """With Scrapy's HTTP cache a page is visited once, however often it is simulated."""
    project.write(SPIDER, "HTTPCACHE_ENABLED = True")
    given = ("gated", "A", "--url", f"{site.url}/page")

    first, second = simulate(project, *given), simulate(project, *given)

    assert [one["requests"][0]["source"] for one in (first, second)] == ["website", "cached"]
    assert site.hits["/page"] == 1
