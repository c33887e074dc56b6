"""What the parts of a crawl agree on without a crawl."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import MemoryStatsCollector
from support.parts import a_claim

from scrapy_itemgraph.connections.session import News
from scrapy_itemgraph.exceptions import ConfigurationError, InvalidDataError
from scrapy_itemgraph.model import slots
from scrapy_itemgraph.model.snapshots import ItemSnapshot
from scrapy_itemgraph.tools import async_tools
from scrapy_itemgraph.worker import worker as workers
from scrapy_itemgraph.worker.downloads import request_slots
from scrapy_itemgraph.worker.executions.context import ItemContext
from scrapy_itemgraph.worker.spider import crawl_names


@pytest.mark.parametrize(
    "url",
    [
        "http://münchen.de/",
        "http://BÜCHER.example:8080/ä?ö",
        "http://xn--mnchen-3ya.de/",
        "http://EXAMPLE.com./a",
        " http://a.example/",
        "http://user:word@[::1]:80/",
        "http://a..b/",
        "http://a.example?b=http://c.example/d",
        "http://a.example#b/c",
        "http:///a/b",
        "data:,x://y/z",
        f"http://{'ü' * 70}.de/",
    ],
)
def test_data_and_request_have_one_slot(url):
    """The slot of an item's data is that of the request that Scrapy makes of it."""
    assert slots.slot_of({"url": url}) == request_slots.slot_of(Request(url))


@pytest.mark.parametrize("turns", range(4))
def test_news_that_come_with_our_own_are_not_lost(turns):
    """Whoever waits for either hears both, whichever comes some turns of the loop later."""

    async def run() -> None:
        own, news = asyncio.Event(), News()
        waiting = asyncio.ensure_future(async_tools.either(own, news.wait(3600)))
        await asyncio.sleep(0.01)
        own.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        news.tell()
        others = await waiting

        has_heard = not others.cancelled() and others.result()
        assert has_heard or news.is_there

    asyncio.run(run())


def test_claims_of_one_item_share_nothing():
    """Two tasks of an item that are claimed together do not see each other's changes."""
    snapshot = ItemSnapshot(
        id="x", aliases=("x",), tags={"page": {"rank": 1}}, data={"list": [1], "url": "u"}
    )
    claim = a_claim(item=snapshot)
    one, two = (ItemContext.claimed(each, None) for each in (claim, replace(claim, task_id=2)))

    one.data["list"].append(2)
    one.data["new"] = True
    one.tags["page"]["rank"] = 2

    assert two.data == snapshot.data == {"list": [1], "url": "u"}
    assert two.tags == {"page": {"rank": 1}}


def test_metadata_that_was_not_loaded_or_is_none_is_an_error_that_says_so():
    """A task without `request=` has it loaded by a callback; rows that others spoilt fail alone."""
    with pytest.raises(AttributeError, match=r"no request=.*await item.get_metadata\(\)"):
        _ = ItemContext.claimed(a_claim(), None).metadata
    with pytest.raises(InvalidDataError, match="the item's metadata is no JSON object"):
        ItemContext.claimed(replace(a_claim(), metadata=[1]), None)


def test_a_crawler_is_freed_with_its_crawl():
    """Nothing keeps a crawler, or its crawl, once its own process has dropped it."""
    crawler = Crawler(Spider)
    crawler.stats = MemoryStatsCollector(crawler)
    crawl = workers.of(crawler)
    assert workers.of(crawler) is crawl
    known = weakref.ref(crawler), weakref.ref(crawl)

    del crawler, crawl
    gc.collect()

    assert [one() for one in known] == [None, None]


@pytest.mark.parametrize(("name", "cure"), [(5, "give it text"), (None, "leave self out")])
def test_a_spider_without_a_name_of_text_is_refused_in_one_line(name, cure):
    """Neither it nor its class has one; where it is its own name, the line says how that came."""

    class Nameless(Spider):
        def __init__(self):
            super().__init__(self if name is None else name)

    with pytest.raises(ConfigurationError, match=cure):
        crawl_names.restore_name(SimpleNamespace(spider=Nameless()))
