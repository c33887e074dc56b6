"""Links that are longer than URLLENGTH_LIMIT: what Scrapy leaves out is counted for the run."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.exceptions import DatabaseUnavailableError

RUNS = "SELECT long_links, url_limit FROM runs"
LIMIT = 100
LONG = "x" * LIMIT


class Plain(Spider):
    """Long links of `start()`, of two pages, one of which fails, and of a request without work."""

    async def start(self):
        yield Request(f"{self.site}start/{LONG}")
        yield Request(f"{self.site}first")
        yield Request(f"{self.site}unstored", lambda response: self.links(response, 4))

    def parse(self, response):
        yield from self.links(response, 2)
        yield response.follow("/second", self.parse_second)

    def parse_second(self, response):
        yield from self.links(response, 1)
        raise ValueError("after its link")

    def links(self, response, number):
        for _ in range(number):
            yield response.follow(f"/{LONG}", self.parse)
            yield response.follow("/first", self.parse)


@deferred_f_from_coro_f
async def test_long_links_are_counted_for_the_run(crawl_of, site):
    """Those of `start()`, of callbacks, also failed ones, and of requests that are not stored."""
    crawl = await crawl_of(Plain, URLLENGTH_LIMIT=LIMIT).run(site.url)

    assert crawl.rows(RUNS) == [(8, LIMIT)]
    assert crawl.stat("urllength/request_ignored_count") == 8


class Twice(Spider):
    """A task that is given back once, behind its links, since it lacked the database."""

    is_first = True

    def seeds(self):
        yield CreateItem(id="A", tags=["page"], data={"url": f"{self.site}page"})

    @task(tags=["page"])
    def parse_page(self, response, item):
        for _ in range(3):
            yield response.follow(f"/{LONG}", self.parse_more)
        if self.is_first:
            self.is_first = False
            raise DatabaseUnavailableError("away")

    def parse_more(self, response, item): ...


@deferred_f_from_coro_f
async def test_links_of_work_that_is_given_back_count_once(crawl_of, site):
    """Scrapy's stat has them for each time, and the run for the one that was kept."""
    crawl = await crawl_of(Twice, URLLENGTH_LIMIT=LIMIT).run(site.url)

    assert crawl.outcomes() == {"A": ["released", "ok"]}
    assert crawl.rows(RUNS) == [(3, LIMIT)]
    assert crawl.stat("urllength/request_ignored_count") == 6


@deferred_f_from_coro_f
async def test_a_project_without_scrapys_middleware_leaves_nothing_out(crawl_of, site):
    """Where it is switched off long links are pages as others."""
    off = {"scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None}
    crawl = await crawl_of(Plain, URLLENGTH_LIMIT=LIMIT, SPIDER_MIDDLEWARES=off).run(site.url)

    assert crawl.rows(RUNS) == [(0, None)]
    assert f"/{LONG}" in crawl.downloaded
