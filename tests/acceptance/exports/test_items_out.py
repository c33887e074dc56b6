"""A crawl's data, taken out as a person does it: of a plain spider, and of one with tasks."""

from __future__ import annotations

import csv
import io
import json

import pytest

from scrapy_itemgraph import ItemGraph

PLAIN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/list"]

    def parse(self, response):
        for number in range(3):
            yield scrapy.Request(f"{SITE}/page/{number}", self.parse_quote)

    def parse_quote(self, response):
        for part in "ab":
            yield {"text": f"{response.url[-1]}{part}"}
"""

TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(3):
            yield seed(f"PAGE:{number}", f"/page/{number}", tags=["page"])

    @task(tags=["page"])
    def parse(self, response, item):
        if not response.url.endswith("/0"):
            yield UpdateData({"title": f"Page {response.url[-1]}", "size": len(response.body)})
        yield {"seen": item.id}
"""


def table(text: str) -> list[dict[str, str]]:
    """Read CSV."""
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.crawls(PLAIN, "ITEMGRAPH_KEEP_ITEMS = True")
def test_the_data_of_a_plain_spider_is_found_from_its_pages(project, site):
    """`items` lists the pages by URL and callback and names the command that has what was scraped.

    `done` says how many items each page scraped.
    """
    listed = project.scrapy("itemgraph", "items", "--task", "parse_quote")
    with ItemGraph.open(project.url) as graph:
        done = graph.lookup.done("parse_quote")
    exported = project.scrapy("itemgraph", "export", "-o", "-:csv")

    for number in range(3):
        assert f"{site.url}/page/{number}" in listed.output
    assert "parse_quote fresh" in listed.output
    assert "REQ:" not in listed.output
    assert "scrapy itemgraph export -O scraped.csv" in listed.log
    assert {(row.url, row.scraped) for row in done} == {
        (f"{site.url}/page/{number}", 2) for number in range(3)
    }
    assert sorted(row["text"] for row in table(exported.output)) == [
        f"{number}{part}" for number in range(3) for part in "ab"
    ]


@pytest.mark.crawls(TASKS)
def test_the_data_of_tasks_is_a_file(project):
    """`items -O` writes what the tasks learned, a row for each item."""
    written = project.scrapy("itemgraph", "items", "--tag", "page", "-O", "out.csv", "--json")
    streamed = project.scrapy("itemgraph", "items", "--state", "fresh", "-O", "-")

    rows = table((project.directory / "out.csv").read_text())
    assert json.loads(written.output)["items"] == 3
    assert [(row["id"], row["title"]) for row in rows] == [
        ("PAGE:0", ""),
        ("PAGE:1", "Page 1"),
        ("PAGE:2", "Page 2"),
    ]
    assert all(row["size"].isdecimal() for row in rows[1:])
    assert [json.loads(line)["id"] for line in streamed.output.splitlines()] == [
        row["id"] for row in rows
    ]
