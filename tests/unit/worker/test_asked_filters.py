"""Duplicates filters that a project has made: what is kept of them, and which names they give."""

from __future__ import annotations

import asyncio

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from support.parts import Parts

from scrapy_itemgraph.worker.spider import request_ids

URL = "http://a.example/page"


class SeenUrls(RFPDupeFilter):
    """Remembers URLs in a set of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = set()
        self.asked = []

    def request_seen(self, request):
        self.asked.append(request.url)
        if request.url in self.seen:
            return True
        self.seen.add(request.url)
        return False


class WithoutQuery(RFPDupeFilter):
    """Knows requests by their URL without its query, in the set of its parent."""

    def request_seen(self, request):
        return super().request_seen(request.replace(url=request.url.partition("?")[0]))


def ids(kind: type[RFPDupeFilter]) -> request_ids.RequestIds:
    """Return what names requests by a filter of that kind."""
    crawler = Parts().crawler
    crawler.settings.set("DUPEFILTER_CLASS", kind)
    return request_ids.RequestIds(crawler)


def test_a_request_that_passed_passes_again():
    """Its execution may not have been committed; the database tells whether the page is known."""

    async def run():
        named = ids(SeenUrls)
        return [named.of_child(Request(URL), None) for _ in range(2)]

    first, second = asyncio.run(run())
    assert first == second
    assert not first.is_refused


def test_what_the_filter_has_seen_elsewhere_is_refused():
    """A filter with a list of its own refuses what is in there."""

    async def run():
        named = ids(SeenUrls)
        named.dupefilter.seen.add(URL)
        return named.of_child(Request(URL), None)

    assert asyncio.run(run()).is_refused


def test_a_request_with_dont_filter_is_not_asked_of():
    """As in Scrapy."""

    async def run():
        named = ids(SeenUrls)
        named.of_child(Request(URL, dont_filter=True), None)
        return named.dupefilter.asked

    assert asyncio.run(run()) == []


def test_what_a_filter_adds_to_its_parents_set_is_the_name():
    """Two processes know the page by one name, and neither filter's memory grows."""

    async def run():
        names = []
        for _ in range(2):
            named = ids(WithoutQuery)
            names += [named.of_child(Request(f"{URL}?{n}"), None).name for n in range(50)]
            kept = vars(named.dupefilter)
            assert len(kept.get("_fingerprints", kept.get("fingerprints"))) == 1
        return names, ids(RFPDupeFilter).of_child(Request(URL), None).name

    names, plain = asyncio.run(run())
    assert set(names) == {plain}


def test_a_redirect_goes_by_the_filters_name_and_is_not_refused():
    """Where a request is taken is known by what the filter calls it, also what it has seen."""

    async def run():
        named, seen = ids(WithoutQuery), ids(SeenUrls)
        seen.dupefilter.seen.add(URL)
        return named.of_target(Request(f"{URL}?moved")), seen.of_target(Request(URL))

    assert len(set(asyncio.run(run()))) == 1
