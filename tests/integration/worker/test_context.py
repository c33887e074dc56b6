"""What a callback may ask of its `item`: other items and metadata, as they are committed."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support import graphs
from support.races import claimed

from scrapy_itemgraph import CreateItem, Expire, StoreResult, UpdateData
from scrapy_itemgraph.graph import ItemGraph, WorkerGraph
from scrapy_itemgraph.model import operations, tasks
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.worker.executions.context import ItemContext


@pytest.fixture
def ask(database):
    """Yield a function that claims A, in a crawl with A and B, and asks something of its item."""
    declared = {"parse": {"tags": ["page"]}, "price": {"tags": ["other"]}}

    def ask(question, *given):
        async def run():
            graph = await WorkerGraph.open(
                Settings.of(database_url=database),
                crawl="books",
                spider="shop",
                tasks=tasks.discover(graphs.spider(**declared)),
            )
            try:
                seeds = [
                    CreateItem("A", ["page"], {"n": 1}, aliases=["a"]),
                    CreateItem("B", {"rank": 2}, {"n": 2}, aliases=["b"]),
                ]
                await graph.commits.seed([operations.checked(one, "seed") for one in seeds])
                (claim,) = await claimed(graph, 10)
                with ItemGraph.open(database, crawl="books") as outside:
                    outside.apply(given)
                return await question(ItemContext.claimed(claim, graph.reads))
            finally:
                await graph.close("finished")

        return asyncio.run(run())

    return ask


def test_an_item_has_its_canonical_id_and_a_copy_of_its_data(ask):
    """SRAP-38: `id` is the canonical id and no URL to fetch; data is a copy as of the claim."""

    async def question(item):
        item.data["n"] = "spoilt"
        return item.id, item.aliases, dict(item.tags), item.task, item.attempt, item.data

    answer = ask(question, UpdateData({"later": 1}, id="A"))

    assert answer == ("A", ("a",), {"page": None}, "parse", 1, {"n": "spoilt"})


def test_get_item_sees_what_is_committed(ask):
    """SRAP-39: another item is read by any of its names, as committed now; None for none."""

    async def question(item):
        return await item.get_item("b"), await item.get_item("nobody")

    other, nobody = ask(question, UpdateData({"n": 3}, id="B"))

    assert (other.id, other.aliases, other.tags) == ("B", ("b",), {"rank": 2})
    assert other.data == {"n": 3}
    assert nobody is None


def test_get_metadata_gives_stale_metadata_unless_only_fresh_is_wanted(ask):
    """SRAP-40: metadata is given until it is overwritten; with only_fresh no stale one."""

    async def question(item):
        return [
            await item.get_metadata(),
            await item.get_metadata("price"),
            await item.get_metadata("price", id="b"),
            await item.get_metadata("price", id="b", only_fresh=True),
            await item.get_metadata("parse", id="b", only_fresh=True),
            await item.get_metadata("parse", id="nobody"),
        ]

    answers = ask(
        question,
        StoreResult({"price": 5}, id="B", task="price"),
        StoreResult({"n": 6}, id="B", task="parse"),
        Expire(id="B", task="price"),
    )

    assert answers == [None, None, {"price": 5}, None, {"n": 6}, None]


@pytest.mark.parametrize(
    ("category", "level"),
    [("error", "ERROR"), ("warn", "WARNING"), ("info", "INFO"), ("x", "DEBUG")],
)
def test_a_log_line_has_a_free_category(caplog, category, level):
    """SRAP-53: error, warn, info and debug are levels; any other category is hidden by default."""
    caplog.set_level(logging.DEBUG)

    ItemContext(id="A", task="parse").log(category, "no price")

    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage() == f"[{category}] A (parse): no price"


def kept(keep_logs, *lines):
    """Return what an item keeps of lines that are logged, each a category and a message."""
    item = ItemContext(id="A", task="parse", keep_logs=keep_logs)
    for line in lines:
        item.log(*line)
    return [(line.category, line.message) for line in item.kept_log()]


def test_the_last_lines_are_kept():
    """ITEMGRAPH_KEEP_LOGS lines are kept, the last ones, and one more says what is left out."""
    lines = [("info", str(number)) for number in range(5)]

    assert kept(5, *lines) == lines
    assert kept(2, *lines) == [
        ("warn", "3 earlier lines are left out (ITEMGRAPH_KEEP_LOGS)"),
        *lines[3:],
    ]
    assert kept(0, *lines) == []


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        ("a\0b\ud800", "a\u2400b?"),
        (ValueError("no price"), "no price"),
        ("x" * 8192, "x" * 8192),
        ("x" * 8193, "x" * 8186 + " […]"),
        ("é" * 5000, "é" * 4093 + " […]"),
        ("\ud800" * 9000, "?" * 8186 + " […]"),
    ],
)
def test_a_line_that_is_kept_can_be_stored(message, stored):
    """NUL and lone surrogates are replaced; a line has 8,192 bytes at most, and a cut is marked."""
    ((_, kept_message),) = kept(1, ("info", message))

    assert kept_message == stored
    assert len(kept_message.encode()) <= 8192


def test_what_was_logged_is_let_go():
    """After the commit nothing of a log stays in memory."""
    item = ItemContext(id="A", task="parse", keep_logs=1)
    item.log("info", "1")
    item.log("info", "2")

    item.forget_log()

    assert item.kept_log() == ()
