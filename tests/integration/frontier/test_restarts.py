"""Commands that change a whole crawl, where it has a frontier."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from support.frontiers import OK, url

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.store.admin import crawl_changes

pytestmark = pytest.mark.server

CRAWL, KEY = "DEFAULT", "a.example"


def test_a_crawl_that_is_restarted_keeps_what_is_set_for_its_queues(server, database):
    """UF-12: nothing counts as completed any more, and URLs are new again."""
    server.put(url("http://a.example/1", 0))
    server.run(FrontierControls(server.transactions, server.own).set_limit(CRAWL, KEY, 1))
    with ItemGraph.open(database, CRAWL) as graph:
        assert graph.crawls.restart()["items"] == 1
    assert server.rows("SELECT crawl_limit, completed FROM frontier_queues") == [(1, 0)]
    assert server.put(url("http://a.example/1")) == [OK]
    assert server.get() == ["http://a.example/1"]


def test_blocks_delays_and_holds_age_with_their_crawl(server):
    """UF-6, UF-8: after as much time as has passed they are over."""
    controls = FrontierControls(server.transactions, server.own)
    server.put(url("http://a.example/1"), url("http://a.example/2"))
    server.run(controls.set_delay(CRAWL, KEY, 500))
    assert len(server.get(urls_per_queue=1, hold=100)) == 1
    server.run(controls.block_until(CRAWL, KEY, int(time.time()) + 900))
    ((crawl_id,),) = server.rows("SELECT id FROM crawls")
    with server.engine.begin() as connection:
        crawl_changes.age(connection, crawl_id, timedelta(seconds=800))
    assert server.get(key=KEY) == []
    with server.engine.begin() as connection:
        crawl_changes.age(connection, crawl_id, timedelta(seconds=800))
    assert sorted(server.get(key=KEY)) == ["http://a.example/1", "http://a.example/2"]


def test_queues_that_wait_for_their_turn_age_with_their_crawl(server):
    """UF-6: a crawler that names no queue gets what is due of one that was blocked, too."""
    controls = FrontierControls(server.transactions, server.own)
    server.put(url("http://a.example/1"))
    server.run(controls.block_until(CRAWL, KEY, int(time.time()) + 900))
    assert server.get() == []
    ((crawl_id,),) = server.rows("SELECT id FROM crawls")
    with server.engine.begin() as connection:
        crawl_changes.age(connection, crawl_id, timedelta(seconds=1000))
    assert server.get() == ["http://a.example/1"]
