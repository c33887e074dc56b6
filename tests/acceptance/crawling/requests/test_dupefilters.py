"""Duplicates filters of projects that override `request_seen`, as public ones do."""

from __future__ import annotations

import pytest

LINKS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]

    def parse(self, response):
        for link in ("/page/a", "/page/a", "/page/a?utm_source=x", "/page/A", "/page/known"):
            yield response.follow(link, self.leaf)
        yield response.follow("/page/free", self.leaf)
        yield response.follow("/page/free", self.leaf, dont_filter=True)

    def leaf(self, response):
        yield {"url": response.url}
        yield response.follow("/page/a?utm_medium=y", self.leaf)
"""
FILTERS = """
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter


class SeenUrls(RFPDupeFilter):
    seen = set()

    def request_seen(self, request):
        if request.url in self.seen:
            return True
        self.seen.add(request.url)


class WithoutTracking(RFPDupeFilter):
    def request_seen(self, request):
        url, _, query = request.url.partition("?")
        kept = "&".join(one for one in query.split("&") if not one.startswith("utm_"))
        return super().request_seen(request.replace(url=f"{url}?{kept}" if kept else url))


class ByPath(RFPDupeFilter):
    def request_seen(self, request):
        kept = vars(self).get("_fingerprints", vars(self).get("fingerprints"))
        name = request.url.partition("?")[0]
        if name in kept:
            return True
        kept.add(name)
        return False


class NotInArchive(RFPDupeFilter):
    def request_seen(self, request):
        return super().request_seen(request) or request.url.endswith("/known")


class Caseless(RFPDupeFilter):
    def request_fingerprint(self, request):
        return super().request_fingerprint(request.replace(url=request.url.lower()))

    def request_seen(self, request):
        if "utm_medium" in request.url:
            return True
        return super().request_seen(request)


class Everything(RFPDupeFilter):
    def request_seen(self, request):
        return False


class OwnBase(BaseDupeFilter):
    def __init__(self):
        self.seen = set()

    def request_seen(self, request):
        is_seen = request.url in self.seen
        self.seen.add(request.url)
        return is_seen or "utm_" in request.url
"""
# The pages that Scrapy fetches with each, and how many requests it filters.
BY_URL = {"a": 1, "a?utm_source=x": 1, "a?utm_medium=y": 1, "A": 1, "known": 1}
RECIPES = {
    "SeenUrls": (BY_URL, 7),
    "WithoutTracking": ({"a": 1, "A": 1, "known": 1}, 7),
    "ByPath": ({"a": 1, "A": 1, "known": 1}, 7),
    "NotInArchive": ({one: 1 for one in BY_URL if one != "known"}, 7),
    "Caseless": ({"a": 1, "a?utm_source=x": 1, "known": 1}, 7),
}


def of_filter(recipe: str) -> str:
    """Return the setting that names a filter."""
    return f'DUPEFILTER_CLASS = "proj.filters.{recipe}"'


def pages(site) -> dict[str, int]:
    """Return how often each page was fetched, but for those that are the same everywhere."""
    hits = {path.removeprefix("/page/"): count for path, count in site.hits.items()}
    assert hits.pop("start") == 1
    assert hits.pop("free") == 2  # once with dont_filter
    return hits


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.crawls(LINKS, of_filter, filters=FILTERS)
def test_a_filter_that_overrides_request_seen_is_asked(recipe, run, site):
    """As by Scrapy, which fetches the same pages, and counts and logs the others as duplicates."""
    wanted, filtered = RECIPES[recipe]

    assert run.stats["reason"] == "finished", run.log
    assert pages(site) == wanted
    assert run.stats["dupefilter/filtered"] == filtered
    assert "Filtered duplicate request" in run.log


@pytest.mark.parametrize("recipe", ["SeenUrls", "WithoutTracking"])
@pytest.mark.crawls(LINKS, of_filter, filters=FILTERS)
def test_a_second_run_fetches_all_pages_again(recipe, run, project, site):
    """What the filter knew in the first run has no say in the second one."""
    first = dict(site.hits)
    again = project.crawl()

    assert again.stats["dupefilter/filtered"] == run.stats["dupefilter/filtered"], again.log
    assert site.hits == {page: 2 * count for page, count in first.items()}


@pytest.mark.crawls(LINKS, of_filter("Everything"), filters=FILTERS)
def test_a_filter_that_lets_all_pass_is_told_how_pages_are_fetched_again(run, site):
    """Pages are fetched once by their fingerprint, and one warning says what to do instead."""
    assert pages(site) == BY_URL
    (warning,) = [line for line in run.log.splitlines() if "pass once more" in line]
    assert "dont_filter=True" in warning


@pytest.mark.crawls(LINKS, of_filter("OwnBase"), filters=FILTERS)
def test_a_filter_that_is_no_rfpdupefilter_is_not_asked(run, site):
    """It may remember pages whose crawl died; a warning says that it has no say."""
    assert pages(site) == BY_URL
    assert ".OwnBase is not asked" in run.log
