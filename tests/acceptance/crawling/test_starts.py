"""How a crawl starts: what is refused, what only looks, what seeds do, and how it ends."""

from __future__ import annotations

import pytest
import scrapy
from support.projects import IS_REACTORLESS

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"title": response.css("title::text").get()})
        yield {"item": item.id, "title": response.css("title::text").get()}
        yield scrapy.Request(response.url + "/more", self.parse_more)

    def parse_more(self, response, item):
        yield {"more": response.url}
"""


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('SCHEDULER = "scrapy.core.scheduler.Scheduler"', "SCHEDULER is 'scrapy.core"),
        ('SCHEDULER = "no_such.Scheduler"', "which cannot be imported (No module named 'no_such')"),
        ('ITEMGRAPH_BLOBS = "s3:/bucket"', 'a URL has "://" behind its protocol'),
        ('JOBDIR = "job"', "JOBDIR is 'job'"),
        (
            (
                "SPIDER_MIDDLEWARES = "
                '{"scrapy_itemgraph.spidermiddlewares.ItemGraphSpiderMiddleware": None}'
            ),
            "SPIDER_MIDDLEWARES switches ItemGraphSpiderMiddleware off",
        ),
        ("DOWNLOAD_DELAY = 31_536_000", "DOWNLOAD_DELAY is 3.1536e+07 seconds"),
        (
            'DOWNLOAD_SLOTS = {"shop.example": {"delay": 31_536_000}}',
            "DOWNLOAD_SLOTS['shop.example']['delay'] is 3.1536e+07 seconds",
        ),
        ('ITEMGRAPH_IDLE = "maybe"', "ITEMGRAPH_IDLE: write"),
        ('ITEMGRAPH_ITEMS = {"no.such.Class": {"id": "x"}}', "ITEMGRAPH_ITEMS['no.such.Class']"),
    ],
)
def test_settings_that_cannot_work_are_refused(project, site, setting, words):
    """The process ends with code 1 and one line that says why."""
    project.write(SPIDER, settings=setting)

    run = project.crawl()

    assert_refused(run, words)
    assert not site.hits


def assert_refused(run, words):
    """Check that a run ended with code 1, and that one line says why."""
    assert run.code == 1, run.log
    (line,) = [line for line in run.log.splitlines() if words in line]
    assert "[scrapy_itemgraph.addon] ERROR: " in line
    for noise in ("Traceback", "never retrieved", "Unhandled error", "RefusedError", "CRITICAL"):
        assert noise not in run.log, run.log


def test_a_refusal_is_seen_without_a_log(project):
    """With LOG_ENABLED = False the line that says why stands on stderr."""
    project.write(SPIDER, settings='LOG_ENABLED = False\nITEMGRAPH_IDLE = "maybe"\n')

    run = project.crawl()

    assert run.code == 1
    assert "scrapy-itemgraph: ITEMGRAPH_IDLE: write" in run.log


def test_an_error_that_ends_a_crawl_is_seen_without_a_log(project):
    """With LOG_ENABLED = False stderr says why a crawl could not be opened."""
    nowhere = "postgresql://nobody@127.0.0.1:9/nowhere"
    project.write(SPIDER, settings=f"LOG_ENABLED = False\nITEMGRAPH_DATABASE_URL = {nowhere!r}\n")

    run = project.crawl()

    assert "scrapy-itemgraph: " in run.log
    assert "127.0.0.1" in run.log


SCRIPT = """
import sys
from scrapy.crawler import {process}
from scrapy.utils.project import get_project_settings

process = {process}(get_project_settings())
process.crawl("s")
process.start()
sys.exit(process.bootstrap_failed)
"""


@pytest.mark.edge
@pytest.mark.parametrize("how", ["crawl", "runspider", "CrawlerProcess", "AsyncCrawlerProcess"])
def test_a_refusal_is_one_line_however_it_is_started(project, how):
    """`scrapy crawl`, `runspider` and scripts end with code 1 and a line, without frames."""
    if how == "CrawlerProcess" and IS_REACTORLESS:
        pytest.skip("Scrapy's CrawlerProcess needs a reactor")
    project.write(SPIDER, settings='JOBDIR = "job"')
    if how == "crawl":
        run = project.crawl()
    elif how == "runspider":
        run = project.scrapy("runspider", "proj/spiders/s.py")
    else:
        script = project.directory / "script.py"
        script.write_text(SCRIPT.format(process=how))
        run = project.finish(project.start_python(str(script)))

    assert_refused(run, "JOBDIR is 'job'")


def test_a_command_that_looks_goes_on_with_a_setting_that_cannot_be_read(project, site):
    """`scrapy parse` says what a crawl would be refused for, and looks all the same."""
    project.write(SPIDER, settings='ITEMGRAPH_IDLE = "maybe"')

    run = project.scrapy("parse", "--spider", "s", "--callback", "parse_page", site.url + "/page")

    assert "ERROR: ITEMGRAPH_IDLE: write" in run.log
    assert site.hits["/page"] == 1
    assert "'title': '/page'" in run.output


@pytest.mark.edge
def test_parse_shows_operations_by_class_under_a_heading_of_their_own(project, site):
    """`scrapy parse` prints operations apart from scraped items, and gives no pipeline any."""
    spider = SPIDER.replace(
        "        yield {",
        "        yield CreateItem(id='A', tags=['page'])\n"
        "        yield CreateItem(id='B', data={'n': 1})\n        yield {",
    )
    pipeline = """
    class Strict:
        def process_item(self, item):
            assert isinstance(item, dict), item
            return item
    """
    project.write(spider, 'ITEM_PIPELINES = {"proj.strict.Strict": 1}', strict=pipeline)

    run = project.scrapy(
        *("parse", "--spider", "s", "--callback", "parse_page", "--pipelines", site.url + "/page")
    )

    items, _, rest = run.output.partition("# Operations  ---")
    shown, _, requests = rest.partition("# Requests")
    assert items.strip().endswith("[{'item': '', 'title': '/page'}]"), run.output
    assert shown.partition("\n")[2] == (
        "## UpdateData (1)\n[{'merge': {'title': '/page'}}]\n"
        "## CreateItem (2)\n[{'id': 'A', 'tags': ['page']}, {'data': {'n': 1}, 'id': 'B'}]\n"
    )
    assert "/page/more" in requests
    assert "Traceback" not in run.log


def test_another_reactor_is_refused(project, site):
    """Scrapy's select reactor is refused with a message that names the one to set."""
    reactor = "twisted.internet.selectreactor.SelectReactor"
    project.write(SPIDER, settings=f"TWISTED_REACTOR = {reactor!r}\nTWISTED_REACTOR_ENABLED = True")

    run = project.crawl()

    assert_refused(run, "scrapy-itemgraph needs asyncio")
    assert not site.hits


@pytest.mark.crawls(
    SPIDER.replace("def parse_more", "start_urls = [SITE + '/page']\n\n    def parse_more")
    + "\n    def parse(self, response):\n        yield {'plain': True}\n",
    settings='ITEMGRAPH_ENABLED = False\nJOBDIR = "job"',
)
def test_disabled_it_is_not_there(run, project):
    """With ITEMGRAPH_ENABLED = False Scrapy's own scheduler runs, and JOBDIR is fine."""
    assert run.code == 0
    assert run.stats["item_scraped_count"] == 1
    assert not any(name.startswith("itemgraph/") for name in run.stats)
    assert project.rows("SELECT count(*) FROM workers") == [(0,)]


@pytest.mark.tracebacks("ZeroDivisionError: division by zero")
@pytest.mark.parametrize(
    ("spider", "settings", "words"),
    [
        (SPIDER, 'ITEMGRAPH_DATABASE_URL = "postgresql://a@127.0.0.1:1/x"', "127.0.0.1"),
        (SPIDER, 'ITEMGRAPH_CRAWL = "{name}-{category}"', "category"),
        (SPIDER, 'ITEMGRAPH_CRAWL = "x" * 256', "the crawl's name has 256 bytes, more than 255"),
        (
            SPIDER.replace('tags=["page"]', 'tags=["page"], depends_on=["parse_pag"]'),
            "",
            "depends on 'parse_pag'",
        ),
        (SPIDER.replace('seed("PAGE")', "CreateItem(tags=['page'])"), "", "CreateItem without an"),
        (SPIDER.replace('seed("PAGE")', "42"), "", "seeds: yielded int 42"),
        (SPIDER.replace('seed("PAGE")', "1 / 0"), "", "ZeroDivisionError"),
    ],
)
def test_errors_at_the_start_close_the_spider(project, site, spider, settings, words):
    """One ERROR line, reason itemgraph_error, code 1, and nothing is fetched."""
    project.write(spider, settings=settings)

    run = project.crawl()

    assert run.code == 1, run.log
    assert run.stats["reason"] == "itemgraph_error"
    errors = [line for line in run.log.splitlines() if "] ERROR:" in line]
    assert any(words in line for line in errors), run.log
    assert "psycopg" not in "".join(run.log.split("Traceback")[1:])
    assert not site.hits


STARTED = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield CreateItem("A", tags=["page"], data={"url": SITE + "/a"})

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"url": response.url})
"""


@pytest.mark.parametrize("is_one_stored", [False, True], ids=["all", "some"])
def test_a_start_of_which_nothing_could_be_stored_is_no_success(project, site, is_one_stored):
    """It ends with itemgraph_error and code 1, after the graph's own work; some will do."""
    project.write(STARTED)
    assert project.crawl().code == 0
    also = 'yield CreateItem("B")' if is_one_stored else ""
    start = STARTED.replace('tags=["page"])\n    def', 'tags=["page"], version="2")\n    def')
    create = 'yield CreateItem("A", tags=["page"], data={"url": SITE + "/a"})'
    project.write(start.replace(create, f'yield AddTag("page", id="NOBODY")\n        {also}'))

    run = project.crawl()

    assert site.hits["/a"] == 2, run.log
    assert run.code == (0 if is_one_stored else 1), run.log
    assert run.stats["reason"] == ("finished" if is_one_stored else "itemgraph_error")
    assert ("Nothing of what start() yielded could be stored (1 failed" in run.log) is not (
        is_one_stored
    )


def test_parse_gives_a_blank_item(project):
    """`scrapy parse --callback` runs a task on a page without touching the database."""
    project.write(SPIDER)

    run = project.scrapy(
        "parse", "--spider", "s", "--callback", "parse_page", "--depth", "2",
        project.site_url + "/page/1",
    )  # fmt: skip

    assert run.code == 0, run.log
    assert "'title': '/page/1'" in run.output
    assert "/page/1/more" in run.output
    assert "Traceback" not in run.log
    assert project.rows("SELECT count(*) FROM workers") == [(0,)]


def test_shell_fetch_and_check_leave_the_database_alone(project):
    """The other commands that look at pages work as ever."""
    contract = (
        f'"""Parse.\n\n        @url {project.site_url}/page\n        @returns items 1\n        """'
    )
    project.write(
        SPIDER.replace(
            "item):\n        yield Up", f"item):\n        {contract}\n        yield Up", 1
        )
    )
    url = project.site_url + "/page/1"

    shell = project.scrapy("shell", url, "-c", "response.css('h1::text').get()")
    fetched = project.scrapy("fetch", "--spider", "s", url)
    checked = project.scrapy("check", "s")

    assert "/page/1" in shell.output, shell.log
    assert "<h1>/page/1</h1>" in fetched.output, fetched.log
    assert checked.code == 0, checked.log
    assert "OK" in checked.log + checked.output
    assert project.rows("SELECT count(*) FROM workers") == [(0,)]


def test_a_second_run_has_nothing_to_do_and_says_so(project, site):
    """The second run fetches nothing, ends at once, and names what would make it run."""
    project.write(SPIDER)
    project.crawl()
    before = sum(site.hits.values())

    run = project.crawl()

    assert run.code == 0
    assert sum(site.hits.values()) == before
    assert "itemgraph/claimed" not in run.stats
    assert run.stats["elapsed_time_seconds"] < 3
    assert "fresh" in run.log


@pytest.mark.parametrize(
    "seeds",
    [
        "def seeds(self):\n        return [seed('PAGE')]",
        "async def seeds(self):\n        return [seed('PAGE')]",
        "async def seeds(self):\n        yield seed('PAGE')",
    ],
)
@pytest.mark.crawls.with_args(
    lambda seeds: SPIDER.replace('def seeds(self):\n        yield seed("PAGE")', seeds)
)
def test_seeds_of_any_shape(project, seeds):
    """Seeds may be a list, a coroutine, or an async generator."""
    assert project.outcomes() == {"PAGE": ["ok"]}


@pytest.mark.crawls(
    SPIDER.replace('tags=["page"]', 'tags=["page"], ttl=1').replace(
        'yield {"item"',
        'self.runs = getattr(self, "runs", 0) + 1\n'
        "        if self.runs == 3:\n"
        '            self.crawler.signals.send_catch_log("enough")\n'
        '        yield {"item"',
    ),
    settings='ITEMGRAPH_IDLE = "wait"\nEXTENSIONS["proj.enough.Enough"] = 0',
    enough="""
    import asyncio


    class Enough:
        def __init__(self, crawler):
            self.crawler = crawler
            crawler.signals.connect(self.enough, signal="enough")

        @classmethod
        def from_crawler(cls, crawler):
            return cls(crawler)

        def enough(self):
            engine = self.crawler.engine
            self.closing = asyncio.ensure_future(engine.close_spider_async(reason="enough"))
    """,
)
def test_waiting_for_what_falls_due(run, project):
    """With ITEMGRAPH_IDLE = "wait" a run takes up what falls due, and ends only when told."""
    assert run.stats["reason"] == "enough", run.log
    assert project.outcomes()["PAGE"][:2] == ["ok"] * 2


def test_a_misspelt_tag_is_warned_of_once(project):
    """One WARNING names who yielded the item and what was meant; other tags are free."""
    seeds = """from [seed("A", tags=["pgae"]), seed("B", tags=["pgae"]), seed("PAGE")]
        for n in range(50):
            yield seed(f"BRAND:{n}", tags=["page", "pages", f"brand-{n}"])"""
    made = 'yield CreateItem(f"MADE:{item.id}", tags=["paeg"]); yield scrapy.Request'
    project.write(
        SPIDER.replace('seed("PAGE")', seeds).replace("yield scrapy.Request", made), settings=""
    )

    run = project.crawl()

    assert run.code == 0
    said = [line.partition("WARNING: ")[2] for line in run.log.splitlines() if "by the tag" in line]
    seeded, yielded = said
    assert seeded == (
        "spider s, seeds: no task of the spider is called for by the tag 'pgae' of the item A; "
        "did you mean 'page'?"
    )
    assert yielded.startswith("spider s, task parse_page, item ")
    assert "by the tag 'paeg' of the item MADE:" in yielded
    assert yielded.endswith("; did you mean 'page'?")


MISSPELT = """
ITEMGRAPH_DEFUALT_TTL = "1d"
ITEM_GRAPH_KEEP_ITEMS = True
ITEMGRAPH_FEEDS = True
SHOP_KEEP_ITEMS = True
ITEMGRAPH_CALLBACKS = {"parse_mroe": {"ttl": "1d"}, "parse_more": {}, "of_other": {}}
"""


def test_slips_in_settings_are_named(project):
    """A misspelt setting and a callback that does not exist are warned of, with the near miss."""
    other = (
        "class Other(scrapy.Spider):\n    name = 'other'\n    def of_other(self, response): pass\n"
    )
    project.write(SPIDER + other, settings=MISSPELT)

    run = project.crawl("-s", "ITEMGRAPH_IDEL=wait")
    command = project.scrapy("itemgraph", "status", "-s", "ITEMGRAPH_DATABSE_URL=x")

    assert run.code == 0
    said = [
        line.partition("WARNING: ")[2] for line in run.log.splitlines() if "changes nothing" in line
    ]
    assert said == [
        (
            "There is no setting ITEMGRAPH_DEFUALT_TTL, so it changes nothing; "
            "did you mean ITEMGRAPH_DEFAULT_TTL?"
        ),
        "There is no setting ITEMGRAPH_FEEDS, so it changes nothing",
        "There is no setting ITEMGRAPH_IDEL, so it changes nothing; did you mean ITEMGRAPH_IDLE?",
        (
            "There is no setting ITEM_GRAPH_KEEP_ITEMS, so it changes nothing; "
            "did you mean ITEMGRAPH_KEEP_ITEMS?"
        ),
        (
            "ITEMGRAPH_CALLBACKS['parse_mroe'] changes nothing: the spider s has no such method; "
            "did you mean 'parse_more'?"
        ),
    ]
    assert "did you mean ITEMGRAPH_DATABASE_URL?" in command.log


@pytest.mark.edge
def test_tasks_without_the_add_on_are_said(project):
    """A spider with tasks and no add-on says what is missing; one without tasks says nothing."""
    plain = "class Plain(scrapy.Spider):\n    name = 'plain'\n"
    project.write(SPIDER + plain, settings="ADDONS = {}")

    run = project.crawl()
    other = project.scrapy("crawl", "plain")
    meant = project.crawl("-s", "ITEMGRAPH_ENABLED=0")

    (line,) = [
        line
        for line in run.log.splitlines()
        if "scrapy_itemgraph.worker.spider.missing_addon" in line
    ]
    assert "ERROR: The spider 's' declares tasks (parse_page), but scrapy-itemgraph is not" in line
    assert 'ADDONS = {"scrapy_itemgraph.Addon": 500}' in line
    assert "missing_addon" not in other.log + meant.log


OLD = """
class S(scrapy.Spider):
    name = "s"

    def start_requests(self):
        yield scrapy.Request(SITE + "/page", self.parse)

    def parse(self, response):
        pass
"""
EMPTY = """
class S(scrapy.Spider):
    name = "s"
    start_urls = []

    def parse(self, response):
        pass
"""


@pytest.mark.edge
def test_a_spider_whose_start_requests_scrapy_does_not_call_is_named(project, site):
    """A public project was "successful" with 0 pages for weeks: start_requests() alone."""
    run = project.write(OLD).crawl()

    is_called = hasattr(scrapy.Spider, "start_requests")
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page"] == is_called
    assert run.log.count("S.start_requests() is not called: Scrapy") == (not is_called)
    assert run.log.count("yielded nothing, and nothing is left to do") == (not is_called)


@pytest.mark.crawls(EMPTY)
def test_an_empty_list_of_start_urls_is_named(run):
    """A run that has nothing to begin with says so at WARNING."""
    (line,) = [line for line in run.log.splitlines() if "yielded nothing" in line]
    assert "WARNING: start() of the spider s yielded nothing" in line
    assert "its start_urls is empty" in line


def test_a_start_without_requests_is_fine_where_seeds_or_work_begin_the_crawl(project, site):
    """Nothing is said of seeds, nor where a person added work."""
    seeded = project.write(SPIDER).crawl()
    project.write(SPIDER.replace("def seeds(self)", "def start_requests(self)"))
    added = project.scrapy("itemgraph", "add", "ADDED", "--tag", "page", "--url", site.url + "/a")
    work = project.crawl()

    assert "yielded nothing" not in seeded.log
    assert added.code == 0, added.log
    assert site.hits["/a"] == 1, work.log
    assert "yielded nothing" not in work.log


BREAKS = """
class S(scrapy.Spider):
    name = "s"
    fixed = None

    async def start(self):
        yield scrapy.Request(SITE + "/page/1", dont_filter=True)
        if not self.fixed:
            raise RuntimeError("the list of pages is not there")
        yield scrapy.Request(SITE + "/page/2", dont_filter=True)

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.mark.edge
@pytest.mark.tracebacks("RuntimeError: the list of pages is not there")
def test_a_start_that_raises_ends_its_run_for_now(project, site):
    """What it yielded is fetched; the run is not finished, and the next start goes on with it."""
    project.write(BREAKS)

    broken = project.crawl()
    told = project.scrapy("itemgraph", "status")
    fixed = project.crawl("-a", "fixed=1")
    runs = project.rows("SELECT number, is_finished, reason FROM runs")

    assert site.hits == {"/page/1": 1, "/page/2": 1}, fixed.log
    assert broken.stats["item_scraped_count"] == 1
    assert "(start_error)" in told.output
    assert "finished" not in told.output
    assert runs == [(1, True, "finished")]
