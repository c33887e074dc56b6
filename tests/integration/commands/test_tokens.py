"""Tokens of the HTTP door on the command line, and starts of `serve` that are refused."""

from __future__ import annotations

import pytest

MAKE = "scrapy itemgraph token add NAME --role operate"
WITHOUT = "scrapy itemgraph serve --no-tokens"


@pytest.fixture
def without(scrapy, crawl):
    """Remove the last token, and return what was said."""
    for name in ("anna", "grafana"):
        assert scrapy("token", "add", name, "--role", "operate").code == 0
    first = scrapy("token", "remove", "anna")
    assert first.out == "removed the token anna\n"
    return scrapy("token", "remove", "grafana")


def test_a_token_is_alone_on_standard_output(scrapy, crawl):
    """So that TOKEN=$(scrapy itemgraph token add …) has it, and nothing else."""
    made = scrapy("token", "add", "anna", "--role", "read")
    assert made.code == 0
    (secret,) = made.out.splitlines()
    assert secret.startswith("itemgraph_")
    assert "not shown again" in made.err


def refused(scrapy, *arguments) -> str:
    """Return the one line with which `serve` is refused."""
    ran = scrapy("serve", "--port", "0", *arguments)
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    return line


def test_whoever_removes_the_last_token_is_told_what_it_means(without):
    """Servers let nobody in then: the command says so, and what to type for either wish."""
    assert without.code == 0
    first, second = without.out.splitlines()
    assert first == "removed the token grafana"
    assert MAKE in second
    assert WITHOUT in second


def test_a_start_after_the_last_token_is_refused_with_what_to_type(scrapy, without):
    """Nobody would be let in; the line has the command that makes a token, and the option."""
    line = refused(scrapy)

    assert MAKE in line
    assert WITHOUT in line


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--allow-host", "a.example"]])
def test_no_tokens_opens_nothing_to_others(scrapy, without, arguments):
    """--no-tokens is for this machine alone."""
    assert MAKE in refused(scrapy, "--no-tokens", *arguments)


def test_no_tokens_is_for_a_database_without_any(scrapy, crawl):
    """Where there are tokens --no-tokens is refused, and they are named."""
    scrapy("token", "add", "anna", "--role", "read")

    assert "anna" in refused(scrapy, "--no-tokens")
