"""Rows become the arrays that statements unnest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

from scrapy_itemgraph.store.columns import columns, typed


def test_each_named_attribute_is_a_list_in_the_order_of_the_rows():
    """A parameter has the attribute of every row, also one of something that the row has."""
    rows = [
        SimpleNamespace(id=2, claim=SimpleNamespace(token="b")),
        SimpleNamespace(id=1, claim=None),
    ]

    assert columns(rows, items="id") == {"items": [2, 1]}
    assert columns(rows[:1], items="id", tokens="claim.token") == {"items": [2], "tokens": ["b"]}


def test_rows_may_be_gone_through_once_only():
    """An iterator gives all columns, and no rows give empty ones."""
    rows = (SimpleNamespace(a=n, b=-n) for n in range(2))

    assert columns(rows, a="a", b="b") == {"a": [0, 1], "b": [0, -1]}
    assert columns([], a="a") == {"a": []}


class Pair(NamedTuple):
    """Two columns."""

    a: int
    b: str


def test_rows_become_named_tuples_only_where_their_columns_are_the_same():
    """A statement and the type of its rows cannot drift apart without an error."""

    def result(*keys: str) -> IteratorResult:
        return IteratorResult(SimpleResultMetaData(keys), iter([(1, "x")]))

    assert typed(result("a", "b"), Pair) == [Pair(1, "x")]
    with pytest.raises(AssertionError):
        typed(result("b", "a"), Pair)
