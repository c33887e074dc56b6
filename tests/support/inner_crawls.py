"""Crawls in the test's own process and on its reactor, whose engine, database and site are real."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import scrapy
import sqlalchemy as sa
from scrapy import signals
from scrapy.crawler import Crawler

from scrapy_itemgraph.worker import worker as workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.worker.worker import Worker

PATIENCE = 30.0


class Spider(scrapy.Spider):
    """A spider of nothing, whose tests tell it what its site is (`site`)."""

    name = "s"

    async def start(self):
        """Yield nothing."""
        for request in ():
            yield request


class InnerCrawl:
    """A crawl that runs, and what its engine announced, by paths of URLs, in order."""

    def __init__(self, spider: type[scrapy.Spider], engine: sa.Engine, **settings: Any) -> None:
        self._database = engine
        given = {
            "ADDONS": {"scrapy_itemgraph.Addon": 500},
            "ITEMGRAPH_IGNORED_ARGUMENTS": "site",
            "ITEMGRAPH_DATABASE_URL": engine.url.render_as_string(hide_password=False),
            "TELNETCONSOLE_ENABLED": False,
            "ROBOTSTXT_OBEY": False,
            "RETRY_ENABLED": False,
            "DOWNLOAD_DELAY": 0,
            **settings,
        }
        self.crawler = Crawler(spider, given)
        self.downloaded: list[str] = []
        self.dropped: list[str] = []
        self.scraped: list[Any] = []
        self.on_download: Callable[[str], object] = lambda _: None
        self._connect()

    def _connect(self) -> None:
        connect = self.crawler.signals.connect
        connect(self._downloads, signals.request_reached_downloader)
        connect(self._dropped, signals.request_dropped)
        connect(self._scraped, signals.item_scraped)

    def without_drops(self) -> InnerCrawl:
        """Do not listen to what is dropped: of such requests nobody hears then."""
        self.crawler.signals.disconnect(self._dropped, signals.request_dropped)
        return self

    def _downloads(self, request: scrapy.Request) -> None:
        self.downloaded.append(path_of(request))
        self.on_download(path_of(request))

    def _dropped(self, request: scrapy.Request) -> None:
        self.dropped.append(path_of(request))

    def _scraped(self, item: Any) -> None:
        self.scraped.append(item)

    @property
    def worker(self) -> Worker:
        """The worker of this crawl's process."""
        return workers.of(self.crawler)

    @property
    def spider(self) -> Any:
        """The spider."""
        return self.crawler.spider

    def start(self, site: str) -> asyncio.Task[None]:
        """Start to crawl a site; it takes half a minute at most."""
        return asyncio.ensure_future(
            asyncio.wait_for(self.crawler.crawl_async(site=site), PATIENCE)
        )

    async def run(self, site: str) -> InnerCrawl:
        """Crawl a site to the end."""
        await self.start(site)
        return self

    def rows(self, sql: str) -> list[Any]:
        """Return the rows of a query, as tuples."""
        with self._database.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(sql))]

    def outcomes(self) -> dict[str, list[str]]:
        """Return the outcomes of each item's attempts."""
        found: dict[str, list[str]] = {}
        for name, outcome in self.rows(
            "SELECT i.name, a.outcome FROM attempts a JOIN items i ON i.id = a.item_id "
            "ORDER BY a.id"
        ):
            found.setdefault(name, []).append(outcome)
        return found

    def stat(self, name: str) -> Any:
        """Return a number that was counted."""
        return self.crawler.stats.get_value(name, 0)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until something holds that only looking again can tell."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def path_of(request: scrapy.Request) -> str:
    """Return the path of a request's URL."""
    return "/" + request.url.partition("://")[2].partition("/")[2]
