"""Requests that cannot be stored, and operations in plain callbacks."""

from __future__ import annotations

import pytest
from support.projects import PATIENCE, kill, until
from support.scripted_sites import DROPS

from scrapy_itemgraph import DeleteItem
from scrapy_itemgraph.graph import ItemGraph

# What cannot be stored


@pytest.mark.crawls("""
import functools
import threading


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", lambda r: self.more(r, "lambda"))
        yield scrapy.Request(SITE + "/page/3", functools.partial(self.more, how="partial"))
        yield scrapy.Request(SITE + "/page/4", self.more, meta={"lock": threading.Lock()})

    def more(self, response, how="plain"):
        yield {"how": how}
        yield scrapy.Request(SITE + "/page/5?" + how, self.last)

    def last(self, response):
        pass
""")
def test_what_cannot_be_stored_is_carried_and_said_once(run, project, site):
    """A lambda and a value without stored form: downloaded, counted, one warning for the place."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 3
    assert run.stats["itemgraph/held"] == 3
    assert run.log.count("carried in memory") == 1
    assert project.request_outcomes() == {
        "/page/1": ["ok"],
        "/page/5?lambda": ["ok"],
        "/page/5?partial": ["ok"],
        "/page/5?plain": ["ok"],
    }
    assert set(site.hits.values()) == {1}


RENDERED = """
import scrapy


class Rendered(scrapy.Request):
    def __init__(self, wait_time, script, *, url, **kwargs):
        self.wait_time, self.script = wait_time, script
        super().__init__(url, **kwargs)
"""
RENDERS = """
from proj.rendered import Rendered


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        if response.url.endswith("1"):
            yield Rendered(0.5, "x()", url=SITE + "/page/2", callback=self.rendered)

    def rendered(self, response):
        if not os.path.exists("again"):
            open("again", "w").close()
            os._exit(9)
        yield {"wait": response.request.wait_time, "script": response.request.script}
"""


def test_requests_of_a_class_of_the_project_keep_what_they_have(project, site):
    """A class with a constructor and attributes of its own is stored, and fetched after a crash."""
    project.write(RENDERS, rendered=RENDERED)

    assert project.crawl().code == 9
    run = project.crawl("-o", "items.jl")

    assert run.stats["reason"] == "finished", run.log
    assert (project.directory / "items.jl").read_text() == '{"wait": 0.5, "script": "x()"}\n'


def test_a_stored_request_that_cannot_be_made_again_is_an_error(project, site):
    """Where its class is gone, the log says so at ERROR, and the request waits as a failure."""
    project.write(RENDERS, rendered=RENDERED)
    assert project.crawl().code == 9

    project.write(RENDERS, rendered="class Rendered: pass")
    project.crawl()

    (line,) = [line for line in project.log().splitlines() if " ERROR: [failed] " in line]
    assert "proj.rendered:Rendered" in line
    assert [url for url, _ in project.errors()] == [site.url + "/page/2"]


def test_a_carried_request_keeps_its_parent_open(project, site):
    """Kill -9 while it downloads: the parent runs again, and nothing is lost."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.last)
            yield scrapy.Request(SITE + "/gate/3", lambda r: self.more(r))

        def more(self, response):
            yield {"url": response.url}
            yield scrapy.Request(SITE + "/page/4", self.last)

        def last(self, response):
            pass
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    before = project.attempts()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert before == []
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1
    assert site.hits == {"/page/1": 2, "/gate/3": 2, "/page/2": 1, "/page/4": 1}
    assert {path: ends[-1] for path, ends in project.request_outcomes().items()} == {
        "/page/1": "ok",
        "/page/2": "ok",
        "/page/4": "ok",
    }


@pytest.mark.crawls(
    DROPS
    + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.second)

    def second(self, response):
        yield scrapy.Request(SITE + "/page/2", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/3", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/3", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/4", self.fourth)

    def fourth(self, response):
        yield scrapy.Request(SITE + "/page/3", self.last)
        yield scrapy.Request(SITE + "/page/5", self.last)

    def last(self, response):
        yield {"url": response.url}
"""
)
def test_carried_requests_are_filtered_as_others_are(run, site):
    """What is known in the database is not carried, and what was carried is known from then on."""
    assert run.stats["reason"] == "finished", run.log
    assert set(site.hits.values()) == {1}, site.hits
    assert len(site.hits) == 5
    assert run.stats["item_scraped_count"] == 2
    assert run.stats["dupefilter/filtered"] == 3
    assert run.log.count("DROPPED /page/2.") == 1


def test_a_carried_request_that_another_run_knows_is_not_downloaded(project, site):
    """The filter asks the database, not this process's memory."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.last if FIRST else lambda r: self.last(r))

        def last(self, response):
            yield {"url": response.url}
    """
    project.write(spider.replace("FIRST", "True"))
    project.crawl()

    project.write(spider.replace("FIRST", "False"))
    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 2, "/page/2": 1}


@pytest.mark.parametrize("dont_filter", [True, False])
@pytest.mark.crawls.with_args(
    lambda dont_filter: (
        f"DONT_FILTER = {dont_filter}\n"
        """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        one = lambda response: scrapy.Request(SITE + "/page/2", self.last)
        yield scrapy.Request(SITE + "/page/1", one, dont_filter=DONT_FILTER)
        yield scrapy.Request(SITE + "/page/3", self.last)

    def last(self, response):
        yield {"url": response.url}
"""
    )
)
def test_a_start_request_that_cannot_be_stored_is_carried(run, site, dont_filter):
    """A lambda in start() stops neither the rest of start() nor the requests of its callback."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["itemgraph/held"] == 1, run.log
    assert run.stats["item_scraped_count"] == 2
    assert site.hits == {"/page/1": 1, "/page/2": 1, "/page/3": 1}


@pytest.mark.crawls(
    """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        for n in range(5):
            yield scrapy.Request(f"{SITE}/page/held/{n}", lambda r: None)
        yield scrapy.Request(SITE + "/page/2", self.last)

    def last(self, response):
        pass
""",
    "ITEMGRAPH_HELD_REQUESTS = 2",
)
def test_too_many_carried_requests_are_a_failure_that_names_the_setting(run, project, site):
    """Above ITEMGRAPH_HELD_REQUESTS the execution fails, and says what to do."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["itemgraph/held"] == 2
    ((url, message),) = project.errors()
    assert url == site.url + "/page/1"
    assert "ITEMGRAPH_HELD_REQUESTS" in message
    assert site.hits["/page/2"] == 1


def test_requests_are_stored_as_they_were_when_yielded(project, site):
    """What changes a request's values after the yield does not show; order and bytes are kept."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            meta, given = {"list": [1], "z": 1, "a": 2}, {"z": [1], "a": 2}
            request = scrapy.Request(
                SITE + "/gate/2", self.more, method="POST", body=b"\\x00\\xff", meta=meta,
                headers={"X-One": "1"}, cb_kwargs={"given": given},
            )
            yield request
            meta["list"].append(2)
            given["z"].append(2)
            request.meta["late"] = True
            request.headers["X-Two"] = "2"
            yield {"mutated": True}

        def more(self, response, given):
            request = response.request
            kept = {name: request.meta[name] for name in request.meta if len(name) < 5}
            self.logger.info(f"GOT {kept} {given} {request.body!r} {b'X-Two' in request.headers}.")
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    kept, given = {"list": [1], "z": 1, "a": 2}, {"z": [1], "a": 2}
    assert f"GOT {kept} {given} {bytes([0, 255])!r} False." in run.log


# Operations in plain callbacks


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield SetTTL("1d")
        yield UpdateData({"title": "one"})
        yield scrapy.Request(SITE + "/page/2", self.more)

    def more(self, response):
        yield UpdateData({"title": "two"})
""")
def test_operations_of_a_plain_callback_mean_its_own_request(run, project):
    """SetTTL and UpdateData without id= are about the request's own item."""
    assert run.stats["reason"] == "finished", run.log
    found = project.rows(
        "SELECT i.data->>'title', extract(epoch FROM r.expires_at - r.completed_at)::int "
        "FROM results r JOIN items i ON i.id = r.item_id ORDER BY 1"
    )
    assert found == [("one", 86_400), ("two", None)]


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response, item=None):
        self.logger.info(f"FIRST GOT {item!r}.")
        yield scrapy.Request(SITE + "/page/2", self.more, cb_kwargs={"item": {"mine": 1}})

    def more(self, response, item):
        self.logger.info(f"THEN GOT {item!r}.")
""")
def test_a_callback_gets_its_own_argument_called_item(run):
    """In drop-in work `item` is what the user passed in cb_kwargs, and no item of the graph."""
    assert run.stats["reason"] == "finished", run.log
    assert "FIRST GOT None." in run.log
    assert "THEN GOT {'mine': 1}." in run.log


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield CreateItem(id="TAKEN")
        yield scrapy.Request(SITE + "/page/1")

    def parse(self, response):
        for n in range(2, 5):
            yield response.follow(f"/page/{n}", self.more)
        yield RenameItem(to="TAKEN")

    def more(self, response):
        pass
""")
def test_an_operation_that_cannot_be_leaves_the_pages_links_alone(run, project):
    """The page fails, and what it had found is fetched."""
    assert run.stats["reason"] == "finished", run.log
    outcomes = project.request_outcomes()
    assert outcomes.pop("/page/1") == ["failed"]
    assert outcomes == {f"/page/{n}": ["ok"] for n in range(2, 5)}


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield response.follow("/page/gone", self.gone)

    def gone(self, response):
        if not hasattr(self, "was_gone"):
            self.was_gone = True
            yield DeleteItem()
            yield response.follow("/page/2", self.again)

    def again(self, response):
        yield response.follow("/page/gone", self.gone)
""")
def test_a_page_that_was_deleted_may_be_found_again(run, site):
    """A name that DeleteItem freed is not taken for known by the process that freed it."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/gone"] == 2


def test_a_page_that_somebody_deleted_may_be_found_again(project, site):
    """A worker does not go by what it knew of a name before somebody else freed it."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield response.follow("/page/gone", self.leaf)
            yield response.follow("/page/stays", self.leaf)
            yield response.follow("/gate", self.late)

        def leaf(self, response):
            pass

        def late(self, response):
            yield response.follow("/page/2", self.again)

        def again(self, response):
            yield response.follow("/page/gone", self.leaf)
            yield response.follow("/page/stays", self.leaf)
    """)
    process = project.start("crawl", "s")
    pages = {"/page/gone", "/page/stays"}
    until(lambda: pages <= project.request_outcomes().keys(), project.log)
    assert site.arrived.wait(PATIENCE)
    with ItemGraph.open(project.url, "s") as graph:
        (gone,) = [one.id for one in graph.items() if one.data["url"].endswith("/page/gone")]
        graph.apply([DeleteItem(gone)])
    site.may_answer.set()

    run = project.finish(process)

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/gone"] == 2
    assert site.hits["/page/stays"] == 1


def test_a_filtered_start_request_takes_the_callback_that_it_has_by_now(project, site):
    """The next run asks the new callback, although the request was known by another one."""
    spider = """
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield scrapy.Request(SITE + "/page/1", self.CALLBACK)

        def old(self, response):
            self.logger.info("OLD")

        def new(self, response):
            self.logger.info("NEW")
    """
    project.write(spider.replace("CALLBACK", "old"))
    project.crawl()
    project.write(spider.replace("CALLBACK", "new"))

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert "INFO: NEW" in run.log
    assert site.hits["/page/1"] == 2
