"""Known names: the latest are kept, the oldest forgotten, and they take a bounded memory."""

from __future__ import annotations

import tracemalloc

from scrapy_itemgraph.tools.known_names import KnownNames


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
