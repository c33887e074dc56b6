"""`scrapy itemgraph rules`, on patterns and URLs that are not of ASCII alone."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("url", ["http://a.example/café", "http://a.example/caf%C3%A9"])
@pytest.mark.usefixtures("crawl")
def test_what_is_tried_is_the_url_as_it_is_requested(scrapy, url):
    """MNB-11: `rules test` says what the crawl does, and `rules add` what a pattern never sees."""
    said = scrapy("rules", "add", "/café", "--no-accept")
    assert "with /caf%C3%A9 in the place of /café" in said.err
    (one,) = scrapy("rules", "test", url, "--json").document["urls"]
    assert one["accept"]["value"]

    scrapy("rules", "add", "/caf%C3%A9", "--no-accept")
    (one,) = scrapy("rules", "test", url, "--json").document["urls"]
    assert (one["url"], one["accept"]["value"]) == (url, False)


@pytest.mark.usefixtures("crawl")
def test_what_is_no_url_is_refused(scrapy):
    """`rules test` does not say that a text is accepted which no request can have as its URL."""
    said = scrapy("rules", "test", "not-a-url")

    assert (said.code, "'not-a-url' is no URL" in said.err) == (1, True), said.err
