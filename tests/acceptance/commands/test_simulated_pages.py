"""`scrapy itemgraph simulate SPIDER URL`: a plain callback, by the URL of its page."""

from __future__ import annotations

import json

import pytest

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/list")

    def parse(self, response):
        given = {"cb_kwargs": {"rank": 7}, "meta": {"of": "list"}}
        yield response.follow("/page/1", self.parse_item, **given)
        yield scrapy.Request(SITE + "/page/search", self.parse_found, method="POST", body=b"q=tea")
        yield response.follow("/page/1?from=" + response.url.rpartition("/")[2], self.parse_item,
            cb_kwargs={"rank": 1})

    def parse_item(self, response, rank):
        yield {"rank": rank, "of": response.meta.get("of"), "price": response.no_price}

    def parse_found(self, response):
        yield {"asked": response.request.body}
"""
RULES = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class S(CrawlSpider):
    name = "s"
    start_urls = [SITE + "/page/list"]
    rules = (
        Rule(LinkExtractor(allow="/page/class/"), callback="parse_class"),
        Rule(LinkExtractor(allow="/page/")),
    )

    def parse_class(self, response):
        yield {"class": response.url}

    def parse_other(self, response):
        yield {"other": response.url}
"""


def simulate(project, *arguments, code=0):
    """Simulate, and return the document."""
    run = project.scrapy("itemgraph", "simulate", "s", *arguments, "--json")
    assert run.code == code, run.log + run.output
    return json.loads(run.output)


def refused(project, *arguments):
    """Simulate what is refused, and return the line that says why."""
    run = project.scrapy("itemgraph", "simulate", "s", *arguments)
    assert (run.code, run.output) == (1, ""), run.log
    return run.log.splitlines()[-1]


def kept(project):
    """Return what no simulation may change."""
    tables = ("items", "results", "work", "failures", "attempts", "tasks")
    return [sorted(map(str, project.rows(f"SELECT * FROM {name}"))) for name in tables]


@pytest.mark.tracebacks("no_price")
def test_a_failed_page_is_simulated_by_its_url_until_its_parser_is_mended(project, site):
    """SRAP-36: what was stored is fetched as stored, what nobody has seen goes to `parse`.

    What it yields is new or known, by its URL, and nothing is changed.
    """
    project.write(SPIDER)
    assert project.crawl().code == 0
    before = kept(project)
    page = f"{site.url}/page/1"

    broken = simulate(project, page, code=1)
    project.write(SPIDER.replace("response.no_price", "2"))
    mended = simulate(project, page)
    posted = simulate(project, f"POST {site.url}/page/search")
    unseen = simulate(project, f"{site.url}/page/never")

    assert (broken["task"], broken["outcome"], broken["url"]) == ("parse_item", "failed", page)
    assert "no_price" in broken["error"]["message"]
    assert mended["scraped"] == ["{'rank': 7, 'of': 'list', 'price': 2}"]
    assert posted["requests"][0]["method"] == "POST"
    assert posted["scraped"] == ["{'asked': b'q=tea'}"]
    assert unseen["task"] == "parse"
    assert [(one["url"].removeprefix(site.url), one["is_new"]) for one in unseen["yielded"]] == [
        ("/page/1", False),
        ("/page/search", False),
        ("/page/1?from=never", True),
    ]
    assert kept(project) == before


@pytest.mark.tracebacks("no_price")
def test_a_page_goes_to_another_callback_and_what_is_none_is_said(project, site):
    """--callback and a saved page; bad names of callbacks, pages and options are refused."""
    project.write(SPIDER)
    page = project.directory / "saved.html"
    page.write_text("<h1>A</h1>")

    url = f"{site.url}/page/9"
    found = simulate(project, url, "--callback", "parse_found", "--response", str(page))

    assert (found["task"], found["requests"][0]["source"]) == ("parse_found", "saved")
    assert "did you mean 'parse_item'?" in refused(project, url, "--callback", "parse_itm")
    assert "http://" in refused(project, "quotes.example/1")
    assert not site.hits


def test_pages_of_rules_go_to_their_callbacks(project, site):
    """A page that nobody has seen goes to the rule that would follow it; others by --callback."""
    project.write(RULES)

    found = simulate(project, f"{site.url}/page/class/1")
    other = simulate(project, f"{site.url}/page/class/1", "--callback", "parse_other")
    followed = simulate(project, f"{site.url}/page/2")

    assert (found["task"], found["scraped"]) == (
        "parse_class",
        [f"{{'class': '{site.url}/page/class/1'}}"],
    )
    assert (other["task"], len(other["scraped"])) == ("parse_other", 1)
    assert (followed["task"], followed["outcome"]) == ("follow", "ok")
