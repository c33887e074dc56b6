"""What begins to end under Scrapy's engine, and what does not before Scrapy closes the spider."""

from __future__ import annotations

import asyncio

import pytest
import scrapy
from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.utils.defer import deferred_f_from_coro_f, maybe_deferred_to_future
from support.inner_crawls import Spider, until

from scrapy_itemgraph import CreateItem, UpdateData, task
from scrapy_itemgraph.addon import RefusedError

RUN = "SELECT number, is_finished, reason FROM runs"


class Fed(Spider):
    """One page, and another one whenever the spider is idle; it stays open until told otherwise."""

    left = ()
    idle_moments = starts = 0
    is_refusing = True

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.left = list(cls.left)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    async def start(self):
        self.starts += 1
        yield Request(self.site + "first")

    def idle(self):
        self.idle_moments += 1
        if self.left:
            self.feed(self.left.pop(0))
        if self.is_refusing:
            raise DontCloseSpider

    def feed(self, path):
        self.crawler.engine.crawl(Request(self.site + path))

    def parse(self, response):
        yield {"url": response.url}


class Listed(Fed):
    left = ("second", "third")


async def fed(crawl, site):
    """Start a crawl that is fed twice; return what runs once it has been refused for good."""
    running = crawl.start(site.url)
    await until(lambda: crawl.spider is not None and crawl.spider.idle_moments > 2)
    assert crawl.downloaded == ["/first", "/second", "/third"]
    return running


@deferred_f_from_coro_f
async def test_a_run_is_over_when_nobody_refuses_the_end(crawl_of, site):
    """The run is open as long as a handler keeps the spider, and finished once none does."""
    crawl = crawl_of(Listed)
    running = await fed(crawl, site)
    before = crawl.rows(RUN)

    crawl.spider.is_refusing = False
    crawl.spider.feed("last")
    await running

    assert before == [(1, False, None)]
    assert crawl.downloaded[3:] == ["/last"]
    assert crawl.stat("finish_reason") == "finished"
    assert crawl.rows(RUN) == [(1, True, "finished")]


@deferred_f_from_coro_f
async def test_a_spider_that_waits_is_asked_for_more_when_idle(crawl_of, site):
    """With ITEMGRAPH_IDLE = "wait" the spider stays open whether a handler refuses or not."""
    crawl = crawl_of(Listed, ITEMGRAPH_IDLE="wait")
    running = await fed(crawl, site)

    crawl.spider.is_refusing = False
    idle_moments = crawl.spider.idle_moments
    crawl.spider.feed("more")
    await until(lambda: crawl.spider.idle_moments > idle_moments)
    crawl.spider.feed("last")
    await until(lambda: len(crawl.scraped) == 5)
    await crawl.crawler.engine.close_spider_async(reason="read")
    await running

    assert crawl.stat("finish_reason") == "read"
    assert crawl.rows(RUN) == [(1, False, "read")]


@deferred_f_from_coro_f
async def test_start_runs_once_more_for_a_database_that_lacks_it(crawl_of, site):
    """Also after Scrapy has read it to its end, while a handler keeps the spider open."""
    crawl = crawl_of(Listed)
    running = await fed(crawl, site)
    idle_moments = crawl.spider.idle_moments

    crawl.worker.parts.memory.went_back(has_start=False)
    await until(lambda: crawl.spider.starts == 2)
    await until(lambda: crawl.spider.idle_moments > idle_moments)
    crawl.spider.is_refusing = False
    crawl.spider.feed("last")
    await running

    assert crawl.downloaded[3:] == ["/last"]
    assert crawl.stat("finish_reason") == "finished"


class Tasks(Fed):
    left = ("A", "B")

    def idle(self):
        if self.left:
            named = {"name": self.left.pop(0)}
            self.crawler.engine.crawl(Request(self.site + "list", self.parse_list, cb_kwargs=named))
            raise DontCloseSpider

    def parse_list(self, response, name):
        yield CreateItem(name, tags=["page"], data={"url": response.urljoin(name)})

    @task(tags=["page"])
    async def parse_page(self, response, item):
        yield {"item": item.id}
        yield UpdateData({"is_done": True})


@deferred_f_from_coro_f
async def test_tasks_run_of_what_an_idle_spider_takes_in(crawl_of, site):
    """A handler of spider_idle that takes in items has their tasks run before it is asked again."""
    crawl = await crawl_of(Tasks, DUPEFILTER_CLASS="scrapy.dupefilters.BaseDupeFilter").run(
        site.url
    )

    assert crawl.downloaded == ["/first", "/list", "/A", "/list", "/B"]
    assert crawl.rows(RUN) == [(1, True, "finished")]


class Noting:
    """A downloader middleware that notes each download that is said to have failed."""

    failed: list[str] = []  # noqa: RUF012

    def process_exception(self, request, exception):
        self.failed.append(type(exception).__name__)


class Two(Fed):
    async def start(self):
        yield Request(self.site + "one")
        yield Request(self.site + "other")


@pytest.mark.parametrize("has_been_idle", [False, True])
@deferred_f_from_coro_f
async def test_work_that_is_given_back_is_no_failed_download(crawl_of, site, has_been_idle):
    """A stop gives back what waits at the gate; no middleware sees an error, and none counts."""
    Noting.failed.clear()
    crawl = crawl_of(Two, DOWNLOADER_MIDDLEWARES={Noting: 100}, CONCURRENT_REQUESTS=1)
    crawl.on_download = lambda _: crawl.worker.parts.gate.rest(60)
    running = crawl.start(site.url)
    if has_been_idle:
        crawl.on_download = lambda _: None
        await until(lambda: crawl.spider is not None and crawl.spider.idle_moments > 0)
        crawl.on_download = lambda _: crawl.worker.parts.gate.rest(60)
        crawl.spider.feed("late")
    asked = 3 if has_been_idle else 1
    await until(lambda: len(crawl.downloaded) == asked)

    await asyncio.wait_for(crawl.crawler.stop_async(), 10)
    await running

    assert len(site.moments) == asked - 1
    assert Noting.failed == []
    assert crawl.stat("downloader/exception_count") == 0
    assert crawl.stat("itemgraph/released") >= 1
    assert crawl.rows(RUN) == [(1, False, "shutdown")]


class Odd:
    """A fingerprinter that knows no request of one path."""

    def fingerprint(self, request):
        if request.url.endswith("other"):
            raise ValueError("no print")
        return request.url.encode().ljust(20)


@deferred_f_from_coro_f
async def test_a_fingerprinter_that_raises_ends_the_crawl_as_in_scrapy(crawl_of, site):
    """The engine stops with `shutdown`, and the run is open for the next start."""
    crawl = await crawl_of(Two, REQUEST_FINGERPRINTER_CLASS=Odd).run(site.url)

    assert crawl.stat("finish_reason") == "shutdown"
    assert crawl.rows(RUN) == [(1, False, "shutdown")]


class Paced(Fed):
    async def start(self):
        yield Request(self.site + "first")
        while not self.crawler.stats.get_value("item_scraped_count"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield Request(self.site + "last")
        raise CloseSpider("enough")

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow("further")


@pytest.mark.skipif(scrapy.version_info < (2, 18), reason="an older engine takes it for an error")
@deferred_f_from_coro_f
async def test_the_last_requests_of_a_start_that_closes_are_fetched(crawl_of, site):
    """CloseSpider in a slow start() waits for the requests before it, and for no others."""
    crawl = await crawl_of(Paced).run(site.url)

    assert crawl.downloaded[0] == "/first"
    assert "/last" in crawl.downloaded
    assert crawl.stat("finish_reason") == "enough"


@pytest.mark.parametrize("way", ["crawl", "crawl_async"])
@deferred_f_from_coro_f
async def test_a_refused_start_raises_as_any_error_does(crawl_of, site, way):
    """Who awaits the crawl gets the refusal, with what it says and where it was raised."""
    crawler = crawl_of(Fed, JOBDIR="job").crawler

    async def crawled() -> None:
        started = getattr(crawler, way)(site=site.url)
        await (maybe_deferred_to_future(started) if way == "crawl" else started)

    with pytest.raises(RefusedError, match="JOBDIR is 'job'") as refused:
        await crawled()

    assert refused.tb.tb_next is not None
    assert site.moments == []
