"""The spider middlewares under Scrapy's engine: what becomes of what callbacks yield."""

from __future__ import annotations

import asyncio

from scrapy import Request
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider, until

from scrapy_itemgraph import CreateItem, ItemGraph, UpdateData, task

DATA = "SELECT name, data->>'title' FROM items WHERE name = 'A'"


class Page(Spider):
    """One page of a task."""

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"url": self.site + "A"})


class Titled(Page):
    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"title": "a title"})
        yield {"name": "scraped"}


@deferred_f_from_coro_f
async def test_operations_are_taken_and_items_go_on(crawl_of, site):
    """What pipelines and exporters see is items alone; operations change the graph."""
    crawl = await crawl_of(Titled).run(site.url)

    assert crawl.scraped == [{"name": "scraped"}]
    assert crawl.rows(DATA) == [("A", "a title")]


class Held(Page):
    @task(tags=["page"])
    async def parse(self, response, item):
        yield {"name": "early"}
        yield Request(self.site + "part", self.parse_part)
        self.waits.set()
        await self.may_end.wait()

    def parse_part(self, response, item): ...


@deferred_f_from_coro_f
async def test_what_a_task_yields_goes_on_when_its_callback_has_ended(crawl_of, site):
    """Its items and requests are held back until it is known that it did not fail."""
    Held.may_end, Held.waits = asyncio.Event(), asyncio.Event()
    crawl = crawl_of(Held)
    running = crawl.start(site.url)
    await Held.waits.wait()
    await asyncio.sleep(0.05)
    before = list(crawl.scraped), list(crawl.downloaded)

    Held.may_end.set()
    await running

    assert before == ([], ["/A"])
    assert crawl.scraped == [{"name": "early"}]
    assert crawl.downloaded == ["/A", "/part"]


class Broken(Page):
    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"title": "a title"})
        yield {"name": "scraped"}
        yield Request(self.site + "part", self.parse)
        raise ValueError("no price")


@deferred_f_from_coro_f
async def test_nothing_that_a_failed_task_yielded_leaves(crawl_of, site):
    """Neither its item nor its request nor its operation goes on, and its error is recorded."""
    crawl = await crawl_of(Broken).run(site.url)

    assert crawl.scraped == []
    assert crawl.downloaded == ["/A"]
    assert crawl.rows(DATA) == [("A", None)]
    assert crawl.rows("SELECT error->>'message' FROM failures") == [("no price",)]
    assert crawl.outcomes() == {"A": ["failed"]}


class Waiting(Spider):
    @task(tags=["page"])
    def parse(self, response, item):
        raise CloseSpider("enough")


@deferred_f_from_coro_f
async def test_an_idle_spider_stays_open_for_the_work_of_others(crawl_of, site):
    """With ITEMGRAPH_IDLE = "wait" the end of `start()` is none, and new work is begun at once."""
    crawl = crawl_of(Waiting, ITEMGRAPH_IDLE="wait")
    running = crawl.start(site.url)
    await until(lambda: crawl.worker.is_open and crawl.worker.base.start.has_ended)

    def add() -> None:
        with ItemGraph.open(crawl.worker.settings.database.database_url, crawl="s") as graph:
            graph.apply([CreateItem("A", tags=["page"], data={"url": site.url + "A"})])

    await asyncio.to_thread(add)
    await running

    assert crawl.downloaded == ["/A"]
    assert crawl.stat("finish_reason") == "enough"
