"""Spider arguments: a start with others is a crawl of its own, unless it is told to join."""

from __future__ import annotations

import json

import pytest
from support.projects import kill, until

from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.postgres import engine as engines

CATS = """
class S(scrapy.Spider):
    name = "cats"

    def __init__(self, cat="all", **kwargs):
        super().__init__(**kwargs)
        self.cat = cat
        self.random_id = str(id(self))

    async def start(self):
        yield scrapy.Request(SITE + "/page/index")

    def parse(self, response):
        yield {"cat": self.cat, "page": "index"}
        for n in range(3):
            yield response.follow(f"/page/{self.cat}/{n}", self.parse_page)

    def parse_page(self, response):
        yield {"cat": self.cat, "page": response.url}
"""
CRAWLS = "SELECT name FROM crawls ORDER BY name"


@pytest.fixture
def cats(project):
    """Write the spider, and return a function that runs it with arguments."""
    project.write(CATS)

    def run(*arguments, **settings):
        options = [one for name, value in settings.items() for one in ("-s", f"{name}={value}")]
        given = [one for argument in arguments for one in ("-a", argument)]
        return project.finish(project.start("crawl", "cats", *given, *options))

    return run


def _warnings(run):
    """Return the lines at WARNING, but for Scrapy's own of its handler without a reactor."""
    lines = [line for line in run.log.splitlines() if "WARNING" in line]
    return [line for line in lines if "is experimental" not in line]


@pytest.mark.edge
def test_other_arguments_are_another_crawl(project, cats):
    """Each has all of its pages; the same ones again, or by another order, are the same crawl."""
    runs = [cats("cat=books"), cats("cat=music"), cats(), cats("x=1", "cat=books", "_job=7")]
    runs += [cats("cat=books", "x=1")]

    assert [run.stats["item_scraped_count"] for run in runs] == [4] * 5, runs[1].log
    assert project.rows(CRAWLS) == [
        ("cats",),
        ("cats:cat=books",),
        ("cats:cat=books,x=1",),
        ("cats:cat=music",),
    ]
    assert [_warnings(run) for run in runs] == [[]] * 5


def test_an_interrupted_crawl_is_found_by_its_arguments(project, site):
    """Attributes that the spider makes up at each start do not matter."""
    project.write(CATS.replace("/page/{self.cat}/{n}", "/gate"))
    killed = project.start("crawl", "cats", "-a", "cat=books")
    assert site.arrived.wait(60), project.log()
    kill(killed)
    site.may_answer.set()

    again = project.finish(project.start("crawl", "cats", "-a", "cat=books"))

    assert again.stats["item_scraped_count"] == 1, again.log
    assert site.hits["/page/index"] == 1


def test_two_in_one_process_are_two_crawls(project):
    """`process.crawl(S, cat=…)` twice, each way that Scrapy has: each parses its own pages."""
    project.write(CATS)
    script = project.directory / "both.py"
    script.write_text(
        """
import sys
from scrapy import crawler
from scrapy.utils.project import get_project_settings

process = getattr(crawler, sys.argv[1])(get_project_settings())
process.crawl("cats", cat="books", n=3)
process.crawl("cats", cat="music", n="3")
process.start()
"""
    )
    for kind in ("CrawlerProcess", "AsyncCrawlerProcess"):
        run = project.finish(project.start_python(str(script), kind))
        assert run.code == 0, run.log

    assert project.rows(CRAWLS) == [("cats:cat=books,n=3",), ("cats:cat=music,n=3",)]
    found = project.rows(
        "SELECT c.name, count(*), count(*) FILTER (WHERE i.data->>'url' LIKE '%/page/index') "
        "FROM items i JOIN crawls c ON c.id = i.crawl_id GROUP BY c.name ORDER BY c.name"
    )
    assert found == [("cats:cat=books,n=3", 4, 1), ("cats:cat=music,n=3", 4, 1)]


WINDOWS = """
class S(scrapy.Spider):
    name = "windows"

    async def start(self):
        yield scrapy.Request(SITE + f"/page/{self.window['site']}/index")

    def parse(self, response):
        for n in range(10):
            yield response.follow(f"/page/{self.window['site']}/{n}", self.parse_page)

    def parse_page(self, response):
        yield {"own": self.window["site"], "url": response.url}
"""
AT_ONCE = """
from datetime import date
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

process = CrawlerProcess(get_project_settings())
for site in ("one", "two", "three"):
    process.crawl("windows", window={"site": site, "since": SINCE})
process.start()
"""


def test_a_dict_with_a_date_in_it_tells_crawls_apart(project):
    """Three starts at once in one process are three crawls: each scrapes the pages of its site."""
    project.write(WINDOWS, 'FEEDS = {"out.jl": {"format": "jsonlines"}}')
    script = project.directory / "three.py"
    script.write_text(AT_ONCE.replace("SINCE", "date(2026, 11, 28)"))

    run = project.finish(project.start_python(str(script)))

    assert run.code == 0, run.log
    assert _warnings(run) == []
    items = [json.loads(line) for line in (project.directory / "out.jl").read_text().splitlines()]
    wanted = {
        (site, f"{project.site_url}/page/{site}/{n}")
        for site in ("one", "two", "three")
        for n in range(10)
    }
    assert sorted((one["own"], one["url"]) for one in items) == sorted(wanted)
    assert len(project.rows(CRAWLS)) == 3


def test_starts_that_cannot_be_told_apart_do_not_run_beside_each_other(project):
    """Values that do not count: one of three runs, the others are refused with what to do."""
    project.write(WINDOWS, 'FEEDS = {"out.jl": {"format": "jsonlines"}}')
    script = project.directory / "three.py"
    script.write_text(AT_ONCE.replace("SINCE", "object()"))

    run = project.finish(project.start_python(str(script)))
    again = project.finish(project.start_python(str(script)))

    refused = [line for line in run.log.splitlines() if "runs in the same crawl" in line]
    assert len(refused) == 2, run.log
    assert "ITEMGRAPH_IGNORED_ARGUMENTS = 'window'" in refused[0]
    assert sum("do not count: window" in line for line in _warnings(run)) == 3
    assert again.log.count("runs in the same crawl") == 2
    items = [json.loads(line) for line in (project.directory / "out.jl").read_text().splitlines()]
    assert len(items) == 20
    assert all(f"/page/{one['own']}/" in one["url"] for one in items)
    assert project.rows(CRAWLS) == [("windows",)]


def test_no_start_joins_one_whose_arguments_do_not_all_count(project, cats):
    """A start without the argument is refused while one with it lives, and goes on after that.

    A start with other arguments, which is another crawl, runs beside it.
    """
    script = project.directory / "since.py"
    script.write_text("""
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

settings = get_project_settings()
settings.set("ITEMGRAPH_IDLE", "wait")
process = CrawlerProcess(settings)
process.crawl("cats", cat="books", since=object())
process.start()
""")
    first = project.start_python(str(script))
    until(lambda: project.rows("SELECT has_started FROM workers") == [(True,)], project.log)

    refused, beside = cats("cat=books"), cats("cat=music")
    first.terminate()
    project.finish(first)
    after = cats("cat=books")

    (line,) = [line for line in refused.log.splitlines() if "runs in the same crawl" in line]
    assert "another start of the spider cats" in line
    assert "that one differs in arguments that do not count: since." in line
    assert "ITEMGRAPH_IGNORED_ARGUMENTS = 'since'" in line
    assert "item_scraped_count" not in refused.stats
    assert "Traceback" not in refused.log
    for run in (beside, after):
        assert run.stats["item_scraped_count"] == 4, run.log
    assert project.rows(CRAWLS) == [("cats:cat=books",), ("cats:cat=music",)]


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def __init__(self, *args, **kwargs):
        super().__init__(self, *args, **kwargs)

    def parse(self, response):
        yield {"url": response.url}
""")
def test_a_spider_that_is_its_own_name_goes_by_that_of_its_class(run, project):
    """Plain Scrapy crawls with `super().__init__(self)`; so it does here, and a warning says so."""
    assert run.stats["item_scraped_count"] == 1, run.log
    assert "Traceback" not in run.log
    (warning,) = [line for line in _warnings(run) if "name of type" in line]
    assert "leave self out of super().__init__(self, …)" in warning
    assert project.rows(CRAWLS) == [("s",)]


def test_what_is_ignored_unsayable_or_secret(project, cats):
    """Ignored arguments make no crawl; a secret makes one, and its value stands nowhere."""
    runs = [
        cats("depth=1", ITEMGRAPH_IGNORED_ARGUMENTS="depth,dry"),
        cats("depth=2", "dry=1", ITEMGRAPH_IGNORED_ARGUMENTS="depth,dry"),
        cats("api_key=hunter2"),
        cats("api_key=hunter3"),
    ]

    assert {run.code for run in runs} == {0}, runs[0].log
    names = [name for (name,) in project.rows(CRAWLS)]
    assert len(names) == 3
    assert names[0] == "cats"
    assert all(name.startswith("cats:api_key=digest-") for name in names[1:])
    assert "hunter" not in str(project.rows("SELECT name, given::text FROM crawls"))


def test_a_crawl_of_before_is_adopted_by_whoever_would_have_made_it(project, cats):
    """By its stored digests; another start gets a crawl of its own, and a line how to join."""
    cats("cat=books")
    digests = crawl_arguments.old_digests({"cat": "books"})
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE crawls SET name = 'cats', given = NULL, identity = NULL, spider = NULL, "
            f"arguments = '{json.dumps(digests)}'"
        )
    engine.dispose()

    other = cats("cat=music")
    same = cats("cat=books")
    plain = cats()

    assert "-s ITEMGRAPH_CRAWL=cats" in other.log
    assert "-a cat=music -s ITEMGRAPH_CRAWL=cats" in other.log
    assert _warnings(same) == []
    assert [run.stats["item_scraped_count"] for run in (other, same, plain)] == [4, 4, 4]
    assert project.rows(CRAWLS) == [("cats",), ("cats:cat=music",), ("cats:own",)]


def test_a_name_joins_other_arguments_when_nothing_of_them_waits(project, cats, site):
    """ITEMGRAPH_CRAWL = "{name}": a warning; while work waits, a refusal that says what to type."""
    project.write(CATS.replace("/page/{self.cat}/{n}", "/gate/{self.cat}"))
    joined = {"ITEMGRAPH_CRAWL": "{name}"}
    killed = project.start("crawl", "cats", "-a", "cat=books", "-s", "ITEMGRAPH_CRAWL={name}")
    assert site.arrived.wait(60), project.log()
    kill(killed)
    site.may_answer.set()

    refused = cats("cat=music", **joined)
    ended = cats("cat=books", **joined)
    warned = cats("cat=music", **joined)

    assert refused.code == 1
    assert "scrapy crawl cats -a cat=books" in refused.log
    assert ended.code == warned.code == 0, warned.log
    assert "goes on with other arguments (-a cat=music)" in warned.log
    assert project.rows(CRAWLS) == [("cats",)]


def test_a_template_takes_given_arguments_first(project, cats):
    """What the spider makes of them counts where none is given."""
    cats("cat=books", ITEMGRAPH_CRAWL="{name}-{cat}")
    cats(ITEMGRAPH_CRAWL="{name}-{cat}")

    assert project.rows(CRAWLS) == [("cats-all",), ("cats-books",)]


def test_crawls_are_listed_by_spider_and_deleted(project, cats):
    """`status` lists them where none is named; `crawls delete` says what goes, and needs --yes."""
    for given in (["cat=books"], ["cat=music"], ["api_key=hunter2"]):
        assert cats(*given).code == 0

    status = project.scrapy("itemgraph", "status")
    near = project.scrapy("itemgraph", "tasks", "--crawl", "cats")
    listed = project.scrapy("itemgraph", "crawls", "list", "--json")
    asked = project.scrapy("itemgraph", "crawls", "delete", "cats:cat=books")
    wrong = project.scrapy("itemgraph", "crawls", "delete", "cats:cat=book", "--yes")
    deleted = project.scrapy(
        "itemgraph", "crawls", "delete", "cats:cat=books", "cats:cat=music", "--yes"
    )
    young = project.scrapy("itemgraph", "crawls", "delete", "--older-than", "30d", "--yes")

    assert "STATE" in status.output
    assert "cats:cat=books" in status.output
    assert "the database has cats:api_key=digest-" in near.log
    assert [one["spider"] for one in json.loads(listed.output)] == ["cats"] * 3
    assert asked.code == 1
    assert "add --yes" in asked.output
    assert wrong.code == 1
    assert "did you mean 'cats:cat=books'" in wrong.log
    assert "deleted the crawl cats:cat=books with 4 items" in deleted.output
    assert young.code == 0
    ((left,),) = project.rows(CRAWLS)
    assert left.startswith("cats:api_key=")
    assert project.rows("SELECT count(*) FROM items") == [(4,)]
    assert project.rows("SELECT count(DISTINCT crawl_id) FROM tasks") == [(1,)]

    aged = project.scrapy("itemgraph", "age", left, "31d")
    gone = project.scrapy(
        "itemgraph", "crawls", "delete", "--spider", "cats", "--older-than", "30d", "--yes"
    )

    assert aged.code == gone.code == 0
    assert project.rows(CRAWLS) == []


def test_a_crawl_that_is_loaded_goes_on_by_its_arguments(project, cats):
    """A dump keeps spider and arguments: the next start of these is the loaded crawl's."""
    cats("cat=books", ITEMGRAPH_DEFAULT_TTL="never")
    dumped = project.scrapy("itemgraph", "dump", "-o", "one.dump", "cats:cat=books")
    assert dumped.code == 0, dumped.log
    assert project.scrapy("itemgraph", "crawls", "delete", "cats:cat=books", "--yes").code == 0
    assert project.scrapy("itemgraph", "load", "one.dump").code == 0

    again = cats("cat=books", ITEMGRAPH_DEFAULT_TTL="never")

    assert again.stats["item_scraped_count"] == 1, again.log
    assert project.rows(CRAWLS) == [("cats:cat=books",)]
