"""Which arguments count, what is shown of them, and what crawls are called by them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from scrapy_itemgraph.model import crawl_arguments


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"n": 3}, {"n": "3"}),
        ({"n": "3"}, {"n": "3"}),
        ({"on": True, "off": None, "x": 1.5}, {"off": "None", "on": "True", "x": "1.5"}),
        ({"some": ["b", "a"]}, {"some": '["b", "a"]'}),
        ({"some": {"b": 1, "a": 2}}, {"some": '{"a": 2, "b": 1}'}),
        ({"_job": "1", "_other": 2, "depth": "3", "cat": "x"}, {"cat": "x"}),
    ],
)
def test_what_is_given_counts_as_it_is_typed(given, counts):
    """A number counts as its text; what begins with an underscore, or is ignored, does not."""
    assert crawl_arguments.counted(given, ignored=["depth"]) == (counts, ())


class Mode(Enum):
    """A choice of a spider."""

    FAST = 1
    SLOW = 2


@dataclass(frozen=True)
class Window:
    """What a spider is to crawl, with a part that makes no difference."""

    since: date
    sites: frozenset[str]
    note: object = field(default_factory=object, compare=False)


UUID_TEXT = "12345678-1234-5678-1234-567812345678"
WINDOW = Window(date(2026, 11, 28), frozenset({"b", "a"}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 11, 28), "2026-11-28"),
        (datetime(2026, 11, 28, 9, tzinfo=UTC), "2026-11-28T09:00:00+00:00"),
        (time(9, tzinfo=ZoneInfo("Europe/Berlin")), "09:00:00[Europe/Berlin]"),
        (timedelta(days=1, seconds=5), "1 day, 0:00:05"),
        (Decimal("1.50"), "1.50"),
        (UUID(UUID_TEXT), UUID_TEXT),
        (PurePosixPath("a/b"), "a/b"),
        (b"\xff", r"b'\xff'"),
        (bytearray(b"x"), "b'x'"),
        (Mode.FAST, "Mode.FAST"),
        (float("inf"), "inf"),
        ({"b", "a", "c"}, '["a", "b", "c"]'),
        ({"on": [(date(2026, 1, 2), None)]}, '{"on": [["2026-01-02", null]]}'),
        (
            {date(2026, 1, 2): {2}, date(2026, 1, 1): {1}},
            '[["2026-01-01", [1]], ["2026-01-02", [2]]]',
        ),
        ({"b": 1, 2: "x"}, '[["b", 1], [2, "x"]]'),
        ({10: "a", 2: "b"}, '{"2": "b", "10": "a"}'),
        ([WINDOW], '[{"Window": {"since": "2026-11-28", "sites": ["a", "b"]}}]'),
        ("a\0b", r'"a\u0000b"'),
        ("\udcff", r'"\udcff"'),
    ],
)
def test_values_of_a_closed_set_of_types_count(value, text):
    """Each as one text, whatever the order of sets, at every start; nested ones as well."""
    assert crawl_arguments.counted({"x": value}) == ({"x": text}, ())


def _circle() -> list:
    circle: list = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize("value", [object(), [object()], {"a": re.compile("")}, Window, _circle()])
def test_any_other_value_does_not_count(value):
    """It is named, for a warning."""
    assert crawl_arguments.counted({"x": value, "cat": "a"}) == ({"cat": "a"}, ("x",))


def test_a_secret_is_shown_as_a_digest_and_counts():
    """Another one makes another crawl; with another salt the digest is another."""
    one, two = ({"api_key": key, "cat": "a"} for key in ("hunter2", "hunter3"))

    shown = [crawl_arguments.shown(given, "salt") for given in (one, two)]

    assert "hunter" not in str(shown)
    assert shown[0] != shown[1]
    assert [given["cat"] for given in shown] == ["a", "a"]
    assert shown[0] != crawl_arguments.shown(one, "other salt")


def test_arguments_are_shown_as_they_are_typed():
    """What a shell would read otherwise is quoted; nobody is told to type a secret's digest."""
    shown = {"api_key": "digest-1", "cat": "books", "q": "a b; rm x"}

    assert crawl_arguments.as_options(shown) == "-a api_key=… -a cat=books -a 'q=a b; rm x'"
    assert crawl_arguments.as_options({}) == "none"


def test_a_name_says_the_arguments_where_it_can():
    """They are sorted; a spider without any has its own name."""
    assert crawl_arguments.label("cats", {}) == "cats"
    assert crawl_arguments.label("cats", {"page": "2", "cat": "books"}) == "cats:cat=books,page=2"


@pytest.mark.parametrize(
    "given",
    [
        {"q": "a b"},
        {"q": "x" * 80},
        {"q": "a,b=c"},
        {"q": "größe"},
        {"q": "$(rm -rf /)"},
        {"u": "http://a.example/?x=1&y=2"},
    ],
)
def test_a_name_is_safe_and_short(given):
    """What a shell or a URL would read otherwise is left out, and a digest tells it apart."""
    name = crawl_arguments.label("cats", given)

    assert re.fullmatch(r"cats:[A-Za-z0-9_.:=,-]{1,55}", name)
    assert len(name) <= crawl_arguments.LONGEST_LABEL
    other = {key: value + "!" for key, value in given.items()}
    assert crawl_arguments.label("cats", other) != name


def test_digests_of_before_tell_arguments_apart_without_their_values():
    """A digest changes with its value, and a name that looks secret has none."""
    given = {"author": "a", "keyword": "b", "authority": "c", "pass_rate": "d"}
    secret = ["password", "api_key", "APIKEY", "access_token", "client_secret", "auth", "oauth_x"]

    kept = crawl_arguments.old_digests(given | dict.fromkeys(secret, "hunter2"))

    assert kept.keys() >= {"author", "keyword", "authority"}
    assert not kept.keys() & set(secret)
    assert kept["author"] != crawl_arguments.old_digests({"author": "b"})["author"]
    assert not set(kept.values()) & set(given.values())
