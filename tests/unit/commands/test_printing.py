"""Sentences and tables, as wide as the terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scrapy_itemgraph.commands import printing

NEXT = "it is held; scrapy itemgraph handle --group 60 lets those that are alike run again"
URL = "https://a.example/" + "long/" * 20


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (None, [f"  - {NEXT}"]),
        (
            60,
            [
                "  - it is held; scrapy itemgraph handle --group 60 lets",
                "    those that are alike run again",
            ],
        ),
        (
            46,
            [
                "  - it is held;",
                "    scrapy itemgraph handle --group 60 lets",
                "    those that are alike run again",
            ],
        ),
    ],
)
def test_a_sentence_is_broken_between_words_and_not_in_a_command(monkeypatch, columns, lines):
    """What is typed stays on a line; where no terminal is, so does all."""
    monkeypatch.setattr(printing, "width", lambda: columns)

    assert list(printing.sentence(NEXT, "  - ")) == lines


def test_a_url_of_a_sentence_stays_whole(monkeypatch):
    """It can be copied from the screen."""
    monkeypatch.setattr(printing, "width", lambda: 40)

    assert list(printing.fields([("page", URL)])) == [f"page  {URL}"]


def test_moments_of_a_table_that_is_too_wide_are_short(monkeypatch):
    """To the minute and without the year, before anything is cut; where there is room, whole."""
    row = {"run": 1, "began": datetime(2026, 11, 26, 2, 35, 48, tzinfo=UTC), "why": "shutdown"}
    columns = {"RUN": "run", "STARTED": "began", "REASON": "why"}
    said = {}
    for wide in (40, 30):
        monkeypatch.setattr(printing, "width", lambda wide=wide: wide)
        said[wide] = list(printing.table([row], columns))[1]

    assert said == {
        40: "  1  2026-11-26 02:35:48Z  shutdown",
        30: "  1  11-26 02:35Z  shutdown",
    }
