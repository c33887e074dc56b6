"""How far a run is: what is known of a crawl stands somewhere at each moment, and once."""

from __future__ import annotations

import re
import time

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import status

BINS = (
    "done",
    "earlier",
    "waiting",
    "running",
    "later",
    "failed",
    "gone",
    "refused",
    "given_up",
)

# Pages that link to further ones, beside tasks; of both some fail, and one is tried again later.
SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(12):
            path = {2: "/status/410", 3: "/status/404", 5: "/flaky/1"}.get(number)
            yield seed(f"ITEM:{number}", path or f"/page?task={number}")

    async def start(self):
        yield scrapy.Request(f"{SITE}/page?start")

    @task(tags=["page"], backoff=0.1)
    def work(self, response, item):
        yield CreateItem(id=f"DATA:{item.id}", data={})

    def parse(self, response):
        for number in range(20):
            yield response.follow(f"/page?plain={number}", self.parse_page)

    def parse_page(self, response):
        if response.url.endswith("=7"):
            raise ValueError("no price")
        yield {"url": response.url}
        yield response.follow("/page?plain=3", self.parse_page)
"""

SETTINGS = """
ITEMGRAPH_ANSWERS = {410: "gone"}
DOWNLOAD_DELAY = 0.05
RANDOMIZE_DOWNLOAD_DELAY = False
"""

# Every pair that a tag calls for: a task of an item, or a page of a plain callback.
CALLED_FOR = sa.text("""
    SELECT count(*) FROM (
        SELECT DISTINCT g.item_id, m.task_id FROM tags g
        JOIN task_tags m ON m.crawl_id = g.crawl_id AND m.tag_name = g.tag_name
        JOIN tasks t ON t.id = m.task_id AND t.is_registered) AS pairs
""")


def look(engine):
    """Return the status of the crawl, and how many pairs there are, in one snapshot."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        crawl = connection.scalar(sa.text("SELECT id FROM crawls"))
        if crawl is None:
            return None
        pairs = connection.scalar(CALLED_FOR)
        return status.status(connection, crawl), pairs


@pytest.mark.tracebacks("ValueError: no price")
def test_what_is_known_stands_somewhere_at_each_moment_of_a_crawl(project):
    """Done, waiting, running, later, failed, gone and the rest are all pages and tasks there are.

    That holds for pages of plain callbacks and for tasks, while a run goes on, after it, and in the
    next one, where what earlier runs did is apart.
    """
    project.write(SPIDER, SETTINGS)
    engine = engines.sync_engine(project.url)
    seen = []
    try:
        for _ in range(2):
            process = project.start("crawl", "s")
            while process.poll() is None:
                seen.append(look(engine))
                time.sleep(0.05)
            assert project.finish(process).code == 0
            seen.append(look(engine))
            last, _ = seen[-1]
            if last["run"]["number"] == 1:
                first = last
    finally:
        engine.dispose()

    found = [(found["progress"], pairs) for found, pairs in filter(None, seen)]
    for progress, pairs in found:
        assert progress["known"] == pairs == sum(progress[name] for name in BINS), progress
    for name in ("waiting", "running", "failed", "done", "earlier"):
        assert any(progress[name] for progress, _ in found), name
    one, two = first["progress"], last["progress"]
    assert (one["known"], one["done"], one["failed"], one["gone"]) == (33, 30, 2, 1)
    assert (one["waiting"], one["running"], one["to_do"]) == (0, 0, 32)
    assert one["share"] == round(30 / 32, 4)  # nobody can do the page that is gone
    assert first["run"]["items"] == 19
    # The next run fetches again what it reaches; tasks' results are good still.
    assert (two["known"], two["done"], two["failed"], two["earlier"]) == (33, 20, 2, 10)
    assert (two["to_do"], last["run"]["failures"]) == (21, 1)  # the task's failed before
    human = project.scrapy("itemgraph", "status").output
    assert re.search(
        r"^progress +20 of 21 in this run \(95%\), 10 fresh before: 0 waiting, 0 running, "
        r"0 later, 2 failed, 1 gone$",
        human,
        re.MULTILINE,
    )
    assert re.search(r"^scraped +19 items in this run$", human, re.MULTILINE)
    assert re.search(r"^answers +200: 2\d; \d+(\.\d+)? k?B$", human, re.MULTILINE)
