"""What attempts tell of their pages, where ITEMGRAPH_KEEP_PAGES says so."""

from __future__ import annotations

import gzip
import json

import pytest
from support import sites
from support.projects import kill

pytestmark = pytest.mark.tracebacks("HttpError: Ignoring non-200 response")

KEPT = "ITEMGRAPH_KEEP_PAGES = True\n"
PLAIN = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class S(CrawlSpider):
    name = "s"
    start_urls = [SITE + "/start"]
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True)]

    def parse_page(self, response):
        yield {"url": response.url}
"""
TASKS = """
class S(scrapy.Spider):
    name = "s"
    custom_settings = {"RETRY_TIMES": 1}

    def seeds(self):
        yield seed("LISTED", "/listed", tags=["list"])
        yield seed("NOTHING", "/nothing", tags=["idle"])
        yield seed("BUSY", "/busy", tags=["page"])

    @task(tags=["list"])
    def parse_list(self, response, item):
        for name in ("ONE", "TWO", "LISTED"):
            yield CreateItem(id=name, tags=["other"], data={"url": response.url})
        yield response.follow("/part", self.parse_part)

    def parse_part(self, response, item):
        pass

    @task(tags=["idle"], download=False)
    def parse_idle(self, response, item):
        pass

    @task(tags=["page"], max_attempts=2, backoff="1s")
    def parse_page(self, response, item):
        pass
"""
WAITING = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/moved/far"]

    def parse(self, response):
        pass
"""
BODY = b"<p>" + b"so it is " * 1000


class Odd(sites.Site):
    """A site with links, redirects, a page that is sent compressed, and one that is missing."""

    def respond(self, _method, target, headers, _body):
        """Answer by the path."""
        self.hits[target] += 1
        told = {"Content-Type": "text/html"}
        if target == "/start":
            paths = ["/moved", "/packed", "/missing", "/", "/packed"]
            return 200, told, "".join(f'<a href="{path}">.</a>' for path in paths).encode()
        moved = {"/moved": "/moved/on", "/moved/on": "/here", "/moved/far": "/gate"}
        if target in moved:
            return 302, {**told, "Location": moved[target]}, b"elsewhere"
        if target == "/gate":
            self.arrived.set()
            self.may_answer.wait(60)
            return 200, told, b""
        if target == "/packed":
            return 200, {**told, "Content-Encoding": "gzip"}, gzip.compress(BODY)
        if target == "/busy" and self.hits[target] == 1:
            return 503, told, b"not yet"
        return 404 if target == "/missing" else 200, told, b"<a href='/packed'>so it is</a>"


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return a site that answers in many ways."""
    return Odd


def told(project, page):
    """Return the attempts at a page, the first one first."""
    found = project.scrapy("itemgraph", "show", page, "--json")
    return json.loads(found.output)["attempts"][::-1]


@pytest.mark.crawls(PLAIN, KEPT)
def test_a_plain_page_tells_how_it_was_answered_and_of_its_links(run, project, site):
    """MNB-13: attempts of an unmodified spider tell status, URLs, sizes, seconds and links."""
    (first,) = told(project, site.url + "/start")
    (moved,) = told(project, site.url + "/moved")
    (packed,) = told(project, site.url + "/packed")
    (missing,) = told(project, site.url + "/missing")

    page = first["page"]
    assert (page["status"], page["url"]) == (200, site.url + "/start"), run.log
    assert page["received_bytes"] == page["body_bytes"] > 100
    assert (page["links"], page["new_links"], page["refused_links"]) == (4, 4, 0)
    page = moved["page"]
    assert (page["status"], page["url"]) == (200, site.url + "/here")
    assert page["redirects"] == [site.url + "/moved", site.url + "/moved/on"]
    assert 0 < page["seconds_to_first_byte"] <= page["seconds"] < 60
    assert (page["links"], page["new_links"]) == (1, 0)
    page = packed["page"]
    assert page["body_bytes"] == len(BODY) > page["received_bytes"] == len(gzip.compress(BODY))
    assert (missing["outcome"], missing["page"]["status"]) == ("failed", 404)
    assert packed["worker"] is not None
    (failure,) = json.loads(project.scrapy("itemgraph", "failures", "--json").output)
    assert failure["page"] == missing["page"]


@pytest.mark.crawls(TASKS, KEPT)
def test_a_tasks_attempts_tell_each_how_it_was_answered(run, project):
    """MNB-13: of a task's links those count that it created; what asks no website tells nothing."""
    (listed,) = told(project, "LISTED")
    (nothing,) = told(project, "NOTHING")
    busy, well = told(project, "BUSY")

    page = listed["page"]
    assert (page["status"], page["links"], page["new_links"]) == (200, 3, 2), run.log
    assert page["url"].endswith("/listed")
    assert nothing["page"] is None
    assert (busy["outcome"], busy["page"]["status"]) == ("retry", 503)
    assert (well["outcome"], well["page"]["status"]) == ("ok", 200)


@pytest.mark.crawls(PLAIN)
def test_nothing_is_told_where_nobody_asked_for_it(run, project, site):
    """MNB-13: without the setting no attempt tells of its page."""
    assert [one["page"] for one in told(project, site.url + "/moved")] == [None], run.log


def test_what_rules_refuse_and_what_the_cache_had_are_told(project, site):
    """MNB-13: links count that the attempt's own rules refused; a cached page took no download."""
    project.write(PLAIN, KEPT + "HTTPCACHE_ENABLED = True\nHTTPCACHE_DIR = 'cache'\n")
    project.crawl()
    project.scrapy("itemgraph", "rules", "add", "/packed", "--no-accept", "--crawl", "s")
    run = project.crawl()

    first, second = told(project, site.url + "/start")
    assert (first["ruleset"], first["page"]["refused_links"]) == (None, 0), run.log
    assert (second["ruleset"], second["page"]["refused_links"]) == (1, 1)
    assert (second["page"]["links"], second["page"]["new_links"]) == (4, 0)
    assert second["page"]["is_cached"]
    assert not {"received_bytes", "seconds", "seconds_to_first_byte"} & second["page"].keys()


def test_a_page_tells_of_redirects_that_a_killed_process_followed(project, site):
    """MNB-13: the attempt that died tells nothing; the next one goes on, and knows the way there.

    A page that sends nothing has a size of 0.
    """
    project.write(WAITING, KEPT)
    process = project.start("crawl", "s")
    assert site.arrived.wait(60), project.log()
    kill(process)
    site.may_answer.set()
    run = project.crawl()

    died, ended = told(project, site.url + "/moved/far")
    assert (died["outcome"], died["page"]) == ("died", None), run.log
    assert (ended["outcome"], ended["page"]["url"]) == ("ok", site.url + "/gate")
    assert ended["page"]["redirects"] == [site.url + "/moved/far"]
    assert (ended["page"]["received_bytes"], ended["page"]["body_bytes"]) == (0, 0)
