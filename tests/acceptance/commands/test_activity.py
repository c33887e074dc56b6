"""What a crawl leaves for people to look at: its minutes, its workers, its failures."""

from __future__ import annotations

import pytest

from scrapy_itemgraph import ItemGraph
from scrapy_itemgraph.tools import code_files

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for name in ("GOOD:1", "BAD:1", "BAD:2", "MISSING:1", "RETRIED:1"):
            paths = {"MISSING:1": "/status/404", "RETRIED:1": "/flaky/1"}
            yield seed(name, paths.get(name, f"/page?{name}"))

    @task(tags=["page"], backoff=0.1)
    def parse(self, response, item):
        if item.id.startswith("BAD"):
            raise ValueError(f"no price in {item.id}, for the {item.id[-1]}th time")
        yield CreateItem(id=f"OTHER:{item.id}", data={})
"""


@pytest.mark.tracebacks("ValueError: no price")
def test_what_was_done_can_be_looked_at(project):
    """A crawl tells what it did by the minute, and its workers; a failure has what explains it."""
    project.write(SPIDER)

    assert project.crawl().code == 0

    with ItemGraph.open(project.url, "s") as graph:
        minutes, (worker,), requests = (
            graph.activity.minutes(),
            graph.activity.workers(),
            graph.activity.requests(),
        )
        seconds = graph.activity.seconds(worker.started_at)
        failures, in_all = graph.failures.list(), graph.activity.totals()
        (run,) = graph.crawls.runs()
    of_task = [one for one in minutes if one.task == "parse"]
    ends = [sum(one[at] for one in of_task) for at in (2, 3, 4, 5, 6)]
    assert ends == [2, 1, 3, 0, 2]
    assert sum(one.seconds for one in of_task) > 0
    assert sum(one.items for one in minutes if one.task is None) == 5
    assert [sum(one[at] for one in seconds) for at in (1, 2, 3)] == [2, 3, 7]
    of_none, totals = in_all
    assert of_none.items == 5
    assert (totals.task, *totals[1:6]) == ("parse", 2, 1, 3, 0, 0)
    assert totals.statuses == run.statuses == {"200": 4, "404": 1, "503": 1}
    assert 0 < totals.bytes == run.bytes
    assert (run.pages, run.retried, run.failures) == (2, 1, 3)
    assert sum(one.requests for one in requests if one.name == "127.0.0.1") == 6
    assert (worker.reason, worker.is_dead, worker.claims) == ("finished", False, 0)
    assert worker.memory > 10_000_000
    assert worker.error.startswith("[failed] spider s, task parse, item ")
    assert worker.started_at < worker.error_at
    assert worker.code == code_files.digest(worker.code_file)
    errors = [one.error for one in failures]
    placed = {one.item: one.error.get("place", "").endswith(".S.parse") for one in failures}
    assert placed == {"BAD:1": True, "BAD:2": True, "MISSING:1": False}
    assert all(error["snippet"] for error in errors)
    assert project.rows("SELECT count(DISTINCT fingerprint), count(*) FROM failures") == [(2, 3)]
    snippets = "SELECT count(*) FROM attempts WHERE error->>'snippet' IS NOT NULL"
    assert project.rows(snippets) == [(0,)]


@pytest.mark.tracebacks("ValueError: no price")
def test_keep_snippets_0_keeps_none(project):
    """With ITEMGRAPH_KEEP_SNIPPETS = 0 nothing of a page is kept with its failure."""
    project.write(SPIDER, "ITEMGRAPH_KEEP_SNIPPETS = 0")

    assert project.crawl().code == 0

    assert project.rows("SELECT count(*) FROM failures WHERE error->>'snippet' IS NULL") == [(3,)]
