"""Pages of a plain spider that are set aside while its crawl waits, and freed little by little."""

from __future__ import annotations

import pytest
from support import sites

pytestmark = pytest.mark.tracebacks("HttpError: Ignoring non-200 response")

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]
    custom_settings = {"RETRY_TIMES": 0}

    def parse(self, response):
        yield from response.follow_all(css="a")
"""
WANTED = ["/fine", "/later/1", "/later/2", "/flaky"]
JUNK = [f"/junk/{number}" for number in range(8)]


class Trap(sites.Site):
    """A site with a page that fails twice, and others that nobody wants."""

    def respond(self, _method, target, _headers, _body):
        """Answer with links to all pages from the first."""
        self.hits[target] += 1
        status = 500 if target == "/flaky" and self.hits[target] <= 3 else 200
        paths = [*WANTED, *JUNK] if target == "/" else []
        links = "".join(f'<a href="{path}">.</a>' for path in paths)
        return status, {"Content-Type": "text/html"}, links.encode()


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return the site."""
    return Trap


def test_pages_that_are_set_aside_are_not_fetched_before_they_are_free(project, site):
    """MNB-7: neither now nor by a new run; the stash comes in order, attempts as often as said."""
    project.write(SPIDER)
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1", "-s", "CONCURRENT_REQUESTS=1")
    hits = dict(site.hits)

    def pages(*words):
        return project.scrapy("itemgraph", *words).output

    skipped = pages("pages", "skip", "--url-part", "/junk/")
    stashed = pages("pages", "stash", site.url + "/later/1", site.url + "/later/2")
    first = project.crawl()
    explained = pages("explain", site.url + "/later/1")
    listed = pages("pages", "list", "--stashed")
    status = pages("status")
    refused = project.scrapy("itemgraph", "pages", "tries", site.url + "/later/1")
    new_run = project.crawl()
    before = {path: site.hits[path] for path in [*WANTED, *JUNK]}
    given = pages("pages", "tries", site.url + "/flaky", "2")
    fed = pages("crawls", "dripfeed", "s", "1")
    last = project.crawl("-s", "ITEMGRAPH_DEFAULT_TTL=never", "-s", "LOG_LEVEL=INFO")

    assert sum(hits.values()) <= 2
    assert "8 pages are skipped now" in skipped
    assert "2 pages are stashed now" in stashed
    assert "8 skipped (scrapy itemgraph pages list --skipped)" in first.log
    assert "2 stashed (scrapy itemgraph pages list --stashed)" in first.log
    assert "it is stashed: set aside; scrapy itemgraph pages unstash" in explained
    assert site.url + "/later/2" in listed
    assert {"SKIPPED", "STASHED"} <= set(status.split())
    assert refused.code == 1
    assert f"nothing of {site.url}/later/1 is outstanding" in refused.log
    assert new_run.stats["reason"] == "finished"
    assert before == {"/fine": 2, "/flaky": 2, **dict.fromkeys(["/later/1", "/later/2", *JUNK], 0)}
    assert "callback:" not in given
    assert "parse: 2 attempts from now on" in given
    assert "keeps 1 page of its stash in work" in fed
    assert last.stats["reason"] == "finished", last.log
    assert (site.hits["/later/1"], site.hits["/later/2"], site.hits["/flaky"]) == (1, 1, 4)
    assert all(site.hits[path] == 0 for path in JUNK)
    assert project.request_outcomes()["/flaky"][-2:] == ["retry", "ok"]
