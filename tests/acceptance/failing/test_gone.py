"""Pages of which the website says that they are gone: held, and no failures."""

from __future__ import annotations

import pytest
from support import sites

pytestmark = pytest.mark.tracebacks("HttpError: Ignoring non-200 response", "KeyError: 'broken'")

ANSWERS = 'ITEMGRAPH_ANSWERS = {404: "gone", 410: "gone"}\n'
SPIDER = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class S(CrawlSpider):
    name = "s"
    start_urls = [SITE + "/"]
    rules = [Rule(LinkExtractor(), callback="parse_page")]
    handle_httpstatus_list = [403]

    def parse_page(self, response):
        yield {"url": response.url, "status": response.status}
        if response.url.endswith("/fine"):
            for path, errback in [("/told", "told"), ("/mended", "mends"), ("/broke", "breaks")]:
                yield response.follow(path, self.parse_own, errback=getattr(self, errback))
            yield response.follow("/own", self.parse_own)

    def parse_own(self, response):
        yield {"url": response.url}

    def told(self, failure):
        yield {"told": failure.value.response.status}

    def mends(self, failure):
        yield {"mended": failure.value.response.status}

    def breaks(self, failure):
        raise KeyError("broken")
"""
OPTIONS = """
ITEMGRAPH_CALLBACKS = {
    "mends": {"recovers": True},
}
"""
TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("GONE", "/gone")
        yield seed("PART", "/fine", tags=["whole"])
        yield seed("FOUND", "/missing", tags=["strict"])

    @task(tags=["page"])
    def parse_page(self, response, item):
        pass

    @task(tags=["whole"])
    def parse_whole(self, response, item):
        yield response.follow("/missing", self.parse_part)

    def parse_part(self, response, item):
        pass

    @task(tags=["strict"], answers={410: "gone"})
    def parse_strict(self, response, item):
        pass
"""


class Shrinking(sites.Site):
    """A site of which some pages are gone, until they are back."""

    are_back = False

    def respond(self, _method, target, _headers, _body):
        """Answer with a page, or with what a page is that is not there."""
        self.hits[target] += 1
        headers = {"Content-Type": "text/html"}
        if target == "/":
            paths = ["/fine", "/missing", "/gone", "/secret", "/down"]
            return 200, headers, "".join(f'<a href="{path}">.</a>' for path in paths).encode()
        missing = dict.fromkeys(("/missing", "/told", "/mended", "/broke", "/own"), 404)
        statuses = {**missing, "/gone": 410, "/secret": 403, "/down": 500}
        status = 200 if self.are_back else statuses.get(target, 200)
        return status, headers, b"<p>so it is</p>"


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return a site of which some pages are gone."""
    return Shrinking


@pytest.mark.crawls(TASKS, ANSWERS)
def test_a_tasks_own_page_may_be_gone(run, project):
    """Not that of a follow-up, whose failure it is; and what the task says itself wins."""
    expected = {"GONE": ["gone"], "PART": ["failed"], "FOUND": ["failed"]}
    assert project.outcomes() == expected, run.log
    assert run.stats["itemgraph/gone"] == 1
    assert run.stats["itemgraph/failed"] == 2


def test_pages_that_are_gone_are_no_failures_and_a_later_run_asks_them_again(project):
    """An errback is called and what it yields is kept; what the spider handles itself is as ever.

    They are counted and listed apart, explained, and fetched when a later run finds a link to them.
    """
    with sites.site(Shrinking) as site:
        project.site_url = site.url
        project.write(SPIDER, ANSWERS + OPTIONS)

        first = project.crawl("-O", "first.jsonl")
        outcomes = project.request_outcomes()
        failed = project.errors()
        listed = project.scrapy("itemgraph", "worklist", "--gone")
        explained = project.scrapy("itemgraph", "explain", site.url + "/gone")
        site.are_back = True
        second = project.crawl("-O", "second.jsonl")

    scraped = (project.directory / "first.jsonl").read_text()
    gone = {path for path, how in outcomes.items() if how == ["gone"]}
    assert gone == {"/missing", "/gone", "/told", "/own"}, first.log
    assert {url.removeprefix(site.url) for url, _ in failed} == {"/down", "/broke"}
    assert outcomes["/secret"] == outcomes["/mended"] == ["ok"]
    assert '{"told": 404}' in scraped
    assert '{"mended": 404}' in scraped
    assert '"status": 403' in scraped
    assert first.stats["itemgraph/gone"] == 4
    assert "4 gone, by the website's answer" in first.log
    assert all(path in listed.output for path in gone), listed.log
    assert "its page is gone; it is not asked again by itself" in " ".join(explained.output.split())
    again = (project.directory / "second.jsonl").read_text()
    assert all(path in again for path in gone), second.log
    assert "gone" not in second.log.rpartition("left: ")[2].partition("\n")[0]


def test_where_results_are_kept_a_later_run_asks_only_what_was_gone_again(project):
    """A link to a page that is done is known; to one that was gone it is followed, once a run."""
    with sites.site(Shrinking) as site:
        project.site_url = site.url
        project.write(SPIDER, ANSWERS + 'ITEMGRAPH_DEFAULT_TTL = "never"\n')
        project.crawl()
        before = site.hits.copy()

        second = project.crawl()
        asked = {path for path in site.hits if site.hits[path] > before[path]}
        site.are_back = True
        third = project.crawl()

    assert asked == {"/", "/missing", "/gone"}, second.log
    assert project.request_outcomes()["/gone"] == ["gone", "gone", "ok"], third.log
    assert site.hits["/fine"] == 1
