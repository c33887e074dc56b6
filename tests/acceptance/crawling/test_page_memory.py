"""What is left in memory of a page that was scraped: nothing that waits for a collection."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.edge

SPIDER = """
import gc
import json
import weakref

from scrapy_itemgraph import CreateItem, UpdateData, task
from scrapy_itemgraph.model.operations import Operation

PAGES = 12


class Base(scrapy.Spider):
    custom_settings = {"ITEM_PIPELINES": {"proj.slow.Slow": 100}}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.pages, self.alive = [], []
        gc.collect()
        gc.disable()

    def look_at(self, response):
        self.pages.append(weakref.ref(response))
        return response.css("body").get()

    def closed(self, reason):
        with open("left.json", "w") as file:
            json.dump(
                {
                    "pages": len(self.pages),
                    "left": sum(one() is not None for one in self.pages),
                    "operations left": sum(isinstance(one, Operation) for one in gc.get_objects()),
                    "first pages alive at the second": self.alive,
                },
                file,
            )
        gc.enable()


class Plain(Base):
    name = "plain"

    async def start(self):
        for number in range(PAGES):
            yield scrapy.Request(f"{SITE}/page/{number}")

    def parse(self, response):
        yield {"text": self.look_at(response)}
        if "/more" not in response.url:
            yield response.follow(response.url + "/more", self.parse_more)

    async def parse_more(self, response):
        yield {"text": self.look_at(response)}


class Tasks(Base):
    name = "tasks"

    def seeds(self):
        for number in range(PAGES):
            yield CreateItem(id=f"n{number}", tags=["page"], data={"url": f"{SITE}/page/{number}"})

    @task(tags=["page"])
    def page(self, response, item):
        yield UpdateData({"text": self.look_at(response)})
        number = len(self.pages) - 1
        yield response.follow(
            response.url + "/more", self.more, cb_kwargs={"number": number}
        )

    async def more(self, response, item, number):
        self.alive.append(self.pages[number]() is not None)
        self.look_at(response)
        yield {"text": "scraped"}
"""

SLOW = """
import asyncio


class Slow:
    async def process_item(self, item):
        await asyncio.sleep(0.005)
        return item
"""


@pytest.mark.parametrize("spider", ["plain", "tasks"])
def test_pages_and_executions_leave_memory_without_a_collection(project, spider):
    """Of scraped pages nothing is left, while Python's collector does nothing."""
    project.write(SPIDER, "ITEMGRAPH_TUNE_GC = False\n", slow=SLOW)

    project.scrapy("crawl", spider)

    left = json.loads((project.directory / "left.json").read_text())
    assert left["pages"] == 24
    assert left["left"] == 0
    assert left["operations left"] == 0


def test_a_page_leaves_memory_before_its_execution_has_ended(project):
    """When an execution's second page is scraped, its first is gone, and not yet committed."""
    project.write(SPIDER, "ITEMGRAPH_TUNE_GC = False\n", slow=SLOW)

    project.scrapy("crawl", "tasks")

    left = json.loads((project.directory / "left.json").read_text())
    assert left["first pages alive at the second"] == [False] * 12


def test_a_response_that_a_spider_keeps_has_the_selector_that_it_had(project):
    """What a callback did to the selector of a response is there for the next that gets it."""
    project.write(
        """
        import json

        class S(scrapy.Spider):
            name = "s"
            start_urls = [SITE + "/first"]

            def parse(self, response):
                response.selector.register_namespace("x", "http://x.example")
                response.css("body").drop()
                self.kept = response
                yield response.follow("/second", self.second)

            def second(self, response):
                kept = self.kept.selector
                with open("kept.json", "w") as file:
                    json.dump([kept.namespaces.get("x"), kept.css("body").getall()], file)
        """
    )

    project.crawl()

    kept = json.loads((project.directory / "kept.json").read_text())
    assert kept == ["http://x.example", []]
