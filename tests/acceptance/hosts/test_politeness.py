"""What a website sees of several processes, one of which is killed: every limit holds."""

from __future__ import annotations

import itertools
from datetime import timedelta
from urllib.parse import quote

import pytest
from support import polite_crawls, polite_site

from scrapy_itemgraph import ItemGraph

DELAY = 0.1
TOLERANCE = 0.015  # seconds between noting a send and the packet, on a machine with eight at once
SHARED = {"ITEMGRAPH_CLAIM_BATCH": 2}  # otherwise the first process takes a short crawl whole
RATE = {"ITEMGRAPH_RATE_LIMIT": "20/s"}
LOADS = list(itertools.product((1, 2, 4), (0, 15, 40)))  # processes, and milliseconds of blocking


def loads(*daily):
    """Return the loads as parameters; all but a few are slow."""
    slow = pytest.mark.slow
    return [pytest.param(*load, marks=() if load in daily else slow) for load in LOADS]


@pytest.fixture
def site():
    """Serve a site that stamps arrivals."""
    with polite_site.polite_site() as one:
        yield one


@pytest.fixture
def new_crawls(tmp_path, database):
    """Return a maker of crawls on the test's own database; it is given the site and settings."""
    made = []

    def new(site, settings=(), tasks=()):
        given = {"ITEMGRAPH_DATABASE_URL": database, **SHARED, **dict(settings)}
        made.append(polite_crawls.Crawls(site, tmp_path, given, dict(tasks)))
        return made[-1]

    yield new
    for crawls in made:
        crawls.stop()


def paths(log):
    """Return the pages that were fetched."""
    return {(one.host, one.path) for one in log}


def under(log, prefix):
    """Return the requests of a part of the site."""
    return [one for one in log if one.path.startswith(prefix)]


def assert_apart(log, seconds):
    """Assert that no two requests arrived closer to each other than so many seconds."""
    short = polite_site.short_gaps(log, seconds - TOLERANCE)
    assert not short, "\n".join(short)


# The delay of a slot


@pytest.mark.parametrize(("processes", "block_ms"), loads((1, 0), (2, 15)))
def test_no_gap_is_shorter_than_the_delay(site, new_crawls, processes, block_ms):
    """Also when callbacks block the loop, and when the worker that has the slot is killed."""
    crawls = new_crawls(site, {"DOWNLOAD_DELAY": DELAY})

    crawls.start(processes=processes, pages=30, block_ms=block_ms)
    log = crawls.kill_one(after=10).finish()

    assert len(paths(log)) == 30
    assert_apart(log, DELAY)


def test_no_gap_is_shorter_than_the_jittered_minimum(site, new_crawls):
    """With Scrapy's jitter no gap falls below half the delay."""
    settings = {"DOWNLOAD_DELAY": DELAY, "RANDOMIZE_DOWNLOAD_DELAY": True}

    log = new_crawls(site, settings).start(processes=2, pages=20).finish()

    assert len(paths(log)) == 20
    assert_apart(log, 0.5 * DELAY)


def test_hosts_of_one_slot_share_its_delay(site, new_crawls):
    """`meta["download_slot"]` makes a slot of several hosts, in all processes."""
    crawls = new_crawls(site, {"DOWNLOAD_DELAY": DELAY})

    log = crawls.start(processes=2, hosts=3, pages=7, slot="one").finish()

    assert len(paths(log)) == 21
    assert_apart(log, DELAY)


@pytest.mark.edge
def test_whatever_scrapy_sends_keeps_the_delay(new_crawls, tmp_path):
    """Redirects, retries, robots.txt and a media pipeline's files are paced with the pages."""
    settings = {
        "DOWNLOAD_DELAY": DELAY,
        "ROBOTSTXT_OBEY": True,
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": tmp_path / "files",
    }
    unsteady = quote("/moved/{n}?status=503&times=1", safe="{}")
    with polite_site.polite_site(robots="User-agent: *\nDisallow: /never") as site:
        crawls = new_crawls(site, settings)
        log = crawls.start(processes=2, pages=8, query=f"to={unsteady}", media=1).finish()
        assert_apart(log, DELAY)

    for kind in ("/page", "/moved", "/file"):
        assert len(paths(under(log, kind))) == 8, crawls.logs()
    assert [one.status for one in under(log, "/moved")].count(503) == 8
    assert under(log, "/robots.txt")


def test_redirects_to_one_host_keep_its_delay(site, new_crawls):
    """Pages of several hosts that all lead to another one are fetched there at its pace."""
    crawls = new_crawls(site, {"DOWNLOAD_DELAY": 0.2})
    query = f"to={site.url(50, '/target/{n}')}"

    log = crawls.start("shop", hosts=3, pages=3, query=query).finish(seconds=30)

    arrived = polite_site.of_host(log, 50)
    assert len(arrived) == 9
    assert_apart(arrived, 0.2)


@pytest.mark.parametrize(
    ("spider", "query"),
    [
        ("shop", "to=/target/{n}"),
        ("many", "to=/target/{n}"),
        ("many", "status=503&times=1"),
    ],
)
def test_what_is_sent_again_on_a_host_keeps_its_delay(site, new_crawls, spider, query):
    """Crawls whose pages are redirected within their host, or refused once, come to an end."""
    crawls = new_crawls(site, {"DOWNLOAD_DELAY": DELAY})

    log = crawls.start(spider, pages=4, query=query).finish(seconds=30)

    assert len(log) == 8
    assert [one.status for one in log].count(200) == 4
    assert_apart(log, DELAY)


@pytest.mark.parametrize("slot", ["", "shops"])
def test_the_crawl_delay_of_robots_txt_is_taken_up(new_crawls, slot):
    """Where robots.txt is obeyed, its Crawl-delay is the delay of the slot in all processes.

    So it is of a slot that the spider names, for the host's requests go there.
    """
    settings = {"DOWNLOAD_DELAY": DELAY, "ROBOTSTXT_OBEY": True}
    with polite_site.polite_site(robots="User-agent: *\nCrawl-delay: 0.3") as site:
        log = new_crawls(site, settings).start(processes=2, pages=8, slot=slot).finish()
        pages = under(log, "/page")
        assert_apart(pages, 0.3)

    assert len(paths(pages)) == 8


def test_retry_after_blocks_the_slot_for_all(site, new_crawls):
    """After a 503 that names a time nobody asks that host for anything before it."""
    query = "status=503&times=1&retry_after=1"

    log = new_crawls(site, {"DOWNLOAD_DELAY": DELAY}).start(processes=2, pages=3, query=query)
    log = log.finish()

    refusals = [one for one in log if one.status == 503]
    assert [one.status for one in log].count(200) == len(refusals) == 3
    for refusal in refusals:
        later = [one.arrival - refusal.end for one in log if one.arrival > refusal.end]
        assert min(later) >= 1 - TOLERANCE


def test_what_the_last_answer_asks_for_is_kept(site, new_crawls, database):
    """A run that ends with an answer's Retry-After leaves the slot blocked for the next one."""
    crawls = new_crawls(site, {"RETRY_ENABLED": False})

    crawls.start(pages=1, query="status=503&retry_after=600").finish()

    with ItemGraph.open(database) as graph:
        [slot] = [one for one in graph.limits.list() if one.name == polite_site.address(0)]
    assert slot.blocked_by == "http 503"


# What a page needs of a blocked host


BLOCKED = 9


@pytest.fixture
def graph(database):
    """Open the graph, in which a person has blocked a host."""
    with ItemGraph.open(database, auto_migrate=True) as graph:
        graph.limits.block(polite_site.address(BLOCKED), for_=timedelta(hours=1))
        yield graph


@pytest.fixture
def files(site, tmp_path):
    """Return the settings of a pipeline for files, and arguments for files of the blocked host."""
    settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": tmp_path / "files",
    }
    return settings, {"media": 1, "media_site": site.url(BLOCKED, "")}


@pytest.mark.parametrize("spider", ["many", "shop"])
def test_a_page_waits_for_its_file_on_a_blocked_host(site, new_crawls, files, graph, spider):
    """It is neither fetched again and again nor done without its file."""
    settings, arguments = files
    crawls = new_crawls(site, settings).start(spider, pages=2, **arguments)

    assert len(crawls.wait(2)) == 2
    graph.limits.unblock(polite_site.address(BLOCKED))
    log = crawls.finish()

    assert len(polite_site.of_host(log, 0)) == 2
    assert len(paths(polite_site.of_host(log, BLOCKED))) == 2


@pytest.mark.edge
def test_files_on_a_blocked_host_do_not_hold_up_other_hosts(site, new_crawls, files, graph):
    """More of them than Scrapy downloads at once wait while pages of other hosts are fetched."""
    settings, arguments = files
    crawls = new_crawls(site, {**settings, "CONCURRENT_REQUESTS": 4})

    log = crawls.start("many", hosts=3, pages=8, **arguments).wait(24)
    assert len(paths(under(log, "/page"))) == 24
    graph.limits.unblock(polite_site.address(BLOCKED))
    log = crawls.finish()

    assert len(under(log, "/page")) == 24
    assert len(under(log, "/file")) == 8


@pytest.mark.tracebacks("files.FileException")  # Scrapy before 2.15 says more of the same error
@pytest.mark.parametrize("spider", ["many", "shop"])
def test_ctrl_c_while_a_file_on_a_blocked_host_is_waited_for(
    site, new_crawls, files, graph, spider
):
    """The pages are given back, also those that wait for another one's file, and done later."""
    settings, arguments = files
    crawls = new_crawls(site, settings)

    log = crawls.start(spider, hosts=2, pages=2, **arguments).interrupt(after=4).finish()
    assert len(log) == len(under(log, "/page" if spider == "many" else "/list")) == 4
    graph.limits.unblock(polite_site.address(BLOCKED))
    log = crawls.start(spider, hosts=2, pages=2, **arguments).finish()

    assert len(polite_site.of_host(log, BLOCKED)) == 2
    assert len(log) == 4 + 4 + 2


# Concurrency


@pytest.mark.edge
@pytest.mark.parametrize(("processes", "block_ms"), loads((2, 0)))
def test_concurrency_never_rises_above_the_cap(site, new_crawls, processes, block_ms):
    """The cap of a slot holds at the server, over processes and through a kill."""
    crawls = new_crawls(site, {"CONCURRENT_REQUESTS_PER_DOMAIN": 2})

    crawls.start(processes=processes, pages=24, block_ms=block_ms, query="latency=0.2")
    log = crawls.kill_one(after=8).finish()

    assert len(paths(log)) == 24
    most = polite_site.highest_concurrency(log)
    assert most <= 2


def test_a_task_runs_as_often_at_once_as_it_says(site, new_crawls):
    """`@task(concurrency=1)` holds over hosts and processes."""
    crawls = new_crawls(site, tasks={"shop:list": {"concurrency": 1}})

    log = crawls.start("shop", processes=2, hosts=4, pages=5, query="latency=0.1").finish()

    assert len(paths(log)) == 20
    most = polite_site.highest_concurrency(log)
    assert most == 1


# Rates


@pytest.mark.parametrize(("processes", "block_ms"), loads((2, 0)))
def test_the_global_rate_holds_for_all_hosts(site, new_crawls, processes, block_ms):
    """ITEMGRAPH_RATE_LIMIT spaces the requests to all hosts, through a kill."""
    crawls = new_crawls(site, RATE)

    crawls.start(processes=processes, hosts=10, pages=6, block_ms=block_ms)
    log = crawls.kill_one(after=20).finish()

    assert len(paths(log)) == 60
    assert_apart(log, 1 / 20)
    most = polite_site.most_in(log, 1 - TOLERANCE)
    assert most <= 21


def test_the_global_rate_holds_for_two_crawls_at_once(site, new_crawls):
    """The limit is the database's, not a crawl's."""
    crawls = new_crawls(site, RATE)

    crawls.start("many", hosts=5, pages=6)
    crawls.start("more", base=5, hosts=5, pages=6)
    log = crawls.finish()

    assert len(paths(log)) == 60
    assert_apart(log, 1 / 20)


def test_a_task_may_be_exempt_from_the_global_rate(site, new_crawls):
    """A task with `exempt_global` goes on while another one waits for the limit."""
    crawls = new_crawls(
        site,
        {"ITEMGRAPH_RATE_LIMIT": "4/s"},
        {"shop:list": {"exempt_global": True}},
    )

    log = crawls.start("shop", hosts=4, pages=2, kinds="list,detail").finish()

    assert len(paths(log)) == 16
    assert_apart(under(log, "/detail"), 1 / 4)
    assert polite_site.gaps(under(log, "/list"))[0] < 1 / 4 - TOLERANCE


@pytest.mark.parametrize(
    ("settings", "tasks", "limited"),
    [
        ({}, {"shop:list": {"rate_limit": "10/s"}}, "/list/"),
        ({}, {"shop:list": {"rate_limit_by_tag": {"slow": "10/s"}}}, "/list/slow/"),
        ({"ITEMGRAPH_RATE_GROUPS": {"shop:*": "10/s"}}, {}, "/"),
    ],
    ids=["task", "tag", "group"],
)
def test_the_rate_of_some_work_holds(site, new_crawls, settings, tasks, limited):
    """What a limit of a task, a tag or a group applies to is spaced over hosts and processes."""
    crawls = new_crawls(site, settings, tasks)

    log = crawls.start("shop", processes=2, hosts=4, pages=4, kinds="list,detail").finish()

    assert len(paths(log)) == 32
    assert_apart(under(log, limited), 1 / 10)
