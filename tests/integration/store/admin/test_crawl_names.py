"""Names of crawls have 1 to 255 bytes; one of before there was a limit goes on."""

from __future__ import annotations

import json

import pytest

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.exceptions import InvalidIdError
from scrapy_itemgraph.graph import ItemGraph

LONGEST = "ü" * 127 + "x"


@pytest.mark.parametrize("name", [LONGEST + "x", "x" * 1_000_000, "", "a\0b", "\ud800"])
def test_a_crawl_of_an_impossible_name_is_not_made(database, name):
    """Neither by operations nor by a dump; the error says how long a name may be."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A")])
        head, *lines = graph.crawls.dump()
    given = json.dumps({**json.loads(head), "crawl": name})

    with ItemGraph.open(database, name or None) as graph:
        if name:
            with pytest.raises(InvalidIdError, match="the crawl's name"):
                graph.apply([CreateItem("A")])
        with pytest.raises(InvalidIdError, match="the crawl's name"):
            graph.crawls.load([given, *lines])
        assert graph.of("books").crawls.names() == ["books"]


def test_the_longest_name_of_a_crawl_will_do(database):
    """It has 255 bytes, and all that can be asked of a crawl can be asked of it."""
    with ItemGraph.open(database, LONGEST) as graph:
        graph.apply([CreateItem("A")])
        assert graph.status()["crawl"] == LONGEST
        assert graph.crawls.names() == [LONGEST]


def test_a_crawl_whose_name_was_possible_before_goes_on(database, engine):
    """Its name is refused only where it would be made."""
    name = "x" * 2000
    with engine.begin() as connection:
        connection.exec_driver_sql(f"INSERT INTO crawls (name) VALUES ('{name}')")

    with ItemGraph.open(database, name) as graph:
        graph.apply([CreateItem("A")])
        assert graph.get("A") is not None
