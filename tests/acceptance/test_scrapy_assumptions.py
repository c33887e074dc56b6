"""What we take for granted of Scrapy: if one of these fails, the end of an execution is at risk."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.edge

WATCH = """
import asyncio
from contextvars import ContextVar

import scrapy

log = []
scrape = ContextVar("scrape", default=None)


class Downloads:
    def process_request(self, request):
        task = asyncio.current_task()
        task.add_done_callback(lambda _: log.append(("fetched", request.meta["n"])))
        log.append(("fetch", request.meta["n"], id(task)))
        if not request.meta.get("again") and request.meta["n"] % 3 == 0:
            return request.replace(meta=request.meta | {"again": True}, dont_filter=True)


class Scrapes:
    def process_spider_input(self, response):
        n = response.meta["n"]
        scrape.set(n)
        task = asyncio.current_task()
        task.add_done_callback(lambda _: log.append(("scraped", n)))
        log.append(("scrape", n, id(task)))


class Pipeline:
    async def process_item(self, item):
        await asyncio.sleep(0.002 * (item["n"] % 5))
        log.append(("item", item["n"], scrape.get()))
        return item
"""


@pytest.mark.tracebacks("ValueError: a callback's error does not change it")
def test_scrapy_runs_a_task_per_fetch_and_per_scrape(project):
    """Each fetch pass and each scrape is an asyncio task of its own, which ends after its items."""
    project.write(
        """
        from proj.watch import log


        class S(scrapy.Spider):
            name = "s"

            async def start(self):
                for n in range(20):
                    yield scrapy.Request(f"{SITE}/page/{n}", meta={"n": n})

            async def parse(self, response):
                n = response.meta["n"]
                for part in range(3):
                    yield {"n": n, "part": part}
                    await asyncio.sleep(0)
                if n == 7:
                    raise ValueError("a callback's error does not change it")

            def closed(self, reason):
                import json
                with open("watched.json", "w") as file:
                    json.dump(log, file)
        """,
        """
        ITEMGRAPH_ENABLED = False
        DOWNLOADER_MIDDLEWARES = {"proj.watch.Downloads": -100}
        SPIDER_MIDDLEWARES = {"proj.watch.Scrapes": -100}
        ITEM_PIPELINES = {"proj.watch.Pipeline": 100}
        """,
        watch=WATCH,
    )

    run = project.crawl()

    import json

    log = json.loads((project.directory / "watched.json").read_text())
    kinds = [entry[0] for entry in log]
    assert kinds.count("fetch") == kinds.count("fetched") == 20 + 7, run.log
    assert kinds.count("scrape") == kinds.count("scraped") == 20
    assert kinds.count("item") == 60
    assert all(entry[1] == entry[2] for entry in log if entry[0] == "item")
    for n in range(20):
        own = [entry[0] for entry in log if entry[1] == n]
        assert own.index("fetched") < own.index("scrape") < own.index("item")
        assert own[-1] == "scraped"
