"""Seeds, alone: how they are committed, and what is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Spider

from scrapy_itemgraph.exceptions import ForeignOutputError, ItemGraphError, OperationError
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.worker.spider import seeds
from scrapy_itemgraph.worker.spider.validation import Checks


class Graph:
    """Notes the names of the seeds of each transaction."""

    def __init__(self) -> None:
        self.sown: list[list[str]] = []

    async def seed(self, operations: Any) -> tuple[()]:
        self.sown.append([one.id for one in operations])
        return ()


def sow(given: Any = None) -> list[list[str]]:
    """Sow what a method returns, of a spider that may have none; return what was committed."""
    methods = {} if given is None else {"seeds": lambda self: given()}
    spider = type("Shop", (Spider,), {"name": "shop", **methods})()
    graph = Graph()
    asyncio.run(seeds.sow(spider, graph.seed, Checks({}, ()), Tallies()))
    return graph.sown


def numbered(count: int) -> list[CreateItem]:
    """Return so many seeds."""
    return [CreateItem(str(number)) for number in range(count)]


def test_a_spider_without_seeds_commits_nothing():
    """No method, and a method that gives back nothing, are the same."""
    assert sow() == sow(lambda: None) == sow(list) == []


def test_seeds_are_committed_five_hundred_at_a_time():
    """Of a thousand and one seeds none is left out, and their order is kept."""
    sown = sow(lambda: iter(numbered(1001)))

    assert [len(names) for names in sown] == [500, 500, 1]
    assert [name for names in sown for name in names] == [str(number) for number in range(1001)]


def test_seeds_may_be_a_coroutine_or_an_asynchronous_generator():
    """`async def seeds` works with and without `yield`."""

    async def returned():
        return numbered(2)

    async def yielded():
        for one in numbered(2):
            yield one

    assert sow(returned) == sow(yielded) == [["0", "1"]]


@pytest.mark.parametrize(
    ("seed", "error", "said"),
    [
        ({"name": "A"}, ForeignOutputError, "yielded dict"),
        (CreateItem(), OperationError, "a new item at every start"),
    ],
)
def test_what_is_no_seed_is_refused_by_its_spiders_name(seed, error, said):
    """Only operations are seeds, and an item needs an id that is the same at every start."""
    with pytest.raises(error, match=f"spider shop, seeds: .*{said}"):
        sow(lambda: [seed])


def test_an_error_in_seeds_ends_the_crawl_with_one_that_names_them():
    """What the method raises becomes an error of the graph that says where it was."""

    def broken():
        yield CreateItem("A")
        raise KeyError("price")

    with pytest.raises(ItemGraphError, match="spider shop: seeds: KeyError: 'price'"):
        sow(broken)


def test_the_line_that_yielded_a_bad_seed_is_named():
    """Of a list nobody knows the line, and none is named."""

    def yielding():
        yield CreateItem("A")
        yield {"title": "a dict"}

    with pytest.raises(ForeignOutputError) as yielded:
        sow(yielding)
    with pytest.raises(ForeignOutputError) as returned:
        sow(lambda: [{"title": "a dict"}])

    number = yielding.__code__.co_firstlineno + 2
    assert str(yielded.value).endswith(
        f'; seeds are operations (File "{__file__}", line {number}, in '
        "test_the_line_that_yielded_a_bad_seed_is_named.<locals>.yielding)"
    )
    assert str(returned.value).endswith("; seeds are operations")
