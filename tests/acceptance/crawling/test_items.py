"""Scraped items become items of the graph, as `ITEMGRAPH_ITEMS` says."""

from __future__ import annotations

import json

import pytest

SPIDER = """
from proj.things import Book, Product


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE")
        yield seed("TWICE", tags=["again"])
        yield seed("BAD", tags=["bad"])
        yield seed("NAN", tags=["nan"])

    @task(tags=["page"])
    async def parse_page(self, response, item):
        yield Product(sku="1", ean="", price=5)
        yield Book(sku="2", ean="978", price=7)
        yield {"name": "a dict"}

    @task(tags=["again"], depends_on=[])
    def parse_again(self, response, item):
        yield Product(sku="3", ean="11", price=1)
        yield Product(sku="3", ean="12", price=2)

    @task(tags=["bad"])
    def parse_bad(self, response, item):
        yield CreateItem(id="never")
        yield Product(sku="", ean="x", price=0)

    @task(tags=["nan"])
    def parse_nan(self, response, item):
        yield Product(sku="4", ean="x", price=float("nan"))
"""

THINGS = """
from dataclasses import dataclass


@dataclass
class Product:
    sku: str
    ean: str
    price: float


@dataclass
class Book(Product):
    pass


class Double:
    async def process_item(self, item):
        if isinstance(item, Product):
            item.price *= 2
        return item
"""

SETTINGS = """
ITEM_PIPELINES = {"proj.things.Double": 100}
ITEMGRAPH_ITEMS = {
    "proj.things.Product": {"id": "SKU:{sku}", "tags": ["product"], "aliases": ["EAN:{ean}"]},
    "proj.things.Book": {
        "id": lambda book: f"BOOK:{book.sku}",
        "tags": lambda book: {"book": book.ean},
        "aliases": ["EAN:{ean}"],
    },
}
"""


@pytest.mark.tracebacks(
    "merge['price'] is nan", "data['price'] is nan", "needs a field that is missing"
)
@pytest.mark.crawls(SPIDER, SETTINGS, things=THINGS)
def test_items_become_items(run, project):
    """The most derived rule wins, pipelines run before, and what lacks an id fails alone."""
    assert run.code == 0, run.log
    data = project.data()
    assert data["SKU:1"] == {"sku": "1", "ean": "", "price": 10}
    assert data["BOOK:2"] == {"sku": "2", "ean": "978", "price": 14}
    assert data["SKU:3"]["price"] == 4
    assert "never" not in data
    names = {name for (name,) in project.rows("SELECT name FROM aliases")}
    assert {"EAN:978", "EAN:11"} <= names
    assert "EAN:" not in names
    tags = set(
        project.rows("SELECT i.name, t.tag_name FROM tags t JOIN items i ON i.id = t.item_id")
    )
    assert {("SKU:1", "product"), ("BOOK:2", "book")} <= tags
    assert project.outcomes()["BAD"] == ["failed"]
    assert project.outcomes()["NAN"] == ["failed"]
    assert f"ITEMGRAPH_ITEMS['{project.package}.things.Product']: the id 'SKU:{{sku}}'" in run.log
    assert run.stats["item_scraped_count"] == 5


@pytest.mark.crawls(
    """
    import attrs
    from itemadapter import ItemAdapter


    @attrs.define
    class Price:
        sku: str
        amount: int


    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield {"sku": "1", "amount": 5, "seen": "first"}
            yield response.follow("/page/2", self.parse_again)

        def parse_again(self, response):
            yield Price(sku="1", amount=7)
    """,
    settings="""
    ITEMGRAPH_ITEMS = {
        "dict": {"id": "SKU:{sku}", "tags": ["product"]},
        "proj.spiders.s.Price": {"id": "SKU:{sku}"},
    }
    ITEM_PIPELINES = {"proj.rounds.Rounds": 300}
    """,
    rounds="""
    class Rounds:
        def process_item(self, item):
            return dict(item, rounded=True) if isinstance(item, dict) else item
    """,
)
def test_items_of_any_spider_are_updated_by_the_page_that_scraped_them_again(run, project, site):
    """A plain spider's items know the page that created them, and take new values from others."""
    assert run.code == 0, run.log
    product = "SELECT data::text, created_by FROM items WHERE name = 'SKU:1'"
    ((data, created_by),) = project.rows(product)
    assert json.loads(data) == {"sku": "1", "amount": 7, "seen": "first", "rounded": True}
    assert project.data()[created_by]["url"] == f"{site.url}/page/1"
