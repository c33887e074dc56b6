"""The scheduler under Scrapy's engine: what the engine gets, when, and what becomes work."""

from __future__ import annotations

import asyncio

import pytest
import scrapy
from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import PATIENCE, Spider, until

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.worker.executions.execution import current_leg

HANDED = "SELECT i.name FROM handed h CROSS JOIN unnest(h.items) t JOIN items i ON i.id = t"


class Pages(Spider):
    """Four pages of a task, each with two parts of its own."""

    def seeds(self):
        for name in "ABCD":
            yield CreateItem(name, tags=["page"], data={"url": f"{self.site}{name}"})

    @task(tags=["page"])
    def parse(self, response, item):
        for number in (1, 2):
            yield Request(f"{response.url}/{number}", self.parse_part)

    def parse_part(self, response, item): ...


@pytest.mark.skipif(
    scrapy.version_info < (2, 18),
    reason="older Scrapy lets 100 ms pass before it calls a callback, and fetches on meanwhile",
)
@deferred_f_from_coro_f
async def test_what_an_execution_goes_on_with_goes_before_other_work(crawl_of, site):
    """The parts of the first page do not wait for the pages that were claimed with it."""
    crawl = await crawl_of(Pages, CONCURRENT_REQUESTS=1).run(site.url)

    assert len(crawl.downloaded) == 12
    assert crawl.downloaded[0] == "/A"
    assert crawl.downloaded.index("/A/2") < crawl.downloaded.index("/D")
    assert crawl.outcomes() == {name: ["ok"] for name in "ABCD"}


@deferred_f_from_coro_f
async def test_the_engine_gets_nothing_that_the_database_was_not_told_of(crawl_of, site):
    """When a page's request reaches the downloader its item stands in `handed`."""
    crawl = crawl_of(Pages, CONCURRENT_REQUESTS=1)
    told = []
    crawl.on_download = lambda path: told.append((path[1], *crawl.rows(HANDED)))

    await crawl.run(site.url)

    assert len(told) == 12
    assert all((name,) in names for name, *names in told)


class Linked(Spider):
    """A start page with three links, two of which are the same."""

    async def start(self):
        yield Request(self.site + "start")

    async def parse(self, response):
        for path in ("one", "two", "one"):
            yield Request(self.site + path, self.parse_link)
        leg = current_leg.get()
        await until(lambda: len(leg.execution.operations) == 2)
        self.yielded = [type(one) for one in leg.execution.operations]
        self.stored = self.count()

    def parse_link(self, response): ...


@deferred_f_from_coro_f
async def test_a_request_becomes_an_operation_of_its_parent_and_a_duplicate_does_not(
    crawl_of, site
):
    """Both are stored by the parent's commit, and not before; the duplicate is dropped at once."""
    crawl = crawl_of(Linked)
    requests = "SELECT count(*) FROM items WHERE name LIKE 'REQ:%'"
    Linked.count = staticmethod(lambda: crawl.rows(requests)[0][0])

    await crawl.run(site.url)

    assert crawl.spider.yielded == [EnqueueRequest] * 2
    assert crawl.spider.stored < crawl.spider.count()
    assert crawl.dropped == ["/one"]
    assert sorted(crawl.downloaded) == ["/one", "/start", "/two"]
    assert crawl.stat("scheduler/enqueued") == crawl.stat("scheduler/dequeued") == 3


@deferred_f_from_coro_f
async def test_a_crawl_that_is_stopped_gives_back_what_it_has_not_begun(crawl_of, site):
    """What is claimed and waits goes back to the worklist, and what runs is committed."""
    crawl = crawl_of(Pages, CONCURRENT_REQUESTS=1)
    reached = asyncio.Event()
    crawl.on_download = lambda _: reached.set()
    running = crawl.start(site.url)
    await asyncio.wait_for(reached.wait(), PATIENCE)

    await crawl.crawler.stop_async()
    await running

    claims = "SELECT i.name, w.token IS NULL FROM work w JOIN items i ON i.id = w.item_id"
    assert crawl.downloaded[0] == "/A"
    assert {("C", True), ("D", True)} <= set(crawl.rows(claims))
    assert not crawl.worker.parts.active.executions
