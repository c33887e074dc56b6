"""Caches: the latest are kept, the oldest forgotten, and a great many take little memory."""

from __future__ import annotations

import tracemalloc

from scrapy_itemgraph.tools.caches import KnownNames, LastValues, SeenTexts


def test_the_latest_are_kept():
    """The last half of as many as there may be, and what was met again; the oldest are not."""
    known = KnownNames(10)
    for number in range(100):
        known.add(f"n{number}")
        assert "n0" in known

    assert len(known) <= 10
    assert all(f"n{number}" in known for number in (99, 98, 97, 0))
    assert "n80" not in known


def test_nothing_is_known_after_clearing():
    """All is forgotten, as when names were freed."""
    known = KnownNames(4)
    for number in range(4):
        known.add(f"n{number}")
    known.clear()

    assert len(known) == 0
    assert "n3" not in known


def test_a_great_many_names_take_little_memory():
    """Of three hundred thousand names of requests, all told, there are less than 16 megabytes."""
    known = KnownNames(100_000)
    tracemalloc.start()
    try:
        for number in range(300_000):
            known.add(f"REQ:{number:040x}")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(known) == 100_000
    assert size < 16_000_000


def test_what_was_used_last_is_kept():
    """The last half of as many as there may be, and what was asked for again; no older ones."""
    values: LastValues[int, str] = LastValues(10)
    for number in range(100):
        values.put(number, str(number))
        assert values.get(0) == "0"

    assert len(values) <= 10
    assert [values.get(number) for number in (99, 98, 97, 0)] == ["99", "98", "97", "0"]
    assert values.get(80) is None


def test_a_value_is_replaced_whether_it_is_young_or_old():
    """The latest value of a key counts."""
    values: LastValues[str, int] = LastValues(4)
    for number, key in enumerate("aabba"):
        values.put(key, number)

    assert (values.get("a"), values.get("b")) == (4, 3)


def test_it_tells_what_was_seen_before():
    """A text is new once, as in a set, whatever came between."""
    seen, plain = SeenTexts(), set()

    for number in range(30_000):
        text = f"START:{number * 7919 % 20_011}:parse"
        assert seen.add(text) == (text in plain)
        plain.add(text)


def test_a_text_takes_a_few_bytes():
    """A hundred thousand texts of sixty characters take less than four megabytes."""
    tracemalloc.start()
    try:
        seen = SeenTexts()
        for number in range(100_000):
            seen.add(f"START:{number:050}:parse")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 4_000_000
