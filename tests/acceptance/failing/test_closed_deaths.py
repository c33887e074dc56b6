"""Spiders that close themselves, killed with -9 at drawn moments, and continued to the end."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from support import oracle
from support.projects import kill, until

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.postgres import engine as engines

# In a dose for `make test`; `make chaos` gives sixty kills.
KILLS = int(os.environ.get("ITEMGRAPH_CHAOS_KILLS", "4"))
PAGES = 20 * (KILLS + 2)
CONTINUE = ("-s", "ITEMGRAPH_CONTINUE=True")

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/slow/0.05/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {"number": number}
        for child in range(3 * number + 1, 3 * number + 4):
            if child < int(os.environ["PAGES"]):
                yield scrapy.Request(f"{SITE}/slow/0.05/{child}")
        if str(number) in os.environ["CLOSES"].split():
            raise CloseSpider("enough")
"""
SETTINGS = """
ITEMGRAPH_KEEP_ITEMS = True
ITEMGRAPH_LEASE = 3600
CONCURRENT_REQUESTS_PER_DOMAIN = 4
"""


def done(project) -> set[str]:
    """Return the pages that are done."""
    return {path for path, ends in project.request_outcomes().items() if "ok" in ends}


def wait(project, process, site, requests: int) -> None:
    """Wait for so many requests in all, or the end of a process."""
    until(
        lambda: site.hits.total() >= requests or process.poll() is not None,
        lambda: project.log(process),
    )


@pytest.mark.parametrize("seed", range(max(1, KILLS // 20)))
def test_a_spider_that_closes_itself_is_killed_and_continued(project, site, monkeypatch, seed):
    """Its run goes on with what it left: no page is lost, done twice or fetched again when done.

    The kills come at drawn requests, also as it closes; each start continues the one run.
    """
    choice = random.Random(seed)
    closes = choice.sample(range(1, PAGES - 1), 3)
    monkeypatch.setenv("PAGES", str(PAGES))
    monkeypatch.setenv("CLOSES", " ".join(map(str, closes)))
    project.write(SPIDER, SETTINGS)
    every = {f"/slow/0.05/{number}" for number in range(PAGES)}
    kills, starts, freed, ended = 0, 0, 0, Counter()
    before: set[str] = set()
    project.scrapy("itemgraph", "init")
    while before != every:
        hits = Counter(site.hits)
        process = project.start("crawl", "s", *(CONTINUE if starts else ()))
        starts += 1
        if kills < KILLS:
            wait(project, process, site, hits.total() + choice.randint(1, 2 * PAGES // KILLS))
        if kills < KILLS and process.poll() is None:
            kill(process)
            kills += 1
        else:
            run = project.finish(process)
            assert run.code == 0, run.log
            ended[run.stats["reason"]] += 1
        again = [page for page in before if site.hits[page] != hits[page]]
        assert not again, f"done, and fetched again: {again}"
        assert starts < 5 * (KILLS + 4), f"{len(before)} of {PAGES} pages done"
        with ItemGraph.open(project.url, crawl="s") as graph:
            freed += graph.pages.free_all(Hold.LEFT)
        before = done(project)

    assert freed
    assert ended["enough"] <= len(closes)
    kept = project.rows("SELECT CAST(fields->>'number' AS int) FROM journal ORDER BY 1")
    assert [number for (number,) in kept] == list(range(PAGES))
    oks = Counter({page: ends.count("ok") for page, ends in project.request_outcomes().items()})
    assert set(oks.values()) == {1}
    assert {run for (run,) in project.rows("SELECT number FROM runs")} == {1}
    assert project.rows("SELECT count(*) FROM results WHERE hold IS NOT NULL OR is_held") == [(0,)]
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
    last = project.crawl(*CONTINUE)
    assert last.stats["reason"] == "finished", last.log
    engine = engines.sync_engine(project.url)
    with engine.connect() as connection:
        oracle.assert_worklist_is_true(connection, project.rows("SELECT id FROM crawls")[0][0])
    engine.dispose()
