"""Requests that are items: their names, their transaction, their errors."""

from __future__ import annotations

import pytest
from support.projects import kill
from support.scripted_sites import fp

from scrapy_itemgraph.model.item_names import name_key

# Names


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1", SITE + "/page/1"]

    def parse(self, response):
        for _ in range(2):
            yield scrapy.Request(SITE + "/page/2", self.more, priority=5)
            yield scrapy.Request(SITE + "/page/3", self.more, dont_filter=True)

    def more(self, response):
        pass
""")
def test_requests_are_named_by_fingerprint_callback_and_parent(run, project, site, request):
    """Names are REQ:<fp>, START:<fp>:<callback>, REQ:<fp>:<parent>:<n>; and what else is kept."""
    assert run.stats["reason"] == "finished", run.log
    first = f"START:{fp(site, '/page/1')}:parse"
    second = f"{first}:2"
    filtered = f"REQ:{fp(site, '/page/2')}"
    copies = {
        f"REQ:{fp(site, '/page/3')}:{name_key(parent).hex}:{n}": parent
        for parent in (first, second)
        for n in (1, 2)
    }
    items = {
        name: (created_by, nice, data)
        for name, created_by, nice, data in project.rows(
            "SELECT name, created_by, nice, data FROM items"
        )
    }
    assert items.keys() == {first, second, filtered, *copies}
    assert {name: items[name][0] for name in copies} == copies
    assert items[first][:2] == items[second][:2] == (None, 0)
    assert items[filtered][0] in {first, second}
    assert items[filtered][1] == -5
    assert {tuple(data) for *_, data in items.values()} == {("url", "request")}
    assert items[filtered][2]["url"] == site.url + "/page/2"
    assert site.hits == {"/page/1": 2, "/page/2": 1, "/page/3": 4}


LINKS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        for query in ("a", "b", "a"):
            yield scrapy.Request(SITE + "/page/2?" + query, self.more)

    def more(self, response):
        pass
"""


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.größe)

    def größe(self, response):
        yield {"url": response.url}
""")
def test_a_callback_may_have_any_name_that_python_allows(run):
    """A method whose name has other letters than ASCII ones is a callback like others."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1


@pytest.mark.crawls(
    LINKS,
    'REQUEST_FINGERPRINTER_CLASS = "proj.prints.ByPath"',
    prints="""
    class ByPath:
        def fingerprint(self, request):
            return request.url.partition("?")[0].rpartition("/")[2].encode()
    """,
)
def test_a_fingerprinter_of_the_project_tells_what_is_the_same(run, project, site):
    """REQUEST_FINGERPRINTER_CLASS is what requests are named and filtered by."""
    assert run.stats["reason"] == "finished", run.log
    assert project.data().keys() == {f"START:{b'1'.hex()}:parse", f"REQ:{b'2'.hex()}"}
    assert sum(site.hits.values()) == 2


@pytest.mark.tracebacks("ValueError: no fingerprint for this")
def test_a_fingerprinter_that_raises_is_a_failure_of_the_page(project, site):
    """What cannot be named is not lost in silence: the page that yielded it failed."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            for n in range(40):
                yield scrapy.Request(f"{SITE}/page/bad/{n}", self.more)
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            pass
    """,
        'REQUEST_FINGERPRINTER_CLASS = "proj.prints.Picky"',
        prints="""
        class Picky:
            def fingerprint(self, request):
                if "bad" in request.url:
                    raise ValueError("no fingerprint for this")
                return request.url.encode()
        """,
    )
    process = project.start("crawl", "s")
    try:
        run = project.finish(process, 30)
    finally:
        process.kill()

    assert run.stats["reason"] == "finished", run.log
    ((url, message),) = project.errors()
    assert url == site.url + "/page/1"
    assert "no fingerprint for this" in message
    assert site.hits["/page/2"] == 1


@pytest.mark.crawls(LINKS, 'DUPEFILTER_CLASS = "scrapy.dupefilters.BaseDupeFilter"')
def test_without_a_duplicates_filter_nothing_is_filtered(run, project, site):
    """With BaseDupeFilter each request is one of its own, as in Scrapy."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 1, "/page/2?a": 2, "/page/2?b": 1}
    assert len(project.data()) == 4


@pytest.mark.crawls(
    LINKS,
    'DUPEFILTER_CLASS = "proj.filters.ByPath"',
    filters="""
    from scrapy.dupefilters import RFPDupeFilter


    class ByPath(RFPDupeFilter):
        def request_fingerprint(self, request):
            return request.url.partition("?")[0].rpartition("/")[2]
    """,
)
def test_a_dupefilter_that_names_requests_is_heeded(run, project):
    """A subclass of RFPDupeFilter with its own request_fingerprint names the requests."""
    assert run.stats["reason"] == "finished", run.log
    assert project.data().keys() == {"START:1:parse", "REQ:2"}


# One transaction a response


def test_what_a_response_gave_is_committed_with_it(project, site):
    """Kill -9 between yield and commit: the page runs again, and its children are there once."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        async def parse(self, response):
            yield CreateItem(id="MADE")
            for n in (2, 3):
                yield scrapy.Request(f"{SITE}/page/{n}", self.more)
            yield UpdateData({"seen": 1})
            if not hasattr(self, "go"):
                self.logger.info("ALL IS YIELDED")
                await asyncio.sleep(60)

        def more(self, response):
            pass
    """)
    process = project.start("crawl", "s")
    project.wait_for("ALL IS YIELDED")

    kill(process)

    start = f"START:{fp(site, '/page/1')}:parse"
    assert project.data().keys() == {start}
    assert "seen" not in project.data()[start]
    assert project.attempts() == []

    run = project.crawl("-a", "go=1")

    assert run.stats["reason"] == "finished", run.log
    children = {f"REQ:{fp(site, f'/page/{n}')}" for n in (2, 3)}
    assert project.data().keys() == {start, "MADE", *children}
    assert site.hits == {"/page/1": 2, "/page/2": 1, "/page/3": 1}
    assert {path: ends[-1] for path, ends in project.request_outcomes().items()} == {
        "/page/1": "ok",
        "/page/2": "ok",
        "/page/3": "ok",
    }


# Errors


@pytest.mark.tracebacks("ValueError: midway")
def test_a_callback_that_raises_keeps_what_it_yielded_before(project, site):
    """The failure is recorded and holds the item, its requests go on; `handle` runs it again."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            yield {"before": True}
            yield scrapy.Request(SITE + "/page/3", self.last)
            if not hasattr(self, "fixed"):
                raise ValueError("midway")
            yield scrapy.Request(SITE + "/page/4", self.last)

        def last(self, response):
            pass
    """,
        'ITEMGRAPH_DEFAULT_TTL = "never"',
    )

    run = project.crawl()

    assert run.code == 0
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1
    assert project.errors() == [(site.url + "/page/2", "midway")]
    assert site.hits == {"/page/1": 1, "/page/2": 1, "/page/3": 1}

    held = project.crawl("-a", "fixed=1")
    handled = project.scrapy("itemgraph", "handle", "--all")
    again = project.crawl("-a", "fixed=1")

    assert held.stats["itemgraph/claimed"] == 1, held.log
    assert handled.code == 0, handled.log
    assert again.stats["itemgraph/claimed"] == 3, again.log
    assert project.errors() == []
    assert site.hits == {"/page/1": 3, "/page/2": 2, "/page/3": 1, "/page/4": 1}


def test_a_callback_that_is_gone_is_a_failure_that_names_it(project, site):
    """A callback renamed between runs: a failure with the near miss; after the fix it runs."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/gate/2", self.parse_book)
            yield scrapy.Request(SITE + "/page/3", self.other)

        def parse_book(self, response):
            yield {"book": response.url}

        def other(self, response):
            pass
    """
    project.write(spider)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    project.write(spider.replace("parse_book", "parse_books"))
    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    ((url, message),) = project.errors()
    assert url == site.url + "/gate/2"
    assert "no method 'parse_book' any more; did you mean 'parse_books'?" in message
    assert site.hits["/gate/2"] == 1

    project.write(spider)
    project.scrapy("itemgraph", "handle", "--all")
    fixed = project.crawl()

    assert fixed.stats["item_scraped_count"] == 1, fixed.log
    assert site.hits["/gate/2"] == 2
    assert project.errors() == []


LINKED = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response):
        number = int(response.url.partition("#")[0].rpartition("/")[2])
        for other in range(min(number + 3, 12)):
            yield response.follow(f"/page/{other}#part")
"""
COUNTS = ("dupefilter/filtered", "scheduler/enqueued", "request_depth_max", "item_scraped_count")


def test_known_links_are_counted_as_scrapy_counts_them(project, site):
    """They are filtered next to the callback; the counts are those of Scrapy without the add-on."""
    project.write(LINKED)
    ours = project.crawl()
    plain = project.crawl("-s", "ADDONS={}", "-s", "DEPTH_PRIORITY=0")

    assert [ours.stats.get(name) for name in COUNTS] == [plain.stats.get(name) for name in COUNTS]
    assert ours.stats["dupefilter/filtered"] > 50


@pytest.mark.crawls(
    LINKED,
    settings='SPIDER_MIDDLEWARES = {"proj.watch.Watch": 500}',
    watch="""
    class Watch:
        def __init__(self, crawler):
            self.stats = crawler.stats

        @classmethod
        def from_crawler(cls, crawler):
            return cls(crawler)

        async def process_spider_output(self, response, result):
            async for output in result:
                self.stats.inc_value("links")
                yield output
    """,
)
def test_a_spider_middleware_of_the_project_sees_every_link(run):
    """Where somebody may count or change links, none is filtered before."""
    # The first page is fetched as a start and as a link.
    assert run.stats["links"] == 3 + sum(min(number + 3, 12) for number in range(12))
