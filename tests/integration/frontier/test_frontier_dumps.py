"""A crawl with a frontier as a dump: loaded, it is the same frontier."""

from __future__ import annotations

import json
import time

import pytest
from support.frontiers import url

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.graph.frontier_listings import FrontierListings

pytestmark = pytest.mark.server

QUEUES = """
    SELECT l.name, f.delay, f.blocked_until, f.last_served, f.crawl_limit, f.completed,
        f.is_deleting
    FROM frontier_queues f JOIN queues q ON q.id = f.queue_id JOIN limits l ON l.id = q.slot_id
    JOIN crawls c ON c.id = f.crawl_id WHERE c.name = :crawl ORDER BY 1
"""


def test_queues_urls_and_holds_are_dumped_and_loaded(server, database):
    """UF-13: delays, blocks, limits, dates, completed URLs and holds are as they were."""
    later = int(time.time()) + 9999
    server.put(url("http://a.example/1", colour="red"), url("http://a.example/2", later))
    server.put(url("http://b.example/1", 0), url("http://b.example/2", 5, key="c"))
    controls = FrontierControls(server.transactions, server.own)
    server.run(controls.set_delay("DEFAULT", "a.example", 60))
    server.run(controls.block_until("DEFAULT", "c", later))
    server.run(controls.set_limit("DEFAULT", "b.example", 7))
    assert server.get(hold=600) == ["http://a.example/1"]

    with ItemGraph.open(database, "DEFAULT") as graph:
        dumped = list(graph.crawls.dump())
    with ItemGraph.open(database, "moved") as graph:
        counts = graph.crawls.load(dumped)
        again = list(graph.crawls.dump())

    assert counts == {"items": 4, "failures": 0, "scraped": 0, "queues": 3}
    assert json.loads(dumped[-1])["queues"] == 3
    assert again[1:] == dumped[1:]
    assert server.rows(QUEUES, crawl="moved") == server.rows(QUEUES, crawl="DEFAULT")
    listings = FrontierListings(server.transactions)
    numbers = [server.run(listings.stats(crawl, None)) for crawl in ("DEFAULT", "moved")]
    assert numbers[0] == numbers[1]
    assert (numbers[1].size, numbers[1].in_process, numbers[1].completed) == (3, 1, 1)
    server.assert_is_true("moved")
    server.pass_seconds(601)
    assert server.get("moved", key="a.example") == ["http://a.example/1"]
