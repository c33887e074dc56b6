"""What tells pages of one URL, method and callback apart."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.model.page_differences import differences


def pages(*requests):
    """Return what is said of pages whose requests carry this."""
    return differences([{"url": "http://a.example/", "request": one} for one in requests])


def test_what_differs_is_said_and_what_is_common_is_not():
    """A body, and values of meta and of the callback's arguments, each by its name."""
    common = {"method": "POST", "meta": {"of": "list", "rank": 1}}

    assert pages(
        {**common, "body": "q=tea", "cb_kwargs": {"page": 1}},
        {**common, "body": "q=milk", "meta": {"of": "list", "rank": 2}},
    ) == [
        'meta rank 1, body "q=tea", cb_kwargs page 1',
        'meta rank 2, body "q=milk", no cb_kwargs page',
    ]


def test_what_differs_is_written_in_one_short_line():
    """Long values are cut, further differences left out, and no line is broken."""
    many = [{"body": letter * 100, **dict.fromkeys("bcd", letter)} for letter in ("\u2028", "y")]

    first, second = pages(*many)

    assert second == f'body "{"y" * 59}…, b "y", c "y"'
    assert first.startswith('body "\\u2028')
    assert first.isprintable()


@pytest.mark.parametrize("data", [None, [], {"request": None}, {"request": {"body": "a"}}])
def test_nothing_is_said_of_pages_that_carry_the_same(data):
    """Pages that were fetched again and again differ in nothing, nor does what is no page."""
    assert differences([data, data]) == ["", ""]
    assert differences([]) == []
