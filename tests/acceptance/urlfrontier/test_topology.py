"""A crawler such as StormCrawler at work: four spouts, four updaters, a thousand hosts."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack

import pytest
from support import frontier, topologies
from support.topologies import Web

pytestmark = pytest.mark.server

IS_SLOW = os.environ.get("ITEMGRAPH_TEST_SLOW") == "1"
HOSTS = 1000


def crawl_for(seconds):
    """Let a crawl go on for so long."""
    threading.Event().wait(seconds)


def until(is_so, seconds):
    """Let a crawl go on until something is so, for so long at most; tell whether it is."""
    latest = time.monotonic() + seconds
    while not is_so() and time.monotonic() < latest:
        crawl_for(0.5)
    return bool(is_so())


def fetched_again(ledger):
    """Return the URLs that were fetched more than once."""
    return [url for url, times in list(ledger.fetched.items()) if times > 1]


def assert_all_is_there(client, ledger):
    """Show that the frontier has what was put, and what was said of it last."""
    assert ledger.wrong == []
    listed = {
        one.known.info.url: one.known.refetchable_from_date
        for one in client.ask("ListURLs", size=2**31 - 1)
    }
    assert listed.keys() == ledger.told
    assert {url: listed[url] for url in ledger.dates} == ledger.dates
    assert all(listed[url] for url in listed.keys() - ledger.dates.keys())
    assert min(ledger.fetched.values()) >= 1


def test_a_topology_fetches_each_url_once_per_schedule(served):
    """UF-5, UF-8, UF-13: no tuple expires, no URL has two holders, each queue has its delay."""
    web = Web(hosts=HOSTS, pages=20, period=4)
    with topologies.crawling(
        served.address, web, pause=2.0 if IS_SLOW else 0.5, default_delay=1
    ) as ledger:
        has_begun = until(lambda: len(ledger.fetched) > 100 and fetched_again(ledger), seconds=180)

    assert has_begun
    assert_all_is_there(served.client, ledger)
    assert ledger.lost_streams == 0
    assert all(web.date(url) for url in fetched_again(ledger))


@pytest.mark.slow
def test_a_topology_goes_on_for_ten_minutes_over_two_kills(database):
    """UF-5, UF-8, UF-13: all of that for ten minutes, in which the server is killed twice."""
    web = Web(hosts=HOSTS, pages=500, period=60)
    with ExitStack() as stack:
        first = stack.enter_context(frontier.serving(database))
        address = first.address
        port = address.rpartition(":")[2]
        running = first
        crawl = topologies.crawling(address, web, pause=2.0, default_delay=1, is_expected=True)
        with crawl as ledger:
            for _ in range(2):
                crawl_for(200)
                running.process.send_signal(signal.SIGKILL)
                running.process.wait()
                running = stack.enter_context(frontier.serving(database, "--port", port))
            crawl_for(200)

        assert_all_is_there(running.client, ledger)
        assert ledger.lost_streams > 0
