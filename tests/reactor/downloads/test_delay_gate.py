"""The gate before Scrapy's own downloader and its connections."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from scrapy import Request, Spider
from scrapy.utils.defer import deferred_f_from_coro_f
from scrapy.utils.test import get_crawler

from scrapy_itemgraph.model.limits import Grant, Terms
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker.downloads.delay_gate import Gate, PostponedError

GAP = 0.1
HOST = "127.0.0.1"


class Events:
    """All requests are those of pipelines, and none keeps to a named limit."""

    is_alive = True

    def __init__(self, limiters: Limiters) -> None:
        self.limiters = limiters
        self.told: list[str] = []

    def leg_of(self, request) -> None:
        return None

    def lane(self, slot, leg):
        return (self.limiters.slot(slot),)

    def more_may_start(self) -> None: ...

    def turned_away(self) -> None:
        self.told.append("turned away")

    def started(self, lane) -> None:
        pass

    def starting(self, request) -> None:
        self.told.append("starting")

    def answered(self, request, response, lane, began) -> None:
        self.told.append(f"answered {response.status}")


class Way:
    """Scrapy's downloader with the gate before it, which has the site's slot."""

    def __init__(self, terms: Terms, units: int = 1) -> None:
        crawler = get_crawler(Spider, {"TELNETCONSOLE_ENABLED": False})
        crawler.spider = crawler._create_spider("site")
        crawler.engine = crawler._create_engine()
        self.downloader = crawler.engine.downloader
        self.limiters = Limiters(lambda _: terms, lambda _: None)
        self.events = Events(self.limiters)
        self.slot = self.limiters.slot(HOST)
        given = Grant(limit_id=1, kind="slot", name=HOST, in_force=terms, units=units)
        self.limiters.take([given], time.monotonic())
        self.gate = Gate(self.limiters, lambda _: None, self.events)
        self.gate.stand_before(self.downloader)

    def fetch(self, url: str) -> asyncio.Task:
        """Download a page through the gate."""
        return asyncio.ensure_future(self.downloader.handlers.download_request_async(Request(url)))

    async def close(self) -> None:
        """Close what the downloader has open."""
        self.downloader.close()
        for handler in self.downloader.handlers._handlers.values():
            closing = handler.close()
            if asyncio.iscoroutine(closing):
                await closing


@pytest.fixture
def way(request) -> Way:
    """Return a way to the site whose slot keeps the terms of a test's mark."""
    return Way(**request.param)


@pytest.mark.parametrize("way", [{"terms": Terms(gap=GAP)}], indirect=True)
@deferred_f_from_coro_f
async def test_requests_reach_a_site_a_gap_apart(way, site):
    """The gaps hold where the site sees them, over connections that Scrapy makes and keeps."""
    await asyncio.gather(*(way.fetch(site.url) for _ in range(4)))
    await way.close()

    assert len(site.moments) == 4
    assert min(after - before for before, after in pairwise(site.moments)) >= GAP - 0.02
    assert len(site.connections) < 4
    assert way.events.told == ["starting"] * 4 + ["answered 200"] * 4
    assert way.slot.running == way.slot.starts.unsent == way.slot.waiting == 0


@pytest.mark.parametrize("way", [{"terms": Terms(concurrency=2), "units": 2}], indirect=True)
@deferred_f_from_coro_f
async def test_no_more_requests_run_than_the_units_that_are_had(way, site):
    """A slot without a delay lets as many run as this process has units."""
    fetched = [way.fetch(site.url) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (way.slot.running, way.slot.waiting) == (2, 3)

    await asyncio.gather(*fetched)
    await way.close()
    assert len(site.moments) == 5


@pytest.mark.parametrize("way", [{"terms": Terms(gap=3600.0)}], indirect=True)
@deferred_f_from_coro_f
async def test_a_request_that_is_cancelled_leaves_no_trace_at_the_gate(way, site):
    """Scrapy cancels what waits when it stops; nobody else waits for its turn then."""
    await way.fetch(site.url)
    fetched = way.fetch(site.url)
    await asyncio.sleep(0.01)
    assert way.slot.waiting == 1

    fetched.cancel()
    await asyncio.wait([fetched])
    await way.close()
    assert fetched.cancelled()
    assert (way.slot.waiting, way.slot.running) == (0, 0)


@pytest.mark.parametrize("way", [{"terms": Terms(gap=3600.0)}], indirect=True)
@deferred_f_from_coro_f
async def test_nothing_waits_any_more_once_the_graph_is_closed(way, site):
    """What waits fails, and what comes later is Scrapy's to pace."""
    await way.fetch(site.url)
    fetched = way.fetch(site.url)
    await asyncio.sleep(0)
    way.gate.abandon()
    with pytest.raises(PostponedError):
        await fetched

    await way.fetch(site.url)
    await way.close()
    assert len(site.moments) == 2
