"""Work of items with a tag, which is found in two ways: by the tag, or by the tasks' work."""

from __future__ import annotations

import pytest
from graphs import Crawl

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
