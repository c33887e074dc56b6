"""What we take for granted of Scrapy: how it runs tasks, and all that `scrapy_internals` needs."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
import scrapy
from scrapy import Request, Spider
from scrapy.dupefilters import RFPDupeFilter
from scrapy.extensions import feedexport
from scrapy.http import HtmlResponse, Response
from scrapy.http.cookies import CookieJar
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.asyncgen import collect_asyncgen
from support.projects import IS_REACTORLESS

from scrapy_itemgraph.worker import scrapy_internals

URL = "http://site.example/page"

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
import asyncio

import scrapy
from scrapy.core.scheduler import Scheduler

from scrapy_itemgraph.worker import scrapy_internals

seen = []
asked = []


class Counting(Scheduler):
    def next_request(self):
        asked.append(1)
        return super().next_request()


class Hooks:
    def __init__(self, crawler):
        seen.append(("arguments", scrapy_internals.given_arguments(crawler)))
        assert not scrapy_internals.is_of_process()  # as `scrapy crawl` runs it
        self.crawler = crawler
        self.make_engine = crawler._create_engine
        scrapy_internals.make_engine_by(crawler, self.engine)
        crawler.signals.connect(self.opened, signal=scrapy.signals.spider_opened)
        crawler.signals.connect(self.idle, signal=scrapy.signals.spider_idle)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def idle(self):
        seen.append(("idle",))
        asyncio.get_running_loop().call_soon(seen.append, ("turned",))

    def close(self, method, **given):
        seen.append(("close", given["reason"]))
        return method(**given)

    def engine(self):
        seen.append(("engine",))
        return self.make_engine()

    def opened(self):
        engine = self.crawler.engine
        scrapy_internals.around_closing(engine, self.close)
        scrapy_internals.around_fetches(engine, self.watching("fetch"))
        scrapy_internals.around_scrapes(engine, self.watching("scrape"))
        scrapy_internals.around_spider_calls(engine, self.watching("call"))
        scrapy_internals.around_downloads(engine.downloader, self.watching("download"))
        process = engine.scraper.handle_spider_output_async
        watching = self.watching("outputs")
        scrapy_internals.process_outputs_by(engine, lambda *given: watching(process, *given))

    def watching(self, name):
        async def watched(method, *given):
            request = next(one for one in given if isinstance(one, scrapy.Request))
            kinds = [type(one).__name__ for one in given if one is not request]
            seen.append((name, request.url.rpartition("/")[2], request.meta.get("n"), *kinds[-1:]))
            return await method(*given)

        return watched
"""


@pytest.mark.tracebacks("ValueError: refused")
def test_scrapy_calls_what_takes_the_place_of_its_methods(project):
    """They are looked up at each call; a failure gets the errback of the request that was sent."""
    project.write(
        """
        from proj.hooks import asked, scrapy_internals, seen


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
                await asyncio.sleep(0.05)
                before = len(asked)
                scrapy_internals.wake_engine(self.crawler)
                await asyncio.sleep(0.05)
                seen.append(("woken", len(asked) > before))
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
        SCHEDULER = "proj.hooks.Counting"
        """,
        hooks=HOOKS,
    )

    run = project.crawl("-a", "fixed=1")

    seen = [tuple(one) for one in json.loads((project.directory / "seen.json").read_text())]
    assert run.stats["item_scraped_count"] == 2, run.log
    assert seen[:3] == [("arguments", {"fixed": "1"}), ("engine",), ("woken", True)]
    assert seen[-3:] == [("idle",), ("close", "finished"), ("turned",)]
    assert sorted(seen[3:-3], key=str) == [
        ("call", "broken", 1, "Failure"),
        ("call", "whole", 0, "HtmlResponse"),
        ("download", "whole", 0),
        ("fetch", "broken", 1, "method"),
        ("fetch", "whole", 0, "method"),
        ("outputs", "broken", 1, "Failure"),
        ("outputs", "whole", 0, "HtmlResponse"),
        ("scrape", "whole", 0, "HtmlResponse"),
    ]


CLOSES = """
import scrapy

from scrapy_itemgraph.worker import scrapy_internals


class Closes:
    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.opened, signal=scrapy.signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        engine = self.crawler.engine

        def begins(reason, caller):
            self.crawler.spider.logger.info("HEARD %s %s", reason, caller is not None)
            scrapy_internals.cancel_start(engine)

        scrapy_internals.before_closing(engine, begins)
"""


def test_who_closes_the_spider_is_heard_and_a_start_without_end_is_stopped(project):
    """Before anything of the spider is closed, with the frame of the caller."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"
            custom_settings = {"CLOSESPIDER_TIMEOUT": 1}

            async def start(self):
                try:
                    while True:
                        await asyncio.sleep(0.01)
                    yield
                finally:
                    self.logger.info("STOPPED")
        """,
        """
        ITEMGRAPH_ENABLED = False
        EXTENSIONS = {"proj.closes.Closes": 0, "proj.stats.DumpStats": 0}
        """,
        closes=CLOSES,
    )

    run = project.crawl()

    assert run.stats["reason"] == "closespider_timeout", run.log
    assert run.log.index("HEARD closespider_timeout True") < run.log.index("STOPPED")


def test_the_set_of_a_duplicates_filter_is_emptied():
    """What it had seen it takes for new again."""
    dupefilter = RFPDupeFilter()
    assert not dupefilter.request_seen(Request(URL))
    assert dupefilter.request_seen(Request(URL))

    assert scrapy_internals.emptied_fingerprints(dupefilter) == set()

    assert not dupefilter.request_seen(Request(URL))


LOOKS = """
import scrapy

from scrapy_itemgraph.worker import scrapy_internals

seen = {"batches": [], "most": 0, "held_up": 0}


class Looks:
    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.opened, signal=scrapy.signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        downloader = self.crawler.engine.downloader
        scrapy_internals.limit_active_by(downloader, lambda: 2)
        scrapy_internals.around_downloads(downloader, self.count)

    async def count(self, download, request):
        downloader = self.crawler.engine.downloader
        seen["most"] = max(seen["most"], len(downloader.active))
        seen["delay"] = scrapy_internals.default_delay(downloader, self.crawler.spider)
        seen["jitter"] = scrapy_internals.default_jitter(downloader)
        pool = scrapy_internals.connection_pool(downloader.handlers, "http")
        seen["pool"] = f"{type(pool).__module__}.{type(pool).__qualname__}"
        if hasattr(pool, "getConnection"):
            from twisted.internet import reactor

            seen["has_reactor"] = scrapy_internals.reactor_of(pool) is reactor
        return await download(request)


class Exporter(scrapy_internals.OpenFeedExporter):
    def start_batch(self, *args, **options):
        slot = super().start_batch(*args, **options)
        storage = self.storage_of(slot.uri, slot.feed_options)
        params = self.uri_params(self.crawler.spider, None, slot)
        seen["batches"].append([type(storage) is type(slot.storage), params["batch_id"]])
        return slot

    async def end_batch(self, slot, spider):
        await super().end_batch(slot, spider)
        seen["batches"].append(slot.itemcount)
        import json
        with open("seen.json", "w") as file:
            json.dump(seen, file)
"""


def test_scrapy_keeps_delays_connections_and_feeds_where_they_are_looked_for(project):
    """Two requests that do not count as active let the downloader have two more at a time."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"

            async def start(self):
                for n in range(9):
                    yield scrapy.Request(f"{SITE}/page/{n}")

            def parse(self, response):
                yield {"url": response.url}
        """,
        """
        ITEMGRAPH_ENABLED = False
        CONCURRENT_REQUESTS = 1
        AUTOTHROTTLE_ENABLED = True
        AUTOTHROTTLE_START_DELAY = 0.01
        EXTENSIONS = {
            "proj.looks.Looks": 0,
            "proj.stats.DumpStats": 0,
            "proj.looks.Exporter": 0,
            "scrapy.extensions.feedexport.FeedExporter": None,
        }
        FEEDS = {"items.jsonl": {"format": "jsonlines"}}
        """,
        looks=LOOKS,
    )

    run = project.crawl()

    seen = json.loads((project.directory / "seen.json").read_text())
    assert run.stats["item_scraped_count"] == 9, run.log
    assert seen["most"] == 3
    assert seen["delay"] == 0.01
    assert seen["jitter"] in {None, 0.5}
    assert IS_REACTORLESS or seen["pool"] == "twisted.web.client.HTTPConnectionPool"
    assert IS_REACTORLESS or seen["has_reactor"]
    assert seen["batches"] == [[True, 2], 9]


PARSES = """
import sys

from scrapy_itemgraph.worker import scrapy_internals


class Parses:
    def __init__(self, crawler):
        scrapy_internals.around_parsed(sys.modules["scrapy.commands.parse"].Command, self.sort)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def sort(self, method, command, outputs, opts, depth, *rest):
        outputs = list(outputs)
        print("yielded:", len(outputs), "at depth", depth)
        return method(command, outputs, opts, depth, *rest)


class Callbacks:
    def process_request(self, request):
        print("callback:", getattr(scrapy_internals.parsed_callback(request), "__name__", None))
"""


def test_the_command_parse_sorts_what_a_callback_yields_and_puts_it_aside(project):
    """It takes what a callback yields before any middleware does."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"

            def more(self, response):
                yield {"url": response.url}
                yield scrapy.Request(f"{SITE}/page/2", self.again)

            def again(self, response):
                yield {"url": response.url}
        """,
        """
        ITEMGRAPH_ENABLED = False
        EXTENSIONS = {"proj.parses.Parses": 0}
        DOWNLOADER_MIDDLEWARES = {"proj.parses.Callbacks": 100}
        """,
        parses=PARSES,
    )

    url = f"{project.site_url}/page/1"
    run = project.scrapy("parse", url, "--spider", "s", "-c", "more", "--depth", "2")

    said = [line for line in run.output.splitlines() if line.startswith(("callback", "yielded"))]
    assert said == [
        "callback: None",
        "yielded: 2 at depth 1",
        "callback: again",
        "yielded: 1 at depth 2",
    ]


class Rules(CrawlSpider):
    name = "rules"
    rules = (Rule(LinkExtractor(), callback="page", errback="missed"),)

    def page(self, response):
        pass

    def missed(self, failure):
        pass


def test_a_spider_without_another_default_has_parse():
    """Of a `CrawlSpider` it is the method that applies the rules."""
    plain, rules = Spider("plain"), Rules()

    assert scrapy_internals.default_callback(plain) == plain.parse
    assert scrapy_internals.default_callback(rules) != rules.parse


def test_requests_of_rules_have_one_callback_and_one_errback():
    """By the number of the rule in their meta these call what the rule says."""
    rules = Rules()
    rules._follow_links = True
    page = HtmlResponse(URL, body=b'<a href="/other">', request=Request(URL))

    (found,) = asyncio.run(collect_asyncgen(scrapy_internals.default_callback(rules)(page)))

    assert scrapy_internals.is_rules_callback(found.callback.__func__)
    assert found.callback.__name__ == scrapy_internals.RULES_CALLBACK
    assert scrapy_internals.is_of_rules(rules, found.callback)
    assert not scrapy_internals.is_of_rules(rules, rules.page)
    assert not scrapy_internals.is_of_rules(Spider("plain"), Spider("plain").parse)
    assert scrapy_internals.is_rules_errback(found.errback.__func__)
    (rule,) = scrapy_internals.rules_of(rules)
    assert (rule.callback, rule.errback) == (rules.page, rules.missed)
    assert found.meta["rule"] == 0
    assert scrapy_internals.rules_of(Rules) == scrapy_internals.rules_of(Spider("plain")) == ()


def test_a_jar_has_its_cookies_by_domain_path_and_name():
    """A jar that is not there has none."""
    jar, request = CookieJar(), Request(URL)
    jar.extract_cookies(Response(URL, headers={"Set-Cookie": "a=1; Path=/"}), request)

    assert scrapy_internals.cookies_of(jar)["site.example"]["/"]["a"].value == "1"
    assert scrapy_internals.cookies_of(None) == {}


def test_a_response_makes_another_selector_when_its_own_was_dropped():
    """One that was not asked for a selector has none."""
    page = HtmlResponse(URL, body=b"<p>text</p>")
    assert not scrapy_internals.has_selector(page)
    first = page.selector
    assert scrapy_internals.has_selector(page)

    scrapy_internals.drop_selector(page)

    assert not scrapy_internals.has_selector(page)
    assert page.css("p::text").get() == "text"
    assert page.selector is not first


class Stored(feedexport.BlockingFeedStorage):
    def __init__(self):
        self.stored = b""

    def _store_in_thread(self, file):
        self.stored = file.read()


def test_a_blocking_storage_stores_without_a_thread():
    """Here and now, without an event loop."""
    storage = Stored()

    scrapy_internals.store_file(storage, io.BytesIO(b"items"))

    assert storage.stored == b"items"


def test_a_feed_s_uri_is_filled_as_scrapy_does():
    """A percent sign that begins no placeholder stays from Scrapy 2.15 on."""
    assert scrapy_internals.fill_uri("%(name)s-%(n)d.csv", {"name": "s", "n": 2}) == "s-2.csv"
    if scrapy.version_info >= (2, 15):
        assert scrapy_internals.fill_uri("a%20%(name)s", {"name": "s"}) == "a%20s"


def test_each_name_that_scrapy_keeps_to_itself_is_tried_here():
    """What is public in `scrapy_internals` is named in this file."""
    own = [
        name
        for name, value in vars(scrapy_internals).items()
        if getattr(value, "__module__", None) == scrapy_internals.__name__
    ]
    tried = Path(__file__).read_text()

    assert len(own) > 15
    assert [name for name in own if f"scrapy_internals.{name}" not in tried] == []


def test_links_that_are_too_long_are_told_by_scrapys_middleware(project):
    """Its method is looked up for each request, of `start()` and of callbacks, as Scrapy counts."""
    project.write(
        """
        from scrapy_itemgraph.worker import scrapy_internals


        class S(scrapy.Spider):
            name = "s"
            custom_settings = {"URLLENGTH_LIMIT": 100}

            async def start(self):
                told = lambda: self.crawler.stats.inc_value("told")
                scrapy_internals.tell_of_long_links(self.crawler, told)
                yield scrapy.Request(SITE + "/" + "x" * 100)
                yield scrapy.Request(SITE + "/page/0")

            def parse(self, response):
                yield response.follow("/page/" + "y" * 100)
                yield response.follow("/page/" + "z" * 100)
        """
    )

    run = project.crawl()

    assert run.stats["urllength/request_ignored_count"] == run.stats["told"] == 3, run.log


def test_scrapys_depth_middleware_drops_nothing_once_its_limit_is_taken(project, site):
    """It counts as before, and its limit is an attribute that it reads for each link."""
    project.write(
        """
        from scrapy_itemgraph.worker import scrapy_internals


        class S(scrapy.Spider):
            name = "s"
            custom_settings = {"DEPTH_LIMIT": 1}

            async def start(self):
                assert scrapy_internals.take_depth_limit(self.crawler)
                yield scrapy.Request(SITE + "/page/0")

            def parse(self, response):
                number = int(response.url.rpartition("/")[2])
                if number < 3:
                    yield response.follow(f"/page/{number + 1}")
        """
    )

    run = project.crawl()

    assert [site.hits[f"/page/{number}"] for number in range(4)] == [1, 1, 1, 1], run.log
    assert run.stats["request_depth_max"] == 3
