"""Names that somebody chose, as parts of paths."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.tools.path_parts import path_part, stays_inside


@pytest.mark.parametrize("name", ["books", "books:cat=2,page=3-1a2b", "é ö", "a..b", "100%", "~x"])
def test_a_name_that_is_one_part_of_a_path_stays_as_it_is(name):
    """Files that were named after crawls keep their names."""
    assert path_part(name) == name


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("../../out", "--..-out"),
        ("/etc/x", "-etc-x"),
        (".hidden", "-hidden"),
        ("..", "-"),
        ("", "-"),
        ("a\0b", "a-b"),
        ("a\\b", "a-b"),
        ("%2e%2e%2fx", "-2e-2e-2fx"),
    ],
)
def test_what_would_leave_its_folder_becomes_one_part(name, part):
    """SS-3: no separator, no dot at the beginning, no NUL, nothing that a URI decodes to one."""
    made = path_part(name)

    assert made.startswith(part)
    assert made == path_part(made), "it is safe now"
    assert path_part("a/b") != path_part("a\\b"), "two names stay two"


@pytest.mark.parametrize(
    ("text", "within", "first"),
    [
        ("books", True, True),
        ("books/fiction", True, False),
        ("https://a.example/x", True, False),
        ("s3:bucket", True, False),
        ("../x", False, False),
        ("a/../b", False, False),
        ("a\\..\\b", False, False),
        ("/etc/x", False, False),
        ("%2e%2e/x", False, False),
        ("%2Fetc", False, False),
        ("a\0b", False, False),
    ],
)
def test_an_argument_stays_in_the_folder_of_its_feed(text, within, first):
    """Folders below may be named; what begins the path is one part, and no URI of its own."""
    assert stays_inside(text, begins=False) is within
    assert stays_inside(text, begins=True) is first
