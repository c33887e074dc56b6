"""What we take for granted of Scrapy: if one of these fails, the end of an execution is at risk."""

from __future__ import annotations

import json

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


HOOKS = """
import inspect

import scrapy

from scrapy_itemgraph.worker.scrapy_internals import given_arguments

seen = []


class Hooks:
    def __init__(self, crawler):
        seen.append(("arguments", given_arguments(crawler)))
        crawler.signals.connect(self.opened, signal=scrapy.signals.spider_opened)
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        engine = self.crawler.engine
        for part, name in ((engine.downloader.middleware, "download_async"),
                           (engine.scraper.spidermw, "scrape_response_async"),
                           (engine.scraper, "call_spider_async")):
            setattr(part, name, self.watching(name, getattr(part, name)))

    def watching(self, name, method):
        async def watched(*given):
            request = next(one for one in given if isinstance(one, scrapy.Request))
            kinds = [type(one).__name__ for one in given if one is not request]
            seen.append((name, request.url.rpartition("/")[2], request.meta.get("n"), kinds[-1]))
            return await method(*given)

        return watched
"""


@pytest.mark.tracebacks("ValueError: refused")
def test_scrapy_calls_three_methods_with_the_engine_s_request(project):
    """They are looked up at each call; a failure gets the errback of the request that was sent."""
    project.write(
        """
        from proj.hooks import seen


        class Refuses:
            def process_request(self, request):
                if "broken" in request.url:
                    raise ValueError("refused")

            def process_response(self, request, response):
                return response.replace(request=scrapy.Request(request.url))


        class S(scrapy.Spider):
            name = "s"
            custom_settings = {"DOWNLOADER_MIDDLEWARES": {Refuses: 543}}

            async def start(self):
                for n, path in enumerate(["page/whole", "page/broken"]):
                    yield scrapy.Request(f"{SITE}/{path}", meta={"n": n}, errback=self.missed)

            def parse(self, response):
                yield {"url": response.url}

            def missed(self, failure):
                yield {"missed": failure.request.meta["n"]}

            def closed(self, reason):
                import json
                with open("seen.json", "w") as file:
                    json.dump(seen, file)
        """,
        """
        ITEMGRAPH_ENABLED = False
        EXTENSIONS = {"proj.hooks.Hooks": 0, "proj.stats.DumpStats": 0}
        """,
        hooks=HOOKS,
    )

    run = project.crawl("-a", "fixed=1")

    seen = [tuple(one) for one in json.loads((project.directory / "seen.json").read_text())]
    assert run.stats["item_scraped_count"] == 2, run.log
    assert seen[0] == ("arguments", {"fixed": "1"})
    assert sorted(seen[1:], key=str) == [
        ("call_spider_async", "broken", 1, "Failure"),
        ("call_spider_async", "whole", 0, "HtmlResponse"),
        ("download_async", "broken", 1, "method"),
        ("download_async", "whole", 0, "method"),
        ("scrape_response_async", "whole", 0, "HtmlResponse"),
    ]
