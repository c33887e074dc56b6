"""Operations as data: what is checked when they are yielded, and how they are read from JSON."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from scrapy_itemgraph.exceptions import (
    InvalidDataError,
    InvalidIdError,
    OperationError,
)
from scrapy_itemgraph.model import operations as ops

WHERE = "books: parse_book of 'A'"


def deep(levels):
    """Return lists in lists."""
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def checked(operation):
    """Check an operation as if a callback had yielded it."""
    return ops.checked(operation, WHERE)


@pytest.mark.parametrize(
    ("operation", "error", "what_is_wrong"),
    [
        (ops.CreateItem(""), InvalidIdError, "id is empty"),
        (ops.CreateItem("x" * 10_000), InvalidIdError, "10,000 bytes"),
        (ops.CreateItem(5), InvalidIdError, "id must be a string"),
        (ops.CreateItem("A", prefix="B"), OperationError, "give id or prefix, not both"),
        (ops.CreateItem("A", "page"), OperationError, "tags must be a list or a mapping"),
        (ops.CreateItem("A", [None]), InvalidIdError, "tag must be a string"),
        (ops.CreateItem("A", {"t": {1}}), InvalidDataError, "tag 't' is of type set"),
        (ops.CreateItem("A", data={"a": float("nan")}), InvalidDataError, "data['a'] is nan"),
        (ops.CreateItem("A", data=[1]), InvalidDataError, "data must be a dict"),
        (ops.CreateItem("A", aliases="B"), OperationError, "aliases must be a list"),
        (ops.CreateItem("A", aliases=[None]), InvalidIdError, "alias must be a string"),
        (ops.CreateItem("A", created_by=""), InvalidIdError, "created_by is empty"),
        (ops.CreateItem("A", nice="low"), OperationError, "nice must be an integer"),
        (ops.CreateItem("A", nice=2**31), OperationError, "nice must be an integer"),
        (ops.CreateItem("A", nice=True), OperationError, "nice must be an integer"),
        (ops.CreateItem("A", not_before="now"), OperationError, "not_before must be a datetime"),
        (ops.CreateItem("A", not_before=datetime(2030, 1, 1)), OperationError, "time zone"),  # noqa: DTZ001
        (ops.RenameItem(None), InvalidIdError, "to must be a string"),
        (ops.RenameItem("B", if_taken="join"), OperationError, 'if_taken is "error" or "merge"'),
        (ops.RenameItem("B", merge={}), OperationError, "merge must be a callable"),
        (ops.MergeItem(None), InvalidIdError, "into must be a string"),
        (ops.MergeItem("B", merge_metadata={"t": 5}), OperationError, "t must be a callable"),
        (ops.DeleteItem(""), InvalidIdError, "id is empty"),
        (ops.CreateAlias(None), InvalidIdError, "alias must be a string"),
        (ops.CreateAlias("a\0"), InvalidIdError, "NUL"),
        (ops.DeleteAlias(None), InvalidIdError, "alias must be a string"),
        (ops.AddTag(None), InvalidIdError, "tag must be a string"),
        (ops.AddTag("x" * 5000), InvalidIdError, "tag has 5,000 bytes, more than 1,000"),
        (ops.CreateItem("A", ["é" * 501]), InvalidIdError, "tag has 1,002 bytes"),
        (ops.AddTag("t", b"x"), InvalidDataError, "value is of type bytes"),
        (ops.RemoveTag(""), InvalidIdError, "tag is empty"),
        (ops.UpdateData("title"), InvalidDataError, "merge must be a mapping or a callable"),
        (ops.UpdateData({"a": "\udc80"}), InvalidDataError, "merge['a'] has a lone surrogate"),
        (ops.UpdateMetadata(None), InvalidDataError, "merge must be a mapping or a callable"),
        (ops.StoreResult({}, id=None, task="t"), InvalidIdError, "id must be a string"),
        (ops.StoreResult({}, id="A", task=None), InvalidIdError, "task must be a string"),
        (ops.StoreResult({"a": {1}}, id="A", task="t"), InvalidDataError, "metadata['a']"),
        (ops.StoreResult(5, id="A", task="t"), OperationError, "int"),
        (ops.Expire(id=5), InvalidIdError, "id must be a string"),
        (ops.SetTTL("soon"), OperationError, "ttl is 'soon'"),
        (ops.SetTTL(0), OperationError, "ttl is 0"),
        (ops.SetTTL(-1), OperationError, "ttl is -1"),
        (ops.SetTTL(True), OperationError, "ttl is True"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_when_it_is_yielded(
    operation, error, what_is_wrong
):
    """Bad input is an error that names spider, task, item, operation and the value."""
    with pytest.raises(error) as raised:
        checked(operation)

    assert str(raised.value).startswith(f"{WHERE}: {type(operation).__name__}: ")
    assert what_is_wrong in str(raised.value)


def test_what_is_checked_is_a_private_copy():
    """What a callback changes after it yielded an operation is not stored."""
    data, tags = {"n": [1]}, ["page"]
    operation = checked(ops.CreateItem("A", tags, data))

    data["n"].append(2)
    tags.append("list")

    assert operation.data == {"n": [1]}
    assert operation.tags == {"page": None}


def test_a_random_id_is_drawn_when_the_operation_is_made():
    """SRAP-31: without an id one is drawn at once, with the prefix, and stays the same."""
    plain, prefixed = ops.CreateItem(), ops.CreateItem(prefix="LOT:")

    assert plain.id != ops.CreateItem().id
    assert prefixed.id.startswith("LOT:")
    assert len(prefixed.id) > len("LOT:") + 20
    assert checked(prefixed).id == prefixed.id
    assert checked(checked(prefixed)).id == prefixed.id


def test_a_moment_with_a_time_zone_or_a_timedelta_is_a_not_before():
    """`not_before` is a moment with its zone, or how long from now."""
    for moment in (datetime(2030, 1, 1, tzinfo=timezone.utc), timedelta(hours=1)):  # noqa: UP017
        assert checked(ops.CreateItem("A", not_before=moment)).not_before == moment


def test_operations_are_frozen():
    """An operation is data: it cannot be changed after it was made."""
    with pytest.raises(AttributeError):
        ops.DeleteItem("A").id = "B"


@pytest.mark.parametrize(
    ("cls", "spelling", "verb"),
    [
        (ops.UpdateData, "updateData", "update_data"),
        (ops.CreateItem, "createItem", "create_item"),
        (ops.SetTTL, "setTTL", "set_ttl"),
        (ops.Expire, "expire", "expire"),
    ],
)
def test_spellings_are_mechanical(cls, spelling, verb):
    """Class `UpdateData` is `updateData` in JSON and `update_data` in functions and stats."""
    operation = cls.__new__(cls)

    assert (operation.spelling, operation.verb) == (spelling, verb)


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        (
            {"op": "createItem", "id": "A", "tags": ["t"], "createdBy": "B", "mergeTags": True},
            ops.CreateItem("A", ["t"], created_by="B", merge_tags=True),
        ),
        ({"op": "updateData", "id": "A", "merge": {"n": 1}}, ops.UpdateData({"n": 1}, id="A")),
        ({"op": "setTTL", "ttl": "1d", "id": "A"}, ops.SetTTL("1d", id="A")),
        (
            {"op": "renameItem", "to": "B", "id": "A", "ifTaken": "merge"},
            ops.RenameItem("B", id="A", if_taken="merge"),
        ),
        ({"op": "deleteItem", "id": "A", "forget": False}, ops.DeleteItem("A", forget=False)),
        ({"op": "expire", "id": "A", "ifOlderThan": "6h"}, ops.Expire(id="A", if_older_than="6h")),
        (
            {"op": "expire", "id": "A", "ifOlderThan": "2030-01-01T00:00:00Z"},
            ops.Expire(id="A", if_older_than=datetime(2030, 1, 1, tzinfo=timezone.utc)),  # noqa: UP017
        ),
        (
            {"op": "createItem", "id": "A", "notBefore": "2030-01-01T00:00:00+00:00"},
            ops.CreateItem("A", not_before=datetime(2030, 1, 1, tzinfo=timezone.utc)),  # noqa: UP017
        ),
    ],
)
def test_operations_are_read_from_json(line, operation):
    """An operation's JSON form has its spelling in "op" and its fields beside it."""
    assert ops.from_json(line) == operation


@pytest.mark.parametrize(
    ("line", "what_is_wrong"),
    [
        ({}, 'an operation is an object with "op"'),
        ([], 'an operation is an object with "op"'),
        ({"op": "explode"}, "unknown operation 'explode'; there are addTag"),
        ({"op": "allowFailure"}, "unknown operation 'allowFailure'"),
        ({"op": None}, "unknown operation 'None'"),
        ({"op": "deleteItem", "ids": 1}, "deleteItem has no field ids"),
        ({"op": "createItem", "isIdDrawn": True}, "createItem has no field is_id_drawn"),
        ({"op": "renameItem"}, "renameItem"),
        ({"op": "createItem", "id": "A", "notBefore": "soon"}, "createItem"),
        ({"op": "expire", "id": "A", "ifOlderThan": "last-year"}, "expire: "),
    ],
)
def test_json_that_is_no_operation_is_refused(line, what_is_wrong):
    """A line that is no operation is an error that says what there is."""
    with pytest.raises(OperationError) as raised:
        ops.from_json(line)

    assert what_is_wrong in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda value: ops.CreateItem("A", data={"a": value}),
        lambda value: ops.CreateItem("A", {"tag": [value]}),
        lambda value: ops.AddTag("tag", [value]),
        lambda value: ops.UpdateData({"a": value}),
        lambda value: ops.UpdateMetadata({"a": value}),
        lambda value: ops.StoreResult({"a": value}, id="A", task="parse"),
    ],
    ids=["data", "tags", "value", "merge", "metadata", "result"],
)
@pytest.mark.parametrize("levels", [100, 5000])
def test_what_is_nested_too_deep_is_refused_where_it_is_written(make, levels):
    """A hundred levels can be read wherever they are needed; more ended a crawl at every start."""
    checked(make(deep(99)))

    with pytest.raises(InvalidDataError, match="nested more than 100 levels deep; flatten it"):
        checked(make(deep(levels)))
