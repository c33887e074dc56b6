"""Coroutines of `request=`, and what becomes of their work meanwhile."""

from __future__ import annotations

import asyncio

from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider, until

from scrapy_itemgraph import CreateItem, UpdateData, task


class Awaiting(Spider):
    """A hundred items, whose requests await `may_go`."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.may_go = asyncio.Event()
        self.awaiting, self.given_up = [], []

    def seeds(self):
        for n in range(100):
            yield CreateItem(f"PAGE:{n}", tags=["page"], data={"url": f"{self.site}{n}"})

    async def make_request(self, item):
        self.awaiting.append(item.id)
        try:
            await self.may_go.wait()
        except asyncio.CancelledError:
            self.given_up.append(item.id)
            raise
        return Request(item.data["url"])

    @task(tags=["page"], request="make_request")
    def parse(self, response, item):
        yield UpdateData({"done": True})


@deferred_f_from_coro_f
async def test_what_is_given_back_is_cancelled_and_made_again(crawl_of, site):
    """Its attempt ends at once, and the next attempt calls the method again."""
    crawl = crawl_of(Awaiting, ITEMGRAPH_CLAIM_BATCH=10)
    running = crawl.start(site.url)
    await until(lambda: crawl.spider is not None and crawl.spider.awaiting)
    active = crawl.worker.parts.active

    first = list(crawl.spider.awaiting)
    active.release_unbegun()
    crawl.worker.base.news.set()
    await until(lambda: len(crawl.spider.given_up) >= len(first))
    await until(lambda: any(crawl.spider.awaiting.count(name) == 2 for name in first))
    crawl.spider.may_go.set()
    await running

    outcomes = crawl.outcomes()
    assert [outcomes[name] for name in first] == [["released", "ok"]] * len(first)
    assert {ends[-1] for ends in outcomes.values()} == {"ok"}
    assert crawl.stat("itemgraph/failed") == 0


@deferred_f_from_coro_f
async def test_so_many_await_as_a_worker_has_in_hand(crawl_of, site):
    """Methods that await keep to CONCURRENT_REQUESTS and a batch; the rest is left to others."""
    crawl = crawl_of(
        Awaiting,
        ITEMGRAPH_CLAIM_BATCH=10,
        CONCURRENT_REQUESTS=4,
        CONCURRENT_REQUESTS_PER_DOMAIN=50,
    )
    running = crawl.start(site.url)
    await until(lambda: crawl.spider is not None and len(crawl.spider.awaiting) >= 14)
    await asyncio.sleep(0.5)

    at_once = len(crawl.spider.awaiting)
    crawl.spider.may_go.set()
    await running

    assert at_once == 14
    assert set(map(tuple, crawl.outcomes().values())) == {("ok",)}
