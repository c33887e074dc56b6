"""Links that are longer than URLLENGTH_LIMIT: `status` says how many a run has left out."""

from __future__ import annotations

import json

import pytest
from support.whole_sites import WholeSite

PLAIN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]

    def parse(self, response):
        for n in range(1, 4):
            yield response.follow(f"/page/{n}?{'x' * 2100}", self.parse_page)

    def parse_page(self, response): ...
"""


@pytest.fixture(scope="module")
def site_kind():
    """Have the tests crawl a website as archivists meet them."""
    return WholeSite


def status(project, crawl):
    """Return what `status` says of a crawl: its lines, and its run as JSON."""
    lines = project.scrapy("itemgraph", "status", "--crawl", crawl)
    found = project.scrapy("itemgraph", "status", "--crawl", crawl, "--json")
    assert lines.code == found.code == 0, lines.log
    return lines.output.splitlines(), json.loads(found.output)["run"]


def test_status_says_how_many_links_were_too_long(project):
    """Of a run that left some out, with the limit; a later run that leaves none has no line."""
    project.write(PLAIN)

    assert project.crawl().code == 0
    lines, run = status(project, "s")
    assert project.crawl("-s", "URLLENGTH_LIMIT=0").code == 0
    later, later_run = status(project, "s")

    (line,) = [line for line in lines if line.startswith("links ")]
    assert line.split(maxsplit=1)[1] == (
        "3 links longer than URLLENGTH_LIMIT (2,083) were left out"
    )
    assert (run["number"], run["long_links"], run["url_limit"]) == (1, 3, 2083)
    assert not [line for line in later if "URLLENGTH_LIMIT" in line]
    assert (later_run["number"], later_run["long_links"], later_run["url_limit"]) == (2, 0, None)


def test_links_of_whole_sites_are_counted_as_well(project, site):
    """The spider `site` leaves out what Scrapy does, and its run has Scrapy's number."""
    project.write("")
    limit = len(project.site_url) + 10

    run = project.scrapy(
        *("crawl", "site", "-a", f"url={project.site_url}/", "-s", f"URLLENGTH_LIMIT={limit}"),
        *("-s", "ITEMGRAPH_CRAWL=site"),
    )
    lines, found = status(project, "site")

    assert run.code == 0, run.log
    assert found["long_links"] == run.stats["urllength/request_ignored_count"] > 1
    assert any(f"longer than URLLENGTH_LIMIT ({limit})" in line for line in lines)
