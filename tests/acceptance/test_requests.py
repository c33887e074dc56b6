"""Requests that are items: their names, redirects, what cannot be stored, and errors."""

from __future__ import annotations

import pytest
import sites
from projects import PATIENCE, kill, until
from scrapy import Request
from scrapy.utils.request import fingerprint

from scrapy_itemgraph import DeleteItem
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.item_names import name_key


class Scripted(sites.Site):
    """Answers a path by its script, where it has one: a status each time, "gate" waits first."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, list[str]] = {}

    def answer(self, target):
        script = self.scripts.get(target)
        step = script.pop(0) if script else None
        status, headers, body = super().answer(target)
        if step == "gate":
            self.arrived.set()
            self.may_answer.wait(120)
        elif step is not None:
            status = int(step)
        return status, headers, body


@pytest.fixture
def site():
    """Serve a site of the test's own."""
    with sites.site(Scripted) as one:
        yield one


def fp(site, path):
    """Return the fingerprint of a path of the site."""
    return fingerprint(Request(site.url + path)).hex()


# Names


def test_requests_are_named_by_fingerprint_callback_and_parent(project, site):
    """Names are REQ:<fp>, START:<fp>:<callback>, REQ:<fp>:<parent>:<n>; and what else is kept."""
    project.write("""
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

    run = project.crawl()

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


def test_a_callback_may_have_any_name_that_python_allows(project, site):
    """A method whose name has other letters than ASCII ones is a callback like others."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.größe)

        def größe(self, response):
            yield {"url": response.url}
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1


def test_a_fingerprinter_of_the_project_tells_what_is_the_same(project, site):
    """REQUEST_FINGERPRINTER_CLASS is what requests are named and filtered by."""
    project.write(
        LINKS,
        'REQUEST_FINGERPRINTER_CLASS = "proj.prints.ByPath"',
        prints="""
        class ByPath:
            def fingerprint(self, request):
                return request.url.partition("?")[0].rpartition("/")[2].encode()
        """,
    )

    run = project.crawl()

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


def test_without_a_duplicates_filter_nothing_is_filtered(project, site):
    """With BaseDupeFilter each request is one of its own, as in Scrapy."""
    project.write(LINKS, 'DUPEFILTER_CLASS = "scrapy.dupefilters.BaseDupeFilter"')

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 1, "/page/2?a": 2, "/page/2?b": 1}
    assert len(project.data()) == 4


def test_a_dupefilter_that_names_requests_is_heeded(project, site):
    """A subclass of RFPDupeFilter with its own request_fingerprint names the requests."""
    project.write(
        LINKS,
        'DUPEFILTER_CLASS = "proj.filters.ByPath"',
        filters="""
        from scrapy.dupefilters import RFPDupeFilter


        class ByPath(RFPDupeFilter):
            def request_fingerprint(self, request):
                return request.url.partition("?")[0].rpartition("/")[2]
        """,
    )

    run = project.crawl()

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
    project.write("""
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
    """)

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


# Redirects and retries


def test_where_a_redirect_leads_is_taken_before_it_is_downloaded(project, site):
    """The target is an alias by then, and a page that links to it does not fetch it again."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/redirect?to=/gate/target", self.more, priority=1)
            yield scrapy.Request(SITE + "/page/2", self.link)

        def link(self, response):
            yield scrapy.Request(SITE + "/gate/target", self.more)
            yield {"linked": True}

        def more(self, response):
            yield {"url": response.url}
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()

    owners = project.rows(
        "SELECT i.name FROM aliases a JOIN items i ON i.id = a.item_id "
        f"WHERE a.name = 'REQ:{fp(site, '/gate/target')}'"
    )
    project.wait_for("'linked': True")
    site.may_answer.set()
    run = project.finish(process)

    assert owners == [(f"REQ:{fp(site, '/redirect?to=/gate/target')}",)]
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/gate/target"] == 1
    assert run.stats["item_scraped_count"] == 2
    assert run.stats["dupefilter/filtered"] == 1
    assert set(map(tuple, project.request_outcomes().values())) == {("ok",)}


DROPS = """
class S(scrapy.Spider):
    name = "s"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.dropped, signal=scrapy.signals.request_dropped)
        return spider

    def dropped(self, request, spider):
        self.logger.info(f"DROPPED {request.url.removeprefix(SITE)}.")

"""


def test_a_redirect_to_a_page_that_was_seen_is_dropped(project, site):
    """No download, no callback, no failure, but a request_dropped, as in Scrapy."""
    project.write(
        DROPS
        + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.more)

    def more(self, response):
        yield {"url": response.url}
        yield scrapy.Request(SITE + "/redirect?to=/page/2", self.more)
    """
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 1, "/page/2": 1, "/redirect?to=/page/2": 1}
    assert run.stats["item_scraped_count"] == 1
    assert run.log.count("DROPPED /page/2.") == 1
    assert project.request_outcomes()["/redirect?to=/page/2"] == ["ok"]
    assert project.errors() == []


def test_a_redirect_to_itself_is_dropped(project, site):
    """A filtered request that is redirected to itself ends there, without a failure."""
    project.write(
        DROPS
        + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/loop", self.more)

    def more(self, response):
        yield {"url": response.url}
    """
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/loop"] == 1
    assert run.stats["dupefilter/filtered"] == 1
    assert run.log.count("DROPPED /loop.") == 1
    assert project.request_outcomes()["/loop"] == ["ok"]


def test_a_start_request_that_is_redirected_to_itself_gives_up_as_in_scrapy(project, site):
    """It is not filtered, so REDIRECT_MAX_TIMES ends it, refused."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/loop"]

        def parse(self, response):
            yield {"url": response.url}
    """,
        "REDIRECT_MAX_TIMES = 3",
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/loop"] == 4
    assert project.request_outcomes() == {"/loop": ["refused"]}


@pytest.mark.parametrize("origin", ["start", "child"])
def test_a_redirect_goes_on_at_its_target_after_a_crash(project, site, origin):
    """Kill -9 during the target's download: the restart does not go back to the origin."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + os.environ["START"]]

        def parse(self, response):
            if response.url.endswith("/page/1"):
                yield scrapy.Request(SITE + "/redirect?to=/gate/target")
                return
            times, urls = response.meta["redirect_times"], response.meta["redirect_urls"]
            self.logger.info(f"AFTER {times} FROM {urls}.")
    """)
    start = {"start": "/redirect?to=/gate/target", "child": "/page/1"}[origin]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("START", start)
        process = project.start("crawl", "s")
        assert site.arrived.wait(120), project.log()
        kill(process)
        site.may_answer.set()

        run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/redirect?to=/gate/target"] == 1
    assert site.hits["/gate/target"] == 2
    assert f"AFTER 1 FROM ['{site.url}/redirect?to=/gate/target']." in run.log


def test_retries_are_counted_over_a_crash(project, site):
    """Kill -9 during a retry: the restart goes on with retry_times as it was."""
    site.scripts["/page/2"] = ["503", "gate", "503", "200"]
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            self.logger.info(f"AFTER {response.meta['retry_times']} RETRIES.")
    """,
        "RETRY_TIMES = 2",
    )
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert "AFTER 2 RETRIES." in run.log
    assert site.hits["/page/2"] == 4


def test_retries_are_used_up_over_a_crash(project, site):
    """What had one retry of two before kill -9 has one more after it, then it fails."""
    site.scripts["/page/2"] = ["503", "gate", "503", "503", "200"]
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            yield {"url": response.url}
    """,
        "RETRY_TIMES = 2",
    )
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/2"] == 4
    assert project.request_outcomes()["/page/2"] == ["died", "failed"]
    assert run.stats.get("item_scraped_count") is None


# What cannot be stored


def test_what_cannot_be_stored_is_carried_and_said_once(project, site):
    """A lambda and a value without stored form: downloaded, counted, one warning for the place."""
    project.write("""
    import functools
    import threading


    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", lambda r: self.more(r, "lambda"))
            yield scrapy.Request(SITE + "/page/3", functools.partial(self.more, how="partial"))
            yield scrapy.Request(SITE + "/page/4", self.more, meta={"lock": threading.Lock()})

        def more(self, response, how="plain"):
            yield {"how": how}
            yield scrapy.Request(SITE + "/page/5?" + how, self.last)

        def last(self, response):
            pass
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 3
    assert run.stats["itemgraph/held"] == 3
    assert run.log.count("carried in memory") == 1
    assert project.request_outcomes() == {
        "/page/1": ["ok"],
        "/page/5?lambda": ["ok"],
        "/page/5?partial": ["ok"],
        "/page/5?plain": ["ok"],
    }
    assert set(site.hits.values()) == {1}


def test_a_carried_request_keeps_its_parent_open(project, site):
    """Kill -9 while it downloads: the parent runs again, and nothing is lost."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.last)
            yield scrapy.Request(SITE + "/gate/3", lambda r: self.more(r))

        def more(self, response):
            yield {"url": response.url}
            yield scrapy.Request(SITE + "/page/4", self.last)

        def last(self, response):
            pass
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    before = project.attempts()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert before == []
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 1
    assert site.hits == {"/page/1": 2, "/gate/3": 2, "/page/2": 1, "/page/4": 1}
    assert {path: ends[-1] for path, ends in project.request_outcomes().items()} == {
        "/page/1": "ok",
        "/page/2": "ok",
        "/page/4": "ok",
    }


def test_carried_requests_are_filtered_as_others_are(project, site):
    """What is known in the database is not carried, and what was carried is known from then on."""
    project.write(
        DROPS
        + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.second)

    def second(self, response):
        yield scrapy.Request(SITE + "/page/2", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/3", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/3", lambda r: self.last(r))
        yield scrapy.Request(SITE + "/page/4", self.fourth)

    def fourth(self, response):
        yield scrapy.Request(SITE + "/page/3", self.last)
        yield scrapy.Request(SITE + "/page/5", self.last)

    def last(self, response):
        yield {"url": response.url}
    """
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert set(site.hits.values()) == {1}, site.hits
    assert len(site.hits) == 5
    assert run.stats["item_scraped_count"] == 2
    assert run.stats["dupefilter/filtered"] == 3
    assert run.log.count("DROPPED /page/2.") == 1


def test_a_carried_request_that_another_run_knows_is_not_downloaded(project, site):
    """The filter asks the database, not this process's memory."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.last if FIRST else lambda r: self.last(r))

        def last(self, response):
            yield {"url": response.url}
    """
    project.write(spider.replace("FIRST", "True"))
    project.crawl()

    project.write(spider.replace("FIRST", "False"))
    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 2, "/page/2": 1}


@pytest.mark.parametrize("dont_filter", [True, False])
def test_a_start_request_that_cannot_be_stored_is_carried(project, site, dont_filter):
    """A lambda in start() stops neither the rest of start() nor the requests of its callback."""
    project.write(f"""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            one = lambda response: scrapy.Request(SITE + "/page/2", self.last)
            yield scrapy.Request(SITE + "/page/1", one, dont_filter={dont_filter})
            yield scrapy.Request(SITE + "/page/3", self.last)

        def last(self, response):
            yield {{"url": response.url}}
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert run.stats["itemgraph/held"] == 1, run.log
    assert run.stats["item_scraped_count"] == 2
    assert site.hits == {"/page/1": 1, "/page/2": 1, "/page/3": 1}


def test_too_many_carried_requests_are_a_failure_that_names_the_setting(project, site):
    """Above ITEMGRAPH_HELD_REQUESTS the execution fails, and says what to do."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            for n in range(5):
                yield scrapy.Request(f"{SITE}/page/held/{n}", lambda r: None)
            yield scrapy.Request(SITE + "/page/2", self.last)

        def last(self, response):
            pass
    """,
        "ITEMGRAPH_HELD_REQUESTS = 2",
    )

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert run.stats["itemgraph/held"] == 2
    ((url, message),) = project.errors()
    assert url == site.url + "/page/1"
    assert "ITEMGRAPH_HELD_REQUESTS" in message
    assert site.hits["/page/2"] == 1


def test_requests_are_stored_as_they_were_when_yielded(project, site):
    """What changes a request's values after the yield does not show; order and bytes are kept."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            meta, given = {"list": [1], "z": 1, "a": 2}, {"z": [1], "a": 2}
            request = scrapy.Request(
                SITE + "/gate/2", self.more, method="POST", body=b"\\x00\\xff", meta=meta,
                headers={"X-One": "1"}, cb_kwargs={"given": given},
            )
            yield request
            meta["list"].append(2)
            given["z"].append(2)
            request.meta["late"] = True
            request.headers["X-Two"] = "2"
            yield {"mutated": True}

        def more(self, response, given):
            request = response.request
            kept = {name: request.meta[name] for name in request.meta if len(name) < 5}
            self.logger.info(f"GOT {kept} {given} {request.body!r} {b'X-Two' in request.headers}.")
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    kept, given = {"list": [1], "z": 1, "a": 2}, {"z": [1], "a": 2}
    assert f"GOT {kept} {given} {bytes([0, 255])!r} False." in run.log


# Operations in plain callbacks


def test_operations_of_a_plain_callback_mean_its_own_request(project, site):
    """SetTTL and UpdateData without id= are about the request's own item."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield SetTTL("1d")
            yield UpdateData({"title": "one"})
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            yield UpdateData({"title": "two"})
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    found = project.rows(
        "SELECT i.data->>'title', extract(epoch FROM r.expires_at - r.completed_at)::int "
        "FROM results r JOIN items i ON i.id = r.item_id ORDER BY 1"
    )
    assert found == [("one", 86_400), ("two", None)]


def test_a_callback_gets_its_own_argument_called_item(project):
    """In drop-in work `item` is what the user passed in cb_kwargs, and no item of the graph."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response, item=None):
            self.logger.info(f"FIRST GOT {item!r}.")
            yield scrapy.Request(SITE + "/page/2", self.more, cb_kwargs={"item": {"mine": 1}})

        def more(self, response, item):
            self.logger.info(f"THEN GOT {item!r}.")
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert "FIRST GOT None." in run.log
    assert "THEN GOT {'mine': 1}." in run.log


def test_an_operation_that_cannot_be_leaves_the_pages_links_alone(project, site):
    """The page fails, and what it had found is fetched."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield CreateItem(id="TAKEN")
            yield scrapy.Request(SITE + "/page/1")

        def parse(self, response):
            for n in range(2, 5):
                yield response.follow(f"/page/{n}", self.more)
            yield RenameItem(to="TAKEN")

        def more(self, response):
            pass
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    outcomes = project.request_outcomes()
    assert outcomes.pop("/page/1") == ["failed"]
    assert outcomes == {f"/page/{n}": ["ok"] for n in range(2, 5)}


def test_a_page_that_was_deleted_may_be_found_again(project, site):
    """A name that DeleteItem freed is not taken for known by the process that freed it."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield response.follow("/page/gone", self.gone)

        def gone(self, response):
            if not hasattr(self, "was_gone"):
                self.was_gone = True
                yield DeleteItem()
                yield response.follow("/page/2", self.again)

        def again(self, response):
            yield response.follow("/page/gone", self.gone)
    """)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/gone"] == 2


def test_a_page_that_somebody_deleted_may_be_found_again(project, site):
    """A worker does not go by what it knew of a name before somebody else freed it."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield response.follow("/page/gone", self.leaf)
            yield response.follow("/page/stays", self.leaf)
            yield response.follow("/gate", self.late)

        def leaf(self, response):
            pass

        def late(self, response):
            yield response.follow("/page/2", self.again)

        def again(self, response):
            yield response.follow("/page/gone", self.leaf)
            yield response.follow("/page/stays", self.leaf)
    """)
    process = project.start("crawl", "s")
    pages = {"/page/gone", "/page/stays"}
    until(lambda: pages <= project.request_outcomes().keys(), project.log)
    assert site.arrived.wait(PATIENCE)
    with ItemGraph.open(project.url, "s") as graph:
        (gone,) = [one.id for one in graph.items() if one.data["url"].endswith("/page/gone")]
        graph.apply([DeleteItem(gone)])
    site.may_answer.set()

    run = project.finish(process)

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/gone"] == 2
    assert site.hits["/page/stays"] == 1


def test_a_filtered_start_request_takes_the_callback_that_it_has_by_now(project, site):
    """The next run asks the new callback, although the request was known by another one."""
    spider = """
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            yield scrapy.Request(SITE + "/page/1", self.CALLBACK)

        def old(self, response):
            self.logger.info("OLD")

        def new(self, response):
            self.logger.info("NEW")
    """
    project.write(spider.replace("CALLBACK", "old"))
    project.crawl()
    project.write(spider.replace("CALLBACK", "new"))

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert "INFO: NEW" in run.log
    assert site.hits["/page/1"] == 2
