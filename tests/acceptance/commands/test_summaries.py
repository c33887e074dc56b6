"""What a person reads of work that does not run now."""

from __future__ import annotations

import pytest
from support.graphs import Crawl

from scrapy_itemgraph.store.admin import explain, status

pytestmark = pytest.mark.server


def left(crawl):
    """Return the line of the summary that says what is left."""
    return status.summary(crawl.connection, crawl.id).lines()[-1]


def test_a_summary_counts_work_that_waits_for_a_person_apart(connection):
    """Work of stopped tasks, and what was given up, is not said to be waiting."""
    crawl = Crawl.of(connection, parse={"tags": ["page"], "max_failures": 1})
    crawl.failed("A")
    crawl.work("B")

    stopped = status.summary(connection, crawl.id)
    assert stopped.waiting == stopped.claimed == 0
    assert left(crawl) == (
        "left: 1 of tasks stopped by max_failures (scrapy itemgraph handle --task TASK); "
        "1 held by a failure (scrapy itemgraph failures, handle)"
    )

    crawl.handle("parse", retry=False)

    assert status.summary(connection, crawl.id).waiting
    assert left(crawl) == (
        "left: 1 waiting; 1 given up by handle --no-retry (scrapy itemgraph expire)"
    )


@pytest.mark.parametrize("jealous", ["parse", "price"])
def test_work_beside_an_exclusive_task_is_explained(connection, jealous):
    """Work that waits for another claim on its item says so, and names the claimed task."""
    declared = {name: {"tags": ["page"]} for name in ("parse", "price")}
    declared[jealous]["exclusive"] = "item"
    crawl = Crawl.of(connection, **declared)
    crawl.work("A")
    claim = crawl.claim_pair("A", "parse")
    item = crawl.item_id("A")

    (why,) = explain.explain(connection, crawl.id, item, "price")
    assert why.reasons == (
        "'parse' of the item is claimed, and one of the two is exclusive=\"item\"",
    )
    assert not why.is_eligible

    crawl.release(claim)

    (why,) = explain.explain(connection, crawl.id, item, "price")
    assert why.is_eligible
