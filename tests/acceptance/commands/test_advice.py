"""What a run says of itself, asked or not: of what does less than it seems to, of what waits."""

from __future__ import annotations

import re

import pytest
from support.projects import kill

TOKEN = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/token", self.parse, META)
        yield scrapy.Request(SITE + "/gate", self.parse_page)

    def parse(self, response):
        self.token = "abc"

    def parse_page(self, response):
        yield {"token": getattr(self, "token", None)}
""".replace("self.parse, META", "self.parse, meta=META")


def test_what_callbacks_keep_on_self_is_warned_of(project, site):
    """One line names the attribute, who writes it and who reads it."""
    site.may_answer.set()
    project.write(TOKEN.replace("META", "{}"))

    run = project.crawl()

    said = [line for line in run.log.splitlines() if "keeps on itself" in line]
    assert len(said) == 1
    assert "self.token is written in parse and read in parse_page" in said[0]


def test_a_start_page_with_a_ttl_of_0_is_fetched_at_each_start(project, site):
    """Also by a start that goes on with a run, in which it is done; and once in each."""
    project.write(TOKEN.replace("META", '{"itemgraph_ttl": 0}'), "CONCURRENT_REQUESTS = 1\n")
    process = project.start("crawl", "s")
    assert site.arrived.wait(60), project.log()
    kill(process)
    site.may_answer.set()

    again = project.crawl()

    assert again.stats["reason"] == "finished", again.log
    assert site.hits["/page/token"] == 2
    assert project.rows("SELECT run FROM crawls") == [(1,)]


SHARING = """
class Page(scrapy.Item):
    url = scrapy.Field()


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        found, given, item = [], {"a": 1}, Page()
        for n in range(3):
            yield response.follow(f"/page/{n}", self.parse_page, cb_kwargs={"found": found},
                meta={"given": given, "item": item, "own": [n]} | self.twice())

    def twice(self):
        value = [1]
        return {"one": value, "other": value}

    def parse_page(self, response, found):
        found.append(response.url)
        yield {"found": len(found)}
"""


@pytest.mark.crawls(SHARING)
def test_values_that_requests_share_are_named_once(run):
    """A list in cb_kwargs, a dict and an item in meta; not what each request has for itself."""
    said = [line for line in run.log.splitlines() if "two of its requests have the same" in line]
    assert len(said) == 3, run.log
    assert "the same list as cb_kwargs['found']" in said[0]
    assert "the same dict as meta['given']" in said[1]
    assert "the same Page as meta['item']" in said[2]


TASK = """
class S(scrapy.Spider):
    name = "s"

    @task(tags=["page"], ttl="1h")
    def t_page(self, response, item):
        pass
"""
CACHE = "HTTPCACHE_ENABLED = True\n"


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        (CACHE, True),
        (CACHE + "HTTPCACHE_EXPIRATION_SECS = 7200\n", True),
        (CACHE + "HTTPCACHE_EXPIRATION_SECS = 3600\n", False),
        (CACHE + 'HTTPCACHE_POLICY = "scrapy.extensions.httpcache.RFC2616Policy"\n', False),
        ("", False),
    ],
)
@pytest.mark.crawls(TASK, lambda settings: settings)
def test_a_cache_that_outlives_a_ttl_is_warned_of(run, settings, is_said):
    """Else a page that is fetched again is the one of before, without a word."""
    assert ("when a time to live is over (the task t_page: 1h)" in run.log) == is_said, run.log


@pytest.mark.crawls(TASK, 'ITEMGRAPH_CALLBACKS = {"t_page": {"ttl": "1d"}}\n')
def test_options_of_a_callback_that_is_a_task_are_warned_of(run):
    """ITEMGRAPH_CALLBACKS is for plain callbacks; the line says where a task's options go."""
    assert "ITEMGRAPH_CALLBACKS['t_page'] changes nothing: t_page is a task" in run.log
    assert "@task(ttl=…)" in run.log


@pytest.mark.crawls("""
from scrapy.utils.engine import get_engine_status

class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]
    custom_settings = {"ITEMGRAPH_CLAIM_BATCH": 5, "CONCURRENT_REQUESTS": 1}

    def parse(self, response):
        for n in range(60):
            yield response.follow(f"/page/more/{n}", self.more)

    async def more(self, response):
        scheduler = self.crawler.engine._slot.scheduler
        if response.url.endswith("/3"):
            len(scheduler)
            await asyncio.sleep(1)
            self.logger.info("waits %d %d %d", len(scheduler), len(scheduler.mqs),
                len(scheduler.dqs))
            self.logger.info("df %s", type(scheduler.df).__name__)
            self.logger.info("status %s", get_engine_status(self.crawler.engine))
""")
def test_what_asks_scrapys_scheduler_gets_an_answer(run):
    """`len(scheduler)`, `mqs`, `dqs`, `df` and `est()`, as RemoteControl and consoles ask."""
    (said,) = re.findall(r"waits (\d+) (\d+) (\d+)", run.log)
    total, here, elsewhere = map(int, said)
    assert total == here + elsewhere
    assert 40 <= total <= 59
    assert "df RFPDupeFilter" in run.log
    (status,) = [line for line in run.log.splitlines() if "status [" in line]
    assert "len(engine.scheduler.mqs)" in status
    assert "exception" not in status


INHERITS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/0", self.parse, meta={"itemgraph_ttl": 0})

    def parse(self, response):
        ttl = response.meta["itemgraph_ttl"]
        yield response.follow("/page/1", self.parse_page, meta={"itemgraph_ttl": ttl})

    def parse_page(self, response):
        yield {"url": response.url}
"""


@pytest.mark.crawls(INHERITS)
def test_a_link_that_takes_over_a_ttl_of_0_is_an_ordinary_one(run, site):
    """The page that yields it does not fail, and the link is fetched once in a run."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1, run.log
    assert site.hits["/page/1"] == 1
