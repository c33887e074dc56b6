"""Books whose work several workers race for."""

from __future__ import annotations

from scrapy_itemgraph import task
from scrapy_itemgraph.model.operations import (
    CreateItem,
    UpdateData,
)
from support.races import Crawl, ended

HERE = "http://here.example/"


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


def book(name: str) -> CreateItem:
    """Return a seed that calls for work in the one queue."""
    return CreateItem(name, tags=["book"], data={"url": HERE + name})


def count_up(old: dict) -> dict:
    """Count how often an update was applied."""
    return {"count": old.get("count", 0) + 1}


def work_on(crawl: Crawl, claim, worker: int):
    """Return a commit of a claim, as a step."""
    changeset = ended(claim, UpdateData(count_up), CreateItem("found", tags=["book"]))
    return lambda connection: crawl.apply(connection, changeset, worker=worker)[0]
