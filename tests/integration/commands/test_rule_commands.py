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


@pytest.mark.usefixtures("crawl")
def test_a_file_of_patterns_is_added_in_one_ruleset_or_not_at_all(scrapy, tmp_path):
    """MNB-11: each line is a rule; of lines that are none all are told, and nothing is changed."""
    file = tmp_path / "patterns"
    file.write_text("# traps\n/calendar/\n\n\\{\\{.+\\}\\}\n")
    said = scrapy("rules", "add", "--file", str(file), "--no-accept", "--json")
    assert said.document["number"] == 1
    assert [one["match"] for one in said.document["rules"]] == ["/calendar/", r"\{\{.+\}\}"]
    assert "with %7B in the place of '{'" in said.err

    file.write_text("(\n/good/\n[\n")
    refused = scrapy("rules", "add", "--file", str(file), "--skip")
    assert refused.code == 1
    assert ("rule 3: '('" in refused.err, "rule 5: '['" in refused.err) == (True, True)
    assert len(scrapy("rules", "list", "--json").document["rules"]) == 2
    assert "give a pattern, or --file" in scrapy("rules", "add", "--skip").err
