"""Work of items with a tag, which is found in two ways: by the tag, or by the tasks' work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.graphs import Crawl

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.store.admin import outstanding

TASKS = {
    "parse": {"tags": ["page"]},
    "weigh": {"tags": ["heavy"]},
    "both": {"tags": ["page", "heavy"]},
}


@pytest.mark.parametrize("rare", [0, outstanding.RARE])
def test_work_of_a_tag_is_the_same_whether_few_or_many_have_it(connection, monkeypatch, rare):
    """The outstanding work of its items for tasks that it calls for, in order, and no other."""
    monkeypatch.setattr(outstanding, "RARE", rare)
    crawl = Crawl.of(connection, **TASKS)
    crawl.work("PAGE", nice=2)
    crawl.work("HEAVY", tags=["heavy"])
    crawl.work("FIRST", tags=["page", "heavy"], nice=-1)
    crawl.claimed("CLAIMED", tags=["heavy"], task="weigh")

    def found(tag, **given):
        rows = outstanding.worklist(
            connection, crawl.id, tag=tag, **{"task": None, "limit": 10, **given}
        )
        return [f"{row.item} {row.task}" for row in rows]

    assert sorted(found("heavy")) == [
        "CLAIMED both",
        "FIRST both",
        "FIRST weigh",
        "HEAVY both",
        "HEAVY weigh",
    ]
    assert {one.split()[0] for one in found("heavy", limit=2)} == {"FIRST"}
    assert found("page", task="parse") == ["FIRST parse", "PAGE parse"]
    assert found("nobody") == []


@pytest.mark.parametrize("rare", [0, outstanding.RARE])
@pytest.mark.parametrize("tag", [None, "heavy"])
def test_pages_of_work_are_the_worklist_in_parts(database, engine, monkeypatch, tag, rare):
    """Page after page has all of it once, in its order, from the least nice to delayed work."""
    monkeypatch.setattr(outstanding, "RARE", rare)
    with engine.begin() as connection:
        crawl = Crawl.of(connection, **TASKS)
        crawl.work("FIRST", tags=["heavy"], nice=-(2**31))
        crawl.work("PAGE")
        crawl.work("BOTH", tags=["page", "heavy"])
        crawl.work("LATE", tags=["heavy"], not_before=datetime.now(UTC) + timedelta(days=1))
        crawl.work("LAST", tags=["heavy"], nice=2**31 - 1)
        for name in ("A", "B"):
            crawl.done(name, tags=["heavy"], task="weigh")
    with ItemGraph.open(database) as graph:
        graph.expire("A")
        whole = [(row.item, row.task) for row in graph.worklist(tag=tag)]
        rows, after, pages = [], None, 0
        while after is not None or not pages:
            page = graph.lookup.work(tag=tag, after=after, limit=1)
            rows += page.rows
            after, pages = page.after, pages + 1
        delayed = graph.lookup.work(tag=tag, state="delayed").rows
        ready = graph.lookup.work(tag=tag, state="ready", slot="a.example").rows
        with pytest.raises(OperationError, match="leave the state or the tag out"):
            graph.lookup.work(tag="heavy", state="claimed")

    assert [(row.item, row.task) for row in rows] == whole
    assert pages == len(whole) == len(set(whole)) > 8
    assert {row.item for row in delayed} == {"LATE"}
    assert [*delayed, *ready] == sorted(rows, key=lambda row: row.state)
