"""The project's own line of a traceback."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.web.pages import tracebacks

LIBRARY = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/scrapy/core/spidermw.py", line 109, in parse
    async for r in iterable:
"""
OWN = """  File "{file}", line 30, in {function}
    price = float(text)
            ^^^^^^^^^^^
"""
RAISED = "ValueError: could not convert string to float: 'ask us'"


@pytest.mark.parametrize(
    ("file", "function", "place"),
    [
        ("/home/ann/shop/spiders/books.py", "parse", "shop.spiders.books.Books.parse"),
        ("C:\\shop\\spiders\\books.py", "parse", "spiders.books.Books.parse"),
        ("books.py", "Books.parse", "books.Books.parse"),
        ("/shop/spiders/__init__.py", "<lambda>", "spiders.Books.parse.<locals>.<lambda>"),
    ],
)
def test_the_line_of_the_place_stands_out(file, function, place) -> None:
    """It is found by module and function, whatever the project's folder and Python's version."""
    own = OWN.format(file=file, function=function)
    found = tracebacks.of_error({"traceback": LIBRARY + own + RAISED + "\n", "place": place})

    assert [(piece.text, piece.is_own) for piece in found.pieces] == [
        (LIBRARY.rstrip("\n"), False),
        (own.rstrip("\n"), True),
        (RAISED, False),
    ]
    assert (found.file, found.line) == (file.replace("\\", "/").split("/")[-1], 30)


@pytest.mark.parametrize("place", [None, "", "shop.pipelines.parse", "shop.spiders.books.Books.go"])
def test_without_a_place_a_traceback_is_one_piece(place) -> None:
    """Where no line is known to be the project's, none stands out."""
    own = OWN.format(file="/home/ann/shop/spiders/books.py", function="parse")
    found = tracebacks.of_error({"traceback": LIBRARY + own + RAISED, "place": place})

    assert (len(found.pieces), found.line) == (1, None)


@pytest.mark.parametrize("error", [None, [], {}, {"traceback": ""}, {"traceback": None}, "text"])
def test_what_has_no_traceback_has_none(error) -> None:
    """An error may be any JSON."""
    assert tracebacks.of_error(error) is None
