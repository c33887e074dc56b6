"""Chains: pages that each link to the next one, so that every claim waits for a commit."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.linked_sites import LinkedSite
from support.projects import Project, kill, until
from support.proxies import proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

# No poll comes to the rescue of news that were forgotten: the crawl stands still then.
SPIDER = """
from scrapy_itemgraph.worker.claims import no_work_left

no_work_left._POLL = dict.fromkeys(no_work_left._POLL, 3600.0)
no_work_left._LONGEST_POLL = 3600.0


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]
    is_last = False

    def parse(self, response):
        links = response.css("a::attr(href)").getall()
        yield from response.follow_all(links)
        self.is_last = not links
"""

# A task of the spider's own downloads something every half a second.
INLINE = """
    async def start(self):
        self.inline = asyncio.ensure_future(self.download())
        async for request in super().start():
            yield request

    async def download(self):
        while not self.is_last:
            request = scrapy.Request(SITE + "/inline", dont_filter=True)
            await self.crawler.engine.download_async(request)
            await asyncio.sleep(0.5)
"""

WAIT = 'ITEMGRAPH_IDLE = "wait"'


@pytest.fixture
def site_kind() -> type[LinkedSite]:
    """Serve pages with links."""
    return LinkedSite


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield a stack that is closed at the end."""
    with ExitStack() as one:
        yield one


class Chain(NamedTuple):
    """A chain of so many pages, crawled by so many processes; `delay` is the database's."""

    pages: int
    processes: int = 1
    spider: str = ""
    settings: str = ""
    delay: float = 0.0


CHAINS = {
    "default": Chain(100),
    "wait": Chain(100, settings=WAIT),
    "inline": Chain(100, spider=INLINE),
    "far": Chain(20, delay=0.01),
    "two": Chain(100, 2, settings=WAIT),
    "two-far": Chain(20, 2, settings=WAIT, delay=0.01),
}
if os.environ.get("ITEMGRAPH_TEST_SLOW"):
    CHAINS |= {
        "long": Chain(1000, settings=WAIT),
        "long-inline": Chain(1000, spider=INLINE),
        "eight": Chain(1000, 8, settings=WAIT),
        "eight-far": Chain(100, 8, settings=WAIT, delay=0.01),
    }


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_chain_of_pages_never_stands_still(stack, engine, tmp_path, site, chain):
    """Each page is fetched once its link is committed, without a poll, also far from the server."""
    pages = chain.pages
    site.links, site.slow = {number: (number + 1,) for number in range(pages - 1)}, {}
    network, url = stack.enter_context(proxy(engine))
    network.delay = chain.delay
    projects = [Project(tmp_path / str(number), url, site.url) for number in range(chain.processes)]
    crawls = [
        one.write(SPIDER + chain.spider, chain.settings).start("crawl", "s") for one in projects
    ]
    for crawl in crawls:
        stack.callback(kill, crawl)

    def said() -> str:
        return f"{len(site.fetched)} of {pages} pages: {projects[0].log()[-3000:]}"

    while len(site.fetched) < pages:
        before = len(site.fetched)
        until(lambda: len(site.fetched) > before, said)  # noqa: B023 - called at once

    if chain.settings != WAIT:
        run = projects[0].finish(crawls[0])
        assert run.stats["reason"] == "finished", run.log
