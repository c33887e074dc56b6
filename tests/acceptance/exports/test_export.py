"""Kept items through a real crawl: the feed that survives a crash."""

from __future__ import annotations

import csv
import json
import signal
from xml.etree import ElementTree as ET

import pytest

PAGES = 30

SPIDER = f"""
from proj.things import Product


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range({PAGES}):
            path = "/gate" if number == 12 else f"/page/{{number}}"
            yield seed(f"PAGE:{{number}}", path, number=number)

    @task(tags=["page"])
    def parse(self, response, item):
        for part in "ab":
            yield Product(name=f"{{item.data['number']}}{{part}}", price=1)
"""

THINGS = """
import scrapy
from dataclasses import dataclass, replace


@dataclass
class Product:
    name: str
    price: int


class Review(scrapy.Item):
    stars = scrapy.Field()
    product = scrapy.Field()


class Double:
    def process_item(self, item):
        return replace(item, price=item.price * 2) if isinstance(item, Product) else item


class Late:
    # A feed's handlers come after all pipelines; what they change is not kept any more.
    @classmethod
    def from_crawler(cls, crawler):
        crawler.signals.connect(cls.scraped, signal=scrapy.signals.item_scraped)
        return cls()

    @staticmethod
    def scraped(item):
        if isinstance(item, dict) and "list" in item:
            item["list"].append("late")
"""

SETTINGS = """
ITEM_PIPELINES = {"proj.things.Double": 100}
ITEMGRAPH_KEEP_ITEMS = True
"""


def exported(project, *arguments: str) -> list[dict]:
    """Return what `export` writes to standard output, as JSON lines."""
    run = project.scrapy("itemgraph", "export", "-o", "-:jl", *arguments)
    assert run.code == 0, run.log
    return [json.loads(line) for line in run.output.splitlines()]


def test_each_item_once_whatever_was_killed(project, site):
    """After a kill -9 and a second run the export has each item once, where a feed repeats some."""
    project.write(
        SPIDER,
        SETTINGS
        + """
CONCURRENT_REQUESTS_PER_DOMAIN = 2
ITEMGRAPH_COMMIT_INTERVAL = 0.5
FEEDS = {"feed.jl": {"format": "jsonlines"}}
""",
        things=THINGS,
    )
    first = project.start("crawl", "s")
    assert site.arrived.wait(60), project.log()
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = {one["name"] for one in exported(project)}
    site.may_answer.set()

    run = project.crawl()

    assert run.code == 0, run.log
    expected = sorted(f"{number}{part}" for number in range(PAGES) for part in "ab")
    assert len(before) < len(expected)
    names = ("out.jl", "out.json", "out.csv", "out.xml")
    done = project.scrapy("itemgraph", "export", *(f"-O{name}" for name in names))
    assert done.code == 0, done.log
    lines, whole, table, tree = ((project.directory / name).read_text() for name in names)
    for rows in (
        [json.loads(line) for line in lines.splitlines()],
        json.loads(whole),
        list(csv.DictReader(table.splitlines())),
        [{e.tag: e.text for e in item} for item in ET.fromstring(tree)],
    ):
        assert sorted(row["name"] for row in rows) == expected
        assert {str(row["price"]) for row in rows} == {"2"}


def test_exports_that_follow_each_other(project):
    """With --since the moment that the last export said, each item comes once over all of them."""
    project.write(SPIDER.replace('"/gate" if number == 12 else ', ""), SETTINGS, things=THINGS)
    assert project.crawl().code == 0

    run = project.scrapy("itemgraph", "export", "-o", "out.jl", "--json")
    moment = json.loads(run.output)["until"]
    assert exported(project, "--since", moment) == []
    assert project.scrapy("itemgraph", "expire", "PAGE:3").code == 0
    assert project.crawl().code == 0

    assert [one["name"] for one in exported(project, "--since", moment)] == ["3a", "3b"]


MIXED = """
from proj.things import Product, Review


class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield {"from": "start"}
        for url in ("/page/plain",):
            yield scrapy.Request(SITE + url, self.plain)

    def seeds(self):
        for tag in ("good", "bad", "odd", "allowed"):
            yield seed(tag.upper(), f"/page/{tag}", tags=[tag])

    def plain(self, response):
        yield {"from": "plain"}

    @task(tags=["good"])
    def good(self, response, item):
        yield Product(name="tea", price=1)
        yield Review(product=Product(name="tea", price=1), stars=5)
        yield {"list": ["now"]}
        yield {"bytes": b"\\xff", "when": timedelta(days=1)}

    @task(tags=["bad"])
    def bad(self, response, item):
        yield {"never": 1}
        raise ValueError("on purpose")

    @task(tags=["allowed"], allow_failure=True)
    def allowed(self, response, item):
        yield {"allowed": 1}
        raise ValueError("on purpose")

    @task(tags=["odd"])
    def odd(self, response, item):
        yield {"never": 2}
        yield {"price": object()}
"""


@pytest.mark.tracebacks("ValueError: on purpose", "UnstorableError: spider s, task odd")
def test_what_is_kept(project):
    """Items are kept as the pipelines returned them, from executions that did not fail."""
    project.write(MIXED, SETTINGS + 'EXTENSIONS["proj.things.Late"] = 1\n', things=THINGS)

    run = project.crawl()

    rows = project.rows(
        "SELECT j.item_class, j.fields, i.name, t.name FROM journal j "
        "LEFT JOIN items i ON i.id = j.item_id LEFT JOIN tasks t ON t.id = j.task_id ORDER BY j.id"
    )
    of_good = [(cls, fields) for cls, fields, name, _ in rows if name == "GOOD"]
    assert of_good[:3] == [
        ("proj.things.Product", {"name": "tea", "price": 2}),
        ("proj.things.Review", {"product": {"name": "tea", "price": 1}, "stars": 5}),
        ("dict", {"list": ["now"]}),
    ]
    assert not [fields for _, fields, *_ in rows if "never" in fields]
    assert [fields for _, fields, name, _ in rows if name == "ALLOWED"] == [{"allowed": 1}]
    assert {"from": "plain"} in [fields for _, fields, *_ in rows]
    assert {"from": "start"} in [fields for _, fields, name, _ in rows if name is None]
    assert project.outcomes()["ODD"] == ["failed"]
    assert "item ODD: ITEMGRAPH_KEEP_ITEMS: dict['price'] is of type builtins.object" in run.log
    assert project.outcomes()["BAD"] == ["failed"]


@pytest.mark.tracebacks("ValueError: on purpose")
def test_nothing_is_kept_unasked(project):
    """Without the setting the journal stays empty, and `export` says how to fill it."""
    project.write(MIXED, things=THINGS)
    project.crawl()

    run = project.scrapy("itemgraph", "export", "-o", "out.jl")

    assert project.rows("SELECT count(*) FROM journal") == [(0,)]
    assert run.code == 1
    assert "ITEMGRAPH_KEEP_ITEMS = True" in run.log
    assert not (project.directory / "out.jl").exists()
