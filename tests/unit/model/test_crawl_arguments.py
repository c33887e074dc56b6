"""Which arguments count, what is shown of them, and what crawls are called by them."""

from __future__ import annotations

import re

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
    assert crawl_arguments.counted(given, ignored=["depth"]) == (counts, [])


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x", "a\0b", "\ud800"])
def test_what_json_cannot_say_does_not_count(value):
    """It is named, for a warning."""
    assert crawl_arguments.counted({"x": value, "cat": "a"}) == ({"cat": "a"}, ["x"])


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
