"""Real input: the HTML of python3-doc and postgresql-doc-15, served locally."""

from __future__ import annotations

import json

import pytest
from support import manuals

pytestmark = manuals.MARKS


def test_the_pages_are_those_of_a_plain_crawl_and_a_second_run_downloads_nothing(
    debian, settings, database, tmp_path
):
    """A task spider finds the pages, titles, links and headings that plain Scrapy finds."""
    feed = tmp_path / "plain.jsonl"
    debian.crawl("plain", "ADDONS={}", "FEEDS=" + json.dumps({str(feed): {"format": "jsonlines"}}))
    plain = [json.loads(line) for line in feed.read_text().splitlines()]

    first = debian.crawl("manuals", *settings)
    after_first = debian.fetched()
    second = debian.crawl("manuals", *settings)

    found = manuals.pages(database, "manuals")
    read = {name: page for name, page in found.items() if "title" in page["data"]}
    assert read.keys() == {page["url"] for page in plain}
    for page in plain:
        kept = read[page["url"]]
        assert (kept["data"]["title"], kept["data"]["links"]) == (page["title"], page["links"])
        assert kept["results"]["parse_page"] == ("1", True, {"headings": page["headings"]})
    assert first.stats["itemgraph/committed"] == len(plain)
    assert debian.fetched() == after_first
    assert "itemgraph/claimed" not in second.stats


@pytest.mark.slow
def test_a_crawl_that_was_killed_ends_with_the_same_graph(debian, settings, database, new_clone):
    """Kill -9 midway and a restart give the graph of an undisturbed crawl."""
    debian.crawl("manuals", *settings)
    undisturbed = manuals.pages(database, "manuals")

    other = new_clone()
    debian.crawl_until_killed("manuals", f"ITEMGRAPH_DATABASE_URL={other}", pages=700)
    rest = debian.crawl("manuals", f"ITEMGRAPH_DATABASE_URL={other}")

    assert rest.stats["itemgraph/committed"] < len(undisturbed)
    assert manuals.pages(other, "manuals") == undisturbed


@pytest.mark.slow
def test_a_new_version_of_one_task_runs_that_task_alone(debian, settings):
    """Bumping a task's version re-runs it for every item, and no other task for any."""
    first = debian.crawl("outlined", *settings)
    fetched = debian.fetched()

    again = debian.crawl("outlined", *settings, env={"OUTLINE_VERSION": "2"})

    assert again.stats["itemgraph/claimed"] * 2 == first.stats["itemgraph/committed"]
    assert debian.fetched() == fetched
