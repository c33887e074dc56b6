"""Where requests may lead, under Scrapy's engine: look-ups, and what answers."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest
from scrapy import Request
from scrapy.resolver import CachingThreadedResolver, dnscache
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph import CreateItem, UpdateData, task
from scrapy_itemgraph.worker.downloads import egress


class Inside(Spider):
    """A task whose page is on a host that the crawl's own start does not name."""

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"download_slot": "localhost"})

    @task(tags=["page"], request="inside")
    def parse(self, response, item):
        yield UpdateData({"found": response.url})

    def inside(self, item):
        return Request(self.site.replace("127.0.0.1", "localhost"))


@deferred_f_from_coro_f
async def test_a_host_inside_is_asked_for_nothing(crawl_of, site):
    """A request to a name that leads inside is refused before it is sent."""
    crawl = await crawl_of(Inside, ITEMGRAPH_PUBLIC_ONLY=True).run(site.url)

    assert crawl.outcomes() == {"A": ["refused"]}
    assert site.moments == []
    ((message,),) = crawl.rows("SELECT error->>'message' FROM failures")
    assert "127.0.0.1, which is loopback: ITEMGRAPH_PUBLIC_ONLY" in message
    assert "add 'localhost' to ITEMGRAPH_ALLOWED_HOSTS" in message


@pytest.mark.parametrize("allowed", ["localhost", "127.0.0.0/8"])
def test_a_host_that_is_named_is_asked(crawl_of, site, allowed):
    """By its name, or by the address to which that leads, the host is allowed."""

    @deferred_f_from_coro_f
    async def run():
        settings = {"ITEMGRAPH_PUBLIC_ONLY": True, "ITEMGRAPH_ALLOWED_HOSTS": allowed}
        crawl = await crawl_of(Inside, **settings).run(site.url)

        assert crawl.outcomes() == {"A": ["ok"]}

    return run()


@deferred_f_from_coro_f
async def test_an_answer_from_inside_is_dropped(crawl_of, site, monkeypatch):
    """A name that led elsewhere when it was looked up: nobody sees what the host answered."""

    async def rebound(host):
        return {ip_address("8.8.8.8")}

    monkeypatch.setattr(egress, "addresses_of", rebound)
    crawl = await crawl_of(Inside, ITEMGRAPH_PUBLIC_ONLY=True).run(site.url)

    assert crawl.outcomes() == {"A": ["refused"]}
    assert crawl.rows("SELECT data FROM items") == [({"download_slot": "localhost"},)]


@deferred_f_from_coro_f
async def test_a_download_has_the_address_that_was_checked():
    """What is looked up stays in the cache from which Twisted's handlers have it."""
    from twisted.internet import reactor

    CachingThreadedResolver(reactor, 10_000, 60).install_on_reactor()
    dnscache.pop("localhost", None)

    found = await asyncio.ensure_future(egress.addresses_of("localhost"))

    assert ip_address("127.0.0.1") in found
    assert dnscache["localhost"] == "127.0.0.1"
    assert await asyncio.ensure_future(egress.addresses_of("nosuch.invalid")) == set()
