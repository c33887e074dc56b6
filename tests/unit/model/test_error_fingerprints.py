"""Failures that are alike have the same fingerprint."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.model import error_fingerprints
from scrapy_itemgraph.model.work import ErrorRecord

PLACE = "shop.spiders.books.BookSpider.parse_book"


def of(message: str, *, item: str = "BOOK:1", place: str | None = PLACE, task: int = 7) -> str:
    """Return the fingerprint of an error."""
    error = ErrorRecord(type="ValueError", message=message, item=item, place=place)
    return str(error_fingerprints.of_error(task, error))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("no price in 12 rows", "BOOK:1"), ("no price in 7 rows", "BOOK:2")),
        (("BOOK:a is broken", "BOOK:a"), ("BOOK:b is broken", "BOOK:b")),
        (("got https://a.example/1?x=y", "A"), ("got https://b.example/other", "B")),
        (("no 0f3c9ad2e411", "A"), ("no 77aa00bbccdd", "B")),
    ],
)
def test_digits_ids_and_urls_do_not_tell_errors_apart(one, other):
    """The same error at another item, another URL or with another number is the same."""
    assert of(one[0], item=one[1]) == of(other[0], item=other[1])


def test_type_place_message_and_task_tell_errors_apart():
    """Errors of other places, with other words, or of other tasks are others."""
    found = {of("no price"), of("no title"), of("no price", place="shop.x"), of("no price", task=8)}
    assert len(found) == 4


@pytest.mark.parametrize("stored", ["{}", "[]", "null", '{"type": 1, "message": [2]}', '"x"'])
def test_whatever_is_stored_as_an_error_has_a_fingerprint(stored):
    """An error in a dump may be any JSON."""
    assert error_fingerprints.of_stored(1, stored)
