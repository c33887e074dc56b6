"""Links that are taken next to their callback are what they would be after the whole way."""

from __future__ import annotations

from collections import Counter

import scrapy
from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer

ITEMS = """
    SELECT i.name, i.data::text, i.nice FROM items i JOIN crawls c ON c.id = i.crawl_id
    WHERE c.name = '{}' ORDER BY i.name
"""
STATS = (
    "dupefilter/filtered",
    "request_depth_max",
    "urllength/request_ignored_count",
    "offsite/filtered",
    "offsite/domains",
)
MOST_LINKS = 4


class Site(Spider):
    """A page, then one with links of many kinds, four of each kind, one of them known."""

    allowed_domains = ("127.0.0.1", "localhost")

    async def start(self):
        yield Request(self.site)

    def parse(self, response):
        yield response.follow("/links", self.parse_links)

    def parse_links(self, response):
        elsewhere = self.site.replace("127.0.0.1", "localhost")
        for number in range(MOST_LINKS):
            page = f"{number}.html"
            yield Request(f"{self.site}plain/{page}", self.parse_end)
            yield Request(f"{self.site}plain/{page}", self.parse_end)
            yield Request(f"{elsewhere}other/{page}", self.parse_end)
            yield Request(f"http://far.example/{page}", self.parse_end)
            yield Request(f"{self.site}errback/{page}", self.parse_end, errback=self.on_error)
            yield Request(f"{self.site}callback/{page}", self.parse_other_end)
            yield Request(f"{self.site}priority/{page}", self.parse_end, priority=number % 2)
            yield Request(f"{self.site}long/{'x' * 60 * number}{page}", self.parse_end)
            yield Request(f"{self.site}é/{page}", self.parse_end)
            yield Request(f"{self.site}query?b=2&a={number}#there", self.parse_end)
            for kind, given in enumerate(
                (
                    {"headers": {"X-Mark": "1"}},
                    {"meta": {"mark": 1}},
                    {"meta": {"mark": number}},
                    {"meta": {"referrer_policy": "no-referrer"}},
                    {"meta": {"verbatim_url": True}},
                    {"cookies": {"a": "b"}},
                    {"flags": ["flagged"]},
                    {"cb_kwargs": {"mark": number}},
                    {"method": "HEAD"},
                    {"dont_filter": True},
                )
            ):
                yield Request(f"{self.site}{kind}/{page}", self.parse_end, **given)

    def parse_end(self, response, mark=None): ...

    def parse_other_end(self, response): ...

    def on_error(self, failure): ...


class Bystander:
    """A spider middleware of a project, which does nothing but could see each link."""

    async def process_spider_output(self, response, result):
        async for output in result:
            yield output


@deferred_f_from_coro_f
async def test_links_taken_early_are_stored_as_those_that_go_the_whole_way(
    crawl_of, site, monkeypatch
):
    """The same names, data, referers, depths, priorities and counts, with and without a bystander.

    With one each link goes through all spider middlewares and the offsite filter.
    """
    taken = Counter()
    take_alike = Enqueuer.take_alike

    def counting(self, *given):
        taken[self.spider.crawler.settings["ITEMGRAPH_CRAWL"]] += 1
        take_alike(self, *given)

    monkeypatch.setattr(Enqueuer, "take_alike", counting)
    found = {}
    for name, middlewares in (("early", {}), ("whole", {Bystander: 10})):
        crawl = crawl_of(
            Site,
            ITEMGRAPH_CRAWL=name,
            SPIDER_MIDDLEWARES=middlewares,
            REFERRER_POLICY="same-origin",
            URLLENGTH_LIMIT=150,
            DEPTH_PRIORITY=1,
        ).without_drops()
        await crawl.run(site.url)
        found[name] = crawl.rows(ITEMS.format(name)), {stat: crawl.stat(stat) for stat in STATS}

    assert found["early"] == found["whole"]
    assert found["early"][1]["urllength/request_ignored_count"] == MOST_LINKS - 2
    if scrapy.version_info >= (2, 16):  # an older one takes a plain generator without a loop
        assert taken["early"] > 10 * (MOST_LINKS - 1)
    assert taken["whole"] == 0
