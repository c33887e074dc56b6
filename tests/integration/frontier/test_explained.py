"""Why a URL is not given to a crawler, and who has it, in words."""

from __future__ import annotations

import time

import pytest
from support import frontiers, races
from support.frontiers import url

from scrapy_itemgraph import task
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.frontier_controls import FrontierControls

pytestmark = pytest.mark.server

CRAWL, KEY = "DEFAULT", "a.example"
PAGE = "http://a.example/1"
QUEUE = "the queue 'a.example' of the frontier"
BLOCKED = f"{QUEUE} is blocked for crawlers until 2096-10-02 07:06:40 UTC (BlockQueueUntil)"


class Fetching:
    @task(name="fetch", tags=["url"])
    def fetch(self, response, item): ...


@pytest.fixture
def server(engine):
    """Yield a frontier on a database of its own, with two URLs of a queue."""
    with frontiers.opened(engine) as one:
        one.put(url(PAGE), url("http://a.example/2"))
        yield one


@pytest.fixture
def set_(server):
    """Return what sets something."""
    parts = FrontierControls(server.transactions, server.own)
    return lambda name, *args, **given: server.run(getattr(parts, name)(*args, **given))


def explained(database, name=PAGE):
    """Return whether a URL may be fetched now, and what is said of it."""
    with ItemGraph.open(database, crawl=CRAWL) as graph:
        (one,) = graph.explain(name)
    return one.is_eligible, one.reasons


def test_a_url_that_waits_for_a_crawler_is_next(server, database):
    """UF-13: nothing is against it."""
    assert explained(database) == (
        True,
        ("it is next in its queue of the slot 'a.example': never run",),
    )


def test_a_held_url_was_given_to_a_crawler(server, database):
    """UF-13: until when is said; and the next of its queue waits for the delay."""
    assert server.get(hold=300, urls_per_queue=1) == [PAGE]
    is_eligible, (hold, *_) = explained(database)
    assert not is_eligible
    ((until,),) = server.rows("SELECT not_before FROM work WHERE tries = 1")
    assert hold == (
        f"it was given to a crawler until {until:%Y-%m-%d %H:%M:%S %Z}, which has not said yet "
        "what became of it"
    )
    server.change("UPDATE frontier_queues SET delay = 500")
    is_eligible, (delay,) = explained(database, "http://a.example/2")
    assert not is_eligible
    assert delay.startswith("the queue 'a.example' of the frontier was served ")
    assert delay.endswith(": its delay is 500s (SetDelay)")
    server.pass_seconds(301)
    is_eligible, (delay,) = explained(database)
    assert delay.startswith("the queue 'a.example' of the frontier was served 5m")


def test_a_retry_of_a_spider_is_no_hold(server, database):
    """UF-13: it has a moment, not a second."""
    server.change("UPDATE work SET tries = 1, not_before = now() + interval '100.4 s'")
    _, reasons = explained(database)
    (reason,) = reasons
    assert reason.startswith("it may not start for another 1m ")
    assert reason.endswith(" after 1 tries")


def test_blocks_limits_and_pauses_are_told(server, set_, database):
    """UF-6, UF-7, UF-12: each with the call that set it."""
    set_("block_until", CRAWL, KEY, 4_000_000_000)
    server.put(url("http://a.example/2", 0))
    set_("set_limit", CRAWL, KEY, 1)
    set_("set_active", False, local=False)
    assert explained(database) == (
        False,
        (
            "crawlers get nothing: the frontier is paused (SetActive)",
            BLOCKED,
            f"{QUEUE} has 1 completed URL, and its limit is 1 (SetCrawlLimit)",
        ),
    )
    set_("block_until", CRAWL, KEY, 2**63 - 1)
    assert "until 9999-12-30 00:00:00 UTC" in explained(database)[1][1]


def test_a_date_and_a_queue_that_is_deleted_are_told(server, database):
    """UF-5: a date that is to come keeps everybody from it."""
    server.put(url(PAGE, int(time.time()) + 7300))
    server.change("UPDATE frontier_queues SET is_deleting = true")
    is_eligible, (date, deletion) = explained(database)
    assert not is_eligible
    assert date == "it may not start for another 2h 1m"
    assert deletion == "the queue 'a.example' of the frontier is being deleted"


def test_a_block_for_crawlers_does_not_keep_a_spider_from_a_url(server, set_, engine, database):
    """UF-13: it is told, and the URL may be fetched by the spider all the same."""
    races.Crawl(engine, Fetching, CRAWL)
    set_("block_until", CRAWL, KEY, 4_000_000_000)
    assert explained(database) == (
        True,
        (
            "it is next in its queue of the slot 'a.example': never run",
            BLOCKED,
        ),
    )


def test_a_slot_that_a_worker_has_is_told(server, engine, database):
    """UF-13: while a worker has it for itself crawlers get nothing of it."""
    crawl = races.Crawl(engine, Fetching, CRAWL)
    worker = crawl.worker()
    server.change("UPDATE queues SET holder = :worker", worker=worker)
    is_eligible, reasons = explained(database)
    assert reasons[-1] == (
        f"worker {worker} has the slot 'a.example' for itself: crawlers wait for it"
    )
    assert is_eligible
