"""Data in the database that is JSON and no object: everything that shows an item shows it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import operations as ops

ODD = ["[1]", '"text"', "null", "17", "true", "[]"]


@pytest.fixture(params=ODD)
def odd(database, engine, request):
    """Yield a database with an item whose data is no object, and what it is."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(parse={"tags": ["page"]})
        crawl.do(ops.CreateItem("A", ["page"], {"url": "http://a.example/"}))
        connection.execute(
            sa.text("UPDATE items SET data = CAST(:data AS json)"), {"data": request.param}
        )
    return database


def test_people_see_an_item_whose_data_is_no_object(odd):
    """It is shown, explained, found, listed and deleted like any other."""
    with ItemGraph.open(odd, "books") as graph:
        assert graph.get("A").id == "A"
        assert graph.show("A")["id"] == "A"
        assert graph.explain("A")[0].task == "parse"
        assert [one.item for one in graph.lookup.search("A").items] == ["A"]
        assert [one.id for one in graph.items()] == ["A"]
        assert len(graph.lookup.items().rows) == 1
        assert graph.lookup.neighbours("A")
        assert graph.worklist()
        assert graph.lookup.work()
        assert graph.crawls.overview()
        assert graph.status()
        assert list(graph.crawls.dump())
        graph.expire("A")
        with pytest.raises(ItemGraphError):
            graph.apply([ops.UpdateData({"a": 1}, id="A")])
        assert graph.get("A").data == graph.show("A")["data"]
        graph.delete("A")
        assert graph.get("A") is None
