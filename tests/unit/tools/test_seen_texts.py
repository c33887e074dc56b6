"""Texts that were seen: each is told once, and a great many take little memory."""

from __future__ import annotations

import tracemalloc

from scrapy_itemgraph.tools.seen_texts import SeenTexts


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
