"""Commands that people are told to type next."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.model import next_commands

URL = "http://a.example/?a=1&b=2"


@pytest.mark.parametrize(
    ("crawl", "arguments", "spider", "typed"),
    [
        ("quotes", {}, "quotes", "simulate quotes"),
        ("quotes:tag=love", {"tag": "love"}, "quotes", "simulate quotes"),
        ("fast", {"tag": "love"}, "quotes", "simulate --crawl fast quotes"),
        ("main", {}, "quotes", "simulate --crawl main quotes"),
        ("main", {}, None, "simulate --crawl main SPIDER"),
    ],
)
def test_a_crawl_is_named_where_the_spider_alone_means_another(crawl, arguments, spider, typed):
    """The spider's arguments are said; with these its own crawl needs no name."""
    options = "".join(f" -a {name}={value}" for name, value in arguments.items())

    assert next_commands.simulate_in(crawl, arguments, spider, None, URL) == (
        f"scrapy itemgraph {typed} '{URL}'{options}"
    )


def test_a_secret_argument_is_not_said():
    """Three dots stand for it, for whoever knows it to fill in."""
    typed = next_commands.simulate_in("main", {"token": "hunter2"}, "quotes", "parse", "A")

    assert typed == "scrapy itemgraph simulate --crawl main quotes parse A -a token=…"
