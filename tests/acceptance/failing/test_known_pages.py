"""Pages whose redirect leads to another page that the crawl has: done, told apart, brought back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support import sites

if TYPE_CHECKING:
    from email.message import Message

pytestmark = pytest.mark.tracebacks("ValueError: no article")

PAGES = 20
EXPIRED = range(9, PAGES + 1)  # the pages that lead to the login page: 12
SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]

    def parse(self, response):
        for number in range(1, 21):
            yield scrapy.Request(f"{SITE}/p/{number}", self.article, priority=-number)

    def article(self, response):
        if "article" in response.text:
            yield {"url": response.url}
        elif self.settings["STRICT"]:
            raise ValueError("no article")
"""


class Expiring(sites.Site):
    """A site whose session ends after eight pages: then each leads to the login page."""

    is_mended = False

    def respond(
        self, _method: str, target: str, _headers: Message, _body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        """Answer with an article, the way to the login page, or the login page."""
        self.hits[target] += 1
        html = {"Content-Type": "text/html"}
        number = target.removeprefix("/p/")
        if not number.isdigit():
            return 200, html, b"<form>who are you?</form>"
        if int(number) in EXPIRED and not self.is_mended:
            return 302, {"Location": "/login"}, b""
        return 200, html, b"<p>article</p>"


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return a site whose session ends."""
    return Expiring


def scraped(project, name: str) -> set[str]:
    """Return the paths of the articles in a feed."""
    lines = (project.directory / name).read_text().splitlines()
    return {json.loads(line)["url"].removeprefix(project.site_url) for line in lines}


def test_weibo_search_324_what_led_to_the_login_page_is_told_and_brought_back(project, site):
    """All 12 pages come back, the one that took the login page's name among them, and no other."""
    project.write(SPIDER)

    first = project.crawl("-O", "first.jsonl")
    told = project.scrapy("itemgraph", "status")
    document = json.loads(project.scrapy("itemgraph", "status", "--json").output)
    explained = project.scrapy("itemgraph", "explain", site.url + "/p/20")
    outcomes = project.request_outcomes()
    site.is_mended = True
    before = site.hits.copy()
    handled = project.scrapy("itemgraph", "handle", "--led-to", site.url + "/login")
    second = project.crawl("-O", "second.jsonl", "-s", "ITEMGRAPH_DEFAULT_TTL=never")
    after = project.scrapy("itemgraph", "status")

    assert len(scraped(project, "first.jsonl")) == PAGES - len(EXPIRED), first.log
    known = {path for path, how in outcomes.items() if how == ["known"]}
    assert len(known) == len(EXPIRED) - 1
    assert first.stats["itemgraph/known"] == len(known)
    assert first.log.count("handle --led-to") == 1
    assert f"More than 10 pages of 127.0.0.1 led to {site.url}/login" in first.log
    assert "21 of 21 in this run (100%), 11 of them led to a known page" in " ".join(
        told.output.split()
    )
    assert document["progress"]["led_to_known"] == len(known)
    assert f"its redirect led to {site.url}/login" in " ".join(explained.output.split())
    assert handled.output.startswith("12 pages led there; they are fetched again"), handled.log
    fetched = {path for path in site.hits if site.hits[path] > before[path]}
    assert fetched == {"/", *(f"/p/{number}" for number in EXPIRED)}, second.log
    assert scraped(project, "second.jsonl") == {f"/p/{number}" for number in EXPIRED}
    assert "led to a known page" not in after.output


def test_handling_the_failure_of_a_page_brings_back_what_led_to_it(project, site):
    """The login page breaks the callback of the first page; with its failure all 12 come back."""
    project.write(SPIDER, "STRICT = True\n")

    project.crawl()
    failed = project.errors()
    site.is_mended = True
    handled = project.scrapy("itemgraph", "handle", "--all")
    project.crawl("-O", "second.jsonl", "-s", "ITEMGRAPH_DEFAULT_TTL=never")

    assert [message for _, message in failed] == ["no article"]
    assert handled.output.startswith("12 handled; they may run again"), handled.log
    assert scraped(project, "second.jsonl") == {f"/p/{number}" for number in EXPIRED}


def test_what_still_leads_to_the_login_page_can_be_brought_back_again(project, site):
    """Pages that were brought back too soon are known again, with a time to live as well."""
    project.write(SPIDER, 'ITEMGRAPH_DEFAULT_TTL = "never"\n')

    project.crawl()
    handle = ("itemgraph", "handle", "--led-to", site.url + "/login")
    counts = [project.scrapy(*handle).output.split()[0]]
    project.crawl()
    counts.append(project.scrapy(*handle).output.split()[0])
    refused = project.scrapy(*handle, "--all")
    unknown = project.scrapy("itemgraph", "handle", "--led-to", site.url + "/nowhere")

    assert counts == ["12", "12"]
    assert refused.code == 2
    assert "--led-to goes alone" in refused.log
    assert unknown.code == 1
