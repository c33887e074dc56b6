"""An errback is told of a failure; that it returns does not undo it."""

from __future__ import annotations

import socket

import pytest
from support import sites

from scrapy_itemgraph.graph import ItemGraph

pytestmark = pytest.mark.tracebacks(
    "KeyError: 'in the errback'",
    "HttpError: Ignoring non-200 response",
)

RULES = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class S(CrawlSpider):
    name = "s"
    start_urls = [SITE + "/"]
    rules = [Rule(LinkExtractor(), callback="parse_page")]

    def parse_page(self, response):
        yield {"url": response.url}
"""


class Broken(sites.Site):
    """A site whose pages answer 404, 500, nothing, and all is well once it is mended."""

    elsewhere = ""
    is_mended = False

    def respond(self, _method, target, _headers, _body):
        """Answer with a page, an error, or by hanging up."""
        self.hits[target] += 1
        headers = {"Content-Type": "text/html"}
        if target == "/":
            paths = ["/fine", "/missing", "/broken", "/silent", self.elsewhere]
            return 200, headers, "".join(f'<a href="{path}">.</a>' for path in paths).encode()
        if not self.is_mended:
            if target == "/silent":
                return None
            if target in {"/missing", "/broken"}:
                return {"/missing": 404, "/broken": 500}[target], headers, b"no"
        return 200, headers, b"<p>fine</p>"


def test_pages_of_a_crawl_spider_that_fail_are_open_failures_until_they_are_fetched(project):
    """404, 500, a hang-up and a refusal are failures; `handle --all` and a second run mend them."""
    with socket.socket() as nobody, sites.site(Broken) as site:
        nobody.bind(("127.0.0.1", 0))
        site.elsewhere = f"http://127.0.0.1:{nobody.getsockname()[1]}/refused"
        failing = {site.url + path for path in ("/missing", "/broken", "/silent")}
        failing.add(site.elsewhere)
        project.site_url = site.url
        project.write(RULES, 'ITEMGRAPH_DEFAULT_TTL = "never"\n')

        first = project.crawl("-O", "first.jsonl")
        nobody.close()
        open_failures = {url for url, _ in project.errors()}
        kinds = {error for _, _, _, error in project.attempts()}
        handled = project.scrapy("itemgraph", "handle", "--all")
        site.is_mended = True
        before = site.hits.copy()
        port = int(site.elsewhere.split(":")[2].partition("/")[0])
        with sites.site(Broken, port):
            second = project.crawl("-o", "second.jsonl")

    assert open_failures == failing, first.log
    assert kinds >= {"http 404", "http 500", None}
    assert "left: 4 held by a failure" in first.log
    assert handled.code == 0, handled.log
    assert "4 handled" in handled.output
    assert project.errors() == []
    scraped = (project.directory / "second.jsonl").read_text()
    assert all(url in scraped for url in failing), second.log
    assert site.hits["/fine"] == before["/fine"] == 1
    assert "left: nothing" in second.log


SPIDER = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/1")

    def parse(self, response):
        yield response.follow("/status/404?told", self.page, errback=self.told)
        yield response.follow("/status/404?later", self.page, errback=self.later)
        yield response.follow("/status/404?mended", self.page, errback=self.mends)
        yield response.follow("/status/404?returned", self.page, errback=self.returns)
        yield response.follow("/status/404?closed", self.page, errback=self.raises)
        yield response.follow("/page/ignored", self.page, errback=self.told)
        yield response.follow("/page/parent", self.parent)

    def parent(self, response):
        yield {"before": "held"}
        yield response.follow("/status/404?held", self.page, errback=lambda failure: None)

    def page(self, response):
        yield {"page": response.url}

    def told(self, failure):
        name = failure.request.url.rpartition("/")[2].replace("?", "-")
        yield UpdateData({"told": name})
        yield {"told": name}
        yield scrapy.Request(f"{SITE}/page/from-{name}", self.page)

    async def later(self, failure):
        return [scrapy.Request(SITE + "/page/later", self.page)]

    def mends(self, failure):
        yield {"mended": True}

    def returns(self, failure):
        return failure

    def raises(self, failure):
        yield {"raises": True}
        raise KeyError("in the errback")
"""
IGNORE = """
from scrapy.exceptions import IgnoreRequest


class Ignore:
    def process_request(self, request):
        if request.url.endswith("/page/ignored"):
            raise IgnoreRequest("not this one")
"""


def test_what_an_errback_yields_commits_with_the_failure_it_was_told_of(project):
    """Whatever the errback does, the page has failed, unless the settings say that it recovers."""
    project.write(
        SPIDER,
        """
        DOWNLOADER_MIDDLEWARES = {"proj.ignore.Ignore": 100}
        ITEMGRAPH_CALLBACKS = {"mends": {"recovers": True}, "returns": {"recovers": True}}
        ITEMGRAPH_KEEP_ITEMS = True
        """,
        ignore=IGNORE,
    )

    run = project.crawl()

    assert project.request_outcomes() == {
        "/page/1": ["ok"],
        "/status/404?told": ["failed"],
        "/status/404?later": ["failed"],
        "/status/404?mended": ["ok"],
        "/status/404?returned": ["failed"],
        "/status/404?closed": ["failed"],
        "/page/ignored": ["refused"],
        "/page/parent": ["failed"],
        "/page/from-404-told": ["ok"],
        "/page/from-ignored": ["ok"],
        "/page/later": ["ok"],
    }, run.log
    told = {data["told"] for data in project.data().values() if "told" in data}
    assert told == {"404-told", "ignored"}
    with ItemGraph.open(project.url, "s") as graph:
        fields = [kept.fields for kept in graph.journal.read()]
    assert {"told": "404-told"} in fields
    assert {"told": "ignored"} in fields
    assert {"mended": True} in fields
    errors = {kind for _, _, _, kind in project.attempts()}
    assert "KeyError" in errors, "an errback's own error is what is recorded"
    held = project.rows("SELECT count(*) FROM results WHERE is_held")
    assert held == [(6,)]


def test_a_rules_errback_may_say_that_it_recovers(project):
    """In a CrawlSpider the rule's errback is named, not Scrapy's own around it."""
    with sites.site(Broken) as site:
        site.elsewhere = "/fine"
        project.site_url = site.url
        project.write(
            RULES.replace('callback="parse_page"', 'callback="parse_page", errback="mends"')
            + "\n    def mends(self, failure):\n        yield {'mended': failure.request.url}\n",
            'ITEMGRAPH_CALLBACKS = {"mends": {"recovers": True}}',
        )

        run = project.crawl()

    assert project.errors() == [], run.log
    assert set(map(tuple, project.request_outcomes().values())) == {("ok",)}
