"""The same pages as a plain spider and as tasks asks for them."""

from __future__ import annotations

import json
import os
import time
from urllib.parse import urlsplit

import scrapy
from support import polite_site

from scrapy_itemgraph import CreateItem, UpdateData, task

# Options of tasks stand in decorators, which a spider's arguments come too late for.
TASKS = json.loads(os.environ.get("POLITE_TASKS", "{}"))


class Pages:
    """The pages of some hosts; `{n}` in `query` is the number of the page."""

    media = ""
    media_site = ""

    def __init__(
        self,
        *args,
        port,
        hosts=1,
        base=0,
        pages=20,
        first=None,
        query="",
        block_ms=0,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.port = int(port)
        self.hosts = range(int(base), int(base) + int(hosts))
        self.pages = int(pages)
        self.first = int(first or pages)
        self.query = f"?{query}" if query else ""
        self.seconds = int(block_ms) / 1000

    def url(self, host, path, n):
        """Return the URL of a page."""
        return polite_site.url(self.port, host, f"{path}/{n}{self.query.format(n=n)}")

    def numbers(self):
        """Return (host, number) of each page, host by host."""
        for host in self.hosts:
            for n in range(self.first if host == self.hosts[0] else self.pages):
                yield host, n

    def block(self):
        """Hold the loop up, as a heavy callback does."""
        if self.seconds:
            time.sleep(self.seconds)

    def files(self, response):
        """Yield what asks for a file of the page's host, or of another one, with `media=1`."""
        if self.media:
            number = urlsplit(response.url).path.rpartition("/")[2]
            yield {"file_urls": [response.urljoin(f"{self.media_site}/file/{number}")]}


class ManySpider(Pages, scrapy.Spider):
    """Knows nothing of the item graph."""

    name = "many"
    slot = ""

    async def start(self):
        meta = {"download_slot": self.slot} if self.slot else {}
        for host, n in self.numbers():
            yield scrapy.Request(self.url(host, "/page", n), meta=meta)

    def parse(self, response):
        self.block()
        yield from self.files(response)


class MoreSpider(ManySpider):
    """Another crawl of the same kind."""

    name = "more"


class ShopSpider(Pages, scrapy.Spider):
    """Two tasks; every second item of each has the tag `slow`, and a path that says so."""

    name = "shop"
    kinds = "list"

    def seeds(self):
        for host, n in self.numbers():
            for kind in self.kinds.split(","):
                tags, speed = ([kind, "slow"], "slow") if n % 2 else ([kind], "quick")
                url = self.url(host, f"/{kind}/{speed}", n)
                yield CreateItem(id=f"{kind.upper()}:{host}:{n}", tags=tags, data={"url": url})

    @task(name="shop:list", tags=["list"], **TASKS.get("shop:list", {}))
    def parse_list(self, response, item):
        self.block()
        yield from self.files(response)
        yield UpdateData({"done": True})

    @task(name="shop:detail", tags=["detail"], **TASKS.get("shop:detail", {}))
    def parse_detail(self, response, item):
        self.block()
        yield UpdateData({"done": True})
