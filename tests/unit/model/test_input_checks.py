"""What users hand us as ids, JSON and periods, and what is said of what cannot be stored."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scrapy_itemgraph.exceptions import InvalidDataError, InvalidIdError
from scrapy_itemgraph.model import input_checks, item_names
from scrapy_itemgraph.tools import wording


def circular():
    """Return a value that contains itself."""
    value = {"a": [1]}
    value["a"].append(value)
    return value


def deep(levels):
    """Return lists in lists."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "what_is_wrong"),
    [
        (None, "must be a string, not NoneType"),
        (5, "must be a string, not int: 5"),
        (b"A", "must be a string, not bytes"),
        ("", "is empty; an id has 1 to 8,192 bytes"),
        ("a\0b", "has a NUL character, which PostgreSQL cannot store"),
        ("a\ud800", "has a lone surrogate, which is no text"),
        ("x" * 10_000, "has 10,000 bytes, more than 8,192: 'xxx"),
        ("é" * 4097, "has 8,194 bytes"),
    ],
)
def test_an_id_that_cannot_be_stored_is_refused(value, what_is_wrong):
    """An id is text of 1 to 8,192 bytes without NUL or lone surrogates, or the error says why."""
    with pytest.raises(InvalidIdError) as raised:
        input_checks.check_id(value, "alias")

    assert str(raised.value).startswith("alias ")
    assert what_is_wrong in str(raised.value)


@pytest.mark.parametrize("value", ["A", "x" * 8192, "é" * 4096, "EAN: 1\n2", "\u00e9", "e\u0301"])
def test_any_other_text_is_an_id_as_it_is(value):
    """SRAP-7: an id is any text, namespaced or not, and is never normalised."""
    assert input_checks.check_id(value) == value


def test_ids_that_differ_in_a_byte_have_different_keys():
    """Ids are compared byte by byte: two spellings of é are two ids."""
    assert item_names.name_key("\u00e9") != item_names.name_key("e\u0301")


@pytest.mark.parametrize(
    ("value", "what_is_wrong"),
    [
        ({"price": float("nan")}, "data['price'] is nan, which JSON has no number for"),
        ({"price": [1, float("inf")]}, "data['price'][1] is inf"),
        ({"body": b"<html>"}, "data['body'] is of type bytes, which is not JSON: b'<html>'"),
        ({"a": {"b": {1, 2}}}, "data['a']['b'] is of type set"),
        ({"when": timedelta(1)}, "data['when'] is of type timedelta"),
        ({"a": "x\0"}, "data['a'] has a NUL character"),
        ({"a": "\udc80"}, "data['a'] has a lone surrogate"),
        ({"a\0": 1}, "data has a NUL character"),
        ({1: "a"}, "data has the key 1 of type int; keys in JSON are strings"),
        ({"a": [{None: 1}]}, "data['a'][0] has the key None of type NoneType"),
        (circular(), "data['a'][1] contains itself, so it is not JSON"),
        ({"a": deep(100)}, "data is nested more than 100 levels deep; flatten it"),
        ({"a": deep(100_000)}, "data is nested more than 100 levels deep; flatten it"),
        ([1], "data must be a dict, not list: [1]"),
        ("text", "data must be a dict, not str"),
        (None, "data must be a dict, not NoneType"),
    ],
)
def test_data_that_is_not_json_is_refused_by_the_part_that_is_wrong(value, what_is_wrong):
    """Data that JSON or PostgreSQL cannot hold is an error that names the part and its type."""
    with pytest.raises(InvalidDataError) as raised:
        input_checks.copy_mapping(value, "data")

    assert what_is_wrong in str(raised.value)


def test_a_hundred_levels_are_not_too_deep():
    """The hundredth level, the data itself being the first, can be stored and read again."""
    given = {"a": deep(98)}

    assert input_checks.copy_mapping(given, "data") == given


@pytest.mark.parametrize(
    "text", ["[" * 401 + "]" * 401, "[" * 100_000 + "]" * 100_000, "[" + "1" * 5000 + "]"]
)
def test_stored_json_that_python_cannot_read_is_kept_as_it_is(text):
    """What cannot be read of one row raises nothing, for it would spoil the others."""
    assert input_checks.load_json(text) == text
    assert isinstance(input_checks.load_json(text.encode()), input_checks.Unreadable)


def test_json_is_copied_with_its_order_and_its_numbers():
    """A stored value is a private copy: keys in their order, numbers as they were."""
    given = {"b": [1, 2.5, 10**30], "a": {"é": None}, "quoted": "\\u0000", "yes": True}

    copy = input_checks.copy_mapping(given, "data")
    given["b"].append("later")

    assert copy == {"b": [1, 2.5, 10**30], "a": {"é": None}, "quoted": "\\u0000", "yes": True}
    assert list(copy) == ["b", "a", "quoted", "yes"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (-5, "0s"), (61, "1m 1s"), (90061, "1d 1h"), (3600, "1h")]
)
def test_periods_are_written_for_people(seconds, text):
    """A number of seconds is written in its two largest units."""
    assert wording.format_period(seconds) == text


@pytest.mark.parametrize("name", ["a", "é", "REQ:0", "x" * 8192])
def test_a_key_is_the_same_as_hexadecimal_digits(name):
    """Whichever form of a name's key is sent, PostgreSQL reads the same one."""
    assert item_names.hex_key(name) == item_names.name_key(name).hex


def test_keys_are_in_one_order_in_both_forms():
    """Names are locked in the order of their keys, whoever sorts them."""
    names = [str(number) for number in range(100)]

    assert sorted(names, key=item_names.hex_key) == sorted(names, key=item_names.name_key)
