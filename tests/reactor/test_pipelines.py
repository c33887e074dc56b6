"""The item pipeline under Scrapy's engine, behind pipelines of the project."""

from __future__ import annotations

import asyncio

from scrapy.exceptions import DropItem
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider, until

from scrapy_itemgraph import CreateItem, UpdateData, task

ITEMS = {"dict": {"id": "BOOK:{name}", "tags": ["book"]}}
BOOKS = "SELECT name FROM items WHERE name LIKE 'BOOK:%' ORDER BY name"
DONE = "SELECT count(*) FROM results WHERE is_successful"


class Shelf(Spider):
    """A page with two books."""

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"url": self.site + "A"})

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"title": "a title"})
        yield {"name": "one"}
        yield {"name": "two"}


class Dropping:
    """Drops a book."""

    def process_item(self, item):
        if item["name"] == "two":
            raise DropItem("not wanted")
        return item


@deferred_f_from_coro_f
async def test_what_a_pipeline_drops_becomes_no_item(crawl_of, site):
    """ITEMGRAPH_ITEMS makes items of what went through the pipelines; a drop is no failure."""
    crawl = crawl_of(Shelf, ITEMGRAPH_ITEMS=ITEMS, ITEM_PIPELINES={Dropping: 300})
    await crawl.run(site.url)

    assert crawl.rows(BOOKS) == [("BOOK:one",)]
    assert crawl.scraped == [{"name": "one"}]
    assert crawl.outcomes() == {"A": ["ok"]}


class Breaking:
    """Raises an error at a book."""

    def process_item(self, item):
        if item["name"] == "two":
            raise ValueError("no shelf")
        return item


@deferred_f_from_coro_f
async def test_a_pipeline_that_raises_fails_the_page_of_its_item(crawl_of, site):
    """Nothing of the execution is committed: neither its operation nor the other book."""
    crawl = crawl_of(Shelf, ITEMGRAPH_ITEMS=ITEMS, ITEM_PIPELINES={Breaking: 300})
    await crawl.run(site.url)

    assert crawl.rows(BOOKS) == []
    assert crawl.rows("SELECT data->>'title' FROM items WHERE name = 'A'") == [(None,)]
    assert crawl.rows("SELECT error->>'message' FROM failures") == [("no shelf",)]


class Slow:
    """Keeps a book until a test lets it go."""

    async def process_item(self, item):
        self.waits.append(item["name"])
        await self.may_go.wait()
        return item


@deferred_f_from_coro_f
async def test_a_page_is_committed_when_its_last_item_has_left_the_pipelines(crawl_of, site):
    """An item that a pipeline still has keeps its execution open; then all is one transaction."""
    Slow.waits, Slow.may_go = [], asyncio.Event()
    crawl = crawl_of(Shelf, ITEMGRAPH_ITEMS=ITEMS, ITEM_PIPELINES={Slow: 300})
    running = crawl.start(site.url)
    await until(lambda: len(Slow.waits) == 2)
    before = crawl.rows(BOOKS), crawl.rows(DONE), len(crawl.worker.parts.active.executions)

    Slow.may_go.set()
    await running

    assert before == ([], [(0,)], 1)
    assert crawl.rows(BOOKS) == [("BOOK:one",), ("BOOK:two",)]
    assert crawl.rows(DONE) == [(1,)]


@deferred_f_from_coro_f
async def test_all_that_was_scraped_is_kept_with_its_page(crawl_of, site):
    """With ITEMGRAPH_KEEP_ITEMS the commit of a page stores its items, in order."""
    crawl = await crawl_of(Shelf, ITEMGRAPH_KEEP_ITEMS=True).run(site.url)

    kept = crawl.rows("SELECT fields->>'name' FROM journal ORDER BY id")
    assert kept == [("one",), ("two",)]
