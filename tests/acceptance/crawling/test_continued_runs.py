"""Runs that work opens again after their end: what they did stays done, and feeds stay whole."""

from __future__ import annotations

import gzip
import json
import shlex
from collections import Counter

import pytest

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]

    def parse(self, response):
        for n in range(6):
            yield response.follow(f"/page/{n}", self.page)

    def page(self, response):
        if response.url.endswith("/3") and not os.path.exists("mended"):
            raise ValueError("broken")
        yield {"url": response.url}
        if response.url.endswith("/3"):
            yield response.follow("/page/behind", self.page)
            yield response.follow("/page/4", self.page)
"""
FEEDS = """
FEEDS = {
    "out.jsonl": {"format": "jsonlines", "overwrite": True},
    "out.json": {"format": "json", "overwrite": True},
}
"""


def lines(project):
    """Return the pages of the feed of lines."""
    text = (project.directory / "out.jsonl").read_text()
    return [json.loads(line)["url"].rpartition("/")[2] for line in text.splitlines()]


def document(project, name):
    """Return the pages of a JSON feed."""
    found = json.loads((project.directory / name).read_text())
    return [one["url"].rpartition("/")[2] for one in found]


@pytest.mark.tracebacks("ValueError: broken")
def test_a_handled_page_is_fetched_by_its_run_which_goes_on(project, site):
    """`handle` says the command and its cost; no start page is fetched, and no feed is replaced."""
    project.write(SPIDER, FEEDS)
    first = project.crawl()
    whole = document(project, "out.json")
    assert (first.stats["reason"], len(lines(project))) == ("finished", 5)
    (project.directory / "mended").touch()
    handled = project.scrapy("itemgraph", "handle", "--all").output
    command = next(line for line in handled.splitlines() if "scrapy crawl" in line)
    assert "(run 1 goes on: 1 page to fetch;" in handled
    site.hits.clear()

    run = project.scrapy(*shlex.split(command)[1:])
    again = project.scrapy(*shlex.split(command)[1:])

    assert run.stats["reason"] == "finished", run.log
    assert site.hits == Counter(["/page/3", "/page/behind"])
    assert "Run 1 of this crawl goes on with what is outstanding" in run.log
    assert sorted(lines(project)) == ["0", "1", "2", "3", "4", "5", "behind"]
    assert document(project, "out.json") == whole
    assert sorted(document(project, "out.continued.json")) == ["3", "behind"]
    assert "out.json would be overwritten" in run.log
    assert (again.code, again.stats["reason"]) == (0, "finished"), again.log
    assert "Nothing is outstanding, so there is nothing of run 1 to go on with" in again.log
    assert project.rows("SELECT number, is_finished FROM runs") == [(1, True)]
    assert sorted(lines(project)) == ["0", "1", "2", "3", "4", "5", "behind"]


@pytest.mark.tracebacks("ValueError: broken")
def test_kept_items_of_a_run_that_goes_on_are_all_in_its_feeds(project, site):
    """With ITEMGRAPH_KEEP_ITEMS the JSON feed is written anew, with what the run did before."""
    project.write(SPIDER, FEEDS + "ITEMGRAPH_KEEP_ITEMS = True\n")
    project.crawl()
    (project.directory / "mended").touch()
    project.scrapy("itemgraph", "handle", "--all")

    run = project.crawl("-s", "ITEMGRAPH_CONTINUE=True")

    assert run.stats["reason"] == "finished", run.log
    every = ["0", "1", "2", "3", "4", "5", "behind"]
    assert sorted(document(project, "out.json")) == every
    assert sorted(lines(project)) == every
    assert not (project.directory / "out.continued.json").exists()


CSV_AND_GZIP = """
FEEDS = {
    "out.csv": {"format": "csv", "overwrite": True},
    "out.jsonl.gz": {
        "format": "jsonlines",
        "overwrite": True,
        "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
    },
}
"""


def unpacked(path):
    """Return the pages of a gzip feed of lines."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return sorted(json.loads(line)["url"].rpartition("/")[2] for line in lines)


@pytest.mark.tracebacks("ValueError: broken")
def test_csv_is_appended_to_without_a_second_header_and_gzip_is_written_beside(project, site):
    """A run that goes on leaves the gzip feed as it is, says so, and writes NAME.continued.EXT."""
    project.write(SPIDER, CSV_AND_GZIP)
    project.crawl()
    whole = (project.directory / "out.jsonl.gz").read_bytes()
    (project.directory / "mended").touch()
    project.scrapy("itemgraph", "handle", "--all")

    run = project.crawl("-s", "ITEMGRAPH_CONTINUE=True")

    assert run.stats["reason"] == "finished", run.log
    header, *rows = (project.directory / "out.csv").read_text().splitlines()
    pages = sorted(row.rpartition("/")[2] for row in rows)
    assert (header, pages) == ("url", ["0", "1", "2", "3", "4", "5", "behind"])
    assert (project.directory / "out.jsonl.gz").read_bytes() == whole
    beside = project.directory / "out.continued.jsonl.gz"
    assert unpacked(beside) == ["3", "behind"]
    (warning,) = [line for line in run.log.splitlines() if "would be overwritten" in line]
    assert "WARNING: out.jsonl.gz" in warning
    assert warning.index("out.continued.jsonl.gz")
