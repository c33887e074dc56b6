"""No number ends a crawl or holds it open: neither a website's, nor a person's, nor a row's."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from conftest import new_database
from support import odd_rows

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph

OBEDIENT = "ROBOTSTXT_OBEY = True\n"
TWO_SITES = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1", SITE.replace("127.0.0.1", "localhost") + "/page/2"]

    def parse(self, response):
        yield UpdateData({"done": True})
"""
ODD_DELAYS = ["1e-320", "5e-324", "0.0009", "nan", "inf", "-1", "9" * 400]


@pytest.mark.parametrize("delay", ODD_DELAYS)
def test_a_website_that_asks_for_an_odd_delay_is_crawled_at_each_start(project, site, delay):
    """Its robots.txt ends neither this crawl, nor the next, nor another one of the database."""
    site.robots = f"User-agent: *\nCrawl-delay: {delay}\n"
    project.write(TWO_SITES, OBEDIENT + "ITEMGRAPH_MAX_CRAWL_DELAY = 0.01\n")

    runs = [project.crawl(), project.crawl(), project.crawl("-s", "ITEMGRAPH_CRAWL=other")]

    for run in runs:
        assert run.stats["reason"] == "finished", run.log
    assert all(site.hits[f"/page/{n}"] == 3 for n in (1, 2)), site.hits
    ((least, most),) = project.rows("SELECT min(crawl_delay), max(crawl_delay) FROM limits")
    assert least is None or 0.001 <= least <= most <= 0.01


def test_a_website_cannot_hold_a_crawl_open_by_its_delay(project, site):
    """ITEMGRAPH_MAX_CRAWL_DELAY caps a Crawl-delay of 1e308, which is said once per site."""
    site.robots = "User-agent: *\nCrawl-delay: 1e308\n"
    project.write(TWO_SITES, OBEDIENT + "ITEMGRAPH_MAX_CRAWL_DELAY = 0.2\n")

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    said = [line for line in run.log.splitlines() if "ITEMGRAPH_MAX_CRAWL_DELAY allows" in line]
    assert len(said) == 2, said
    assert project.rows("SELECT DISTINCT crawl_delay FROM limits WHERE crawl_delay > 0") == [(0.2,)]


OBEYS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1", SITE + "/page/2", SITE + "/page/3"]

    def parse(self, response):
        pass
"""


def test_of_a_large_robots_txt_the_first_500_kib_count(project, site):
    """A plain spider keeps to these rules, and is told that there are more; its own parser wins."""
    filler = "".join(f"Disallow: /nowhere/{number}\n" for number in range(30_000))
    site.robots = f"User-agent: *\nDisallow: /page/2\n{filler}Disallow: /page/3\n"
    project.write(OBEYS, OBEDIENT)

    run = project.crawl()
    own = project.crawl(
        *("-s", "ROBOTSTXT_PARSER=scrapy.robotstxt.PythonRobotParser"),
        *("-s", "ITEMGRAPH_CRAWL=other"),
    )

    assert (site.hits["/page/1"], site.hits["/page/2"], site.hits["/page/3"]) == (2, 0, 2)
    for one in (run, own):
        assert one.stats["robotstxt/forbidden"] == 1, one.log
        assert one.log.count("count, and no rule behind them") == 1


def test_a_delay_that_a_person_sets_below_a_millisecond_is_none(project):
    """It ends no crawl, and what the settings and robots.txt say holds again."""
    project.write(TWO_SITES)
    project.crawl()
    with ItemGraph.open(project.url, "s") as graph:
        for seconds in (5e-324, 1e-320, 0.0009):
            assert graph.limits.set_delay("127.0.0.1", seconds).limit.set_gap is None
        for seconds in (float("nan"), float("inf"), -1.0, 0, 1e308):
            with pytest.raises(OperationError):
                graph.limits.set_delay("127.0.0.1", seconds)

    assert project.crawl().stats["reason"] == "finished"


# Which columns have an odd number at the same time.
TOGETHER = (
    ("items", "results", "failures", "attempts"),
    ("work", "queues", "tasks", "kinds"),
    (
        *("workers", "crawls", "limits", "holdings", "sweeps", "handed", "tags", "logins"),
        *("cookies", "spider_state", "journal", "feeds", "blobs", "blob_contents"),
        *("commit_tokens", "task_minutes", "limit_minutes", "tokens"),
        *("task_latencies", "slot_latencies"),
    ),
)


def together(tables, url, number):
    """Put the odd numbers of this place into all columns of some tables, as far as they go in."""
    columns = {}
    for odd in odd_rows.every():
        if odd.table in tables and not odd.is_reference:
            columns.setdefault((odd.table, odd.column), []).append(odd)
    chosen = [odds[number % len(odds)] for odds in columns.values()]
    return [str(odd) for odd in chosen if odd.put_into(url)]


@pytest.mark.tracebacks("ValueError: odd", "is no JSON object", "Unreadable", "left out")
@pytest.mark.parametrize(
    "numbers", [(0, 1), pytest.param(range(7), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_no_number_in_a_row_ends_a_crawl(project, server_url, site, numbers):
    """Whatever stands in the columns that a worker reads, it does its other work, and people too.

    What is infinite, no number, negative, tiny, huge, or a moment that Python cannot say is refused
    by the database, or read as something that can be kept to.
    """
    odd_rows.fill(project, site.arrived.is_set)
    site.may_answer.set()
    with ExitStack() as stack:
        put = {}
        for tables in TOGETHER:
            for number in numbers:
                url = stack.enter_context(new_database(server_url, project.url))
                put[url] = together(tables, url, number)

        ended = odd_rows.crawl(project, list(put))

        found = {url: (how["reason"], odd_rows.wrongs_of(url)) for url, how in ended.items()}
        wrong = [(found[url], put[url]) for url in put if found[url] != ("finished", [])]
        assert not wrong
