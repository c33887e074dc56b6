"""Feeds of a crawl that is killed, without the journal."""

from __future__ import annotations

import json

import pytest
from support.feed_crawls import PAGES, done, kill_at_gate, names_in_csv, spider

SPIDER = spider()

SETTINGS = """
CONCURRENT_REQUESTS_PER_DOMAIN = 2
FEEDS = {{{feed!r}: {options!r}}}
"""

EVERY = {str(number) for number in range(PAGES)}


def names(text: str, kind: str) -> list[str]:
    """Return the names in a feed."""
    if kind == "csv":
        return names_in_csv(text)
    return [json.loads(line)["name"] for line in text.splitlines()]


@pytest.mark.edge
@pytest.mark.parametrize("kind", ["jl", "csv"])
def test_a_line_feed_has_what_is_committed_when_the_crawl_is_killed(project, site, kind):
    """The pages that are done at a kill -9 have their items in the file, and a second run adds."""
    feed = f"out.{kind}"
    project.write(SPIDER, SETTINGS.format(feed=feed, options={"format": kind}))
    kill_at_gate(project, site)
    path = project.directory / feed
    before = path.read_bytes()
    assert done(project) <= set(names(before.decode(), kind))
    path.write_bytes(before + (b'{"name": "to' if kind == "jl" else b'torn,"te\r\nx'))

    run = project.crawl()

    assert run.code == 0, run.log
    assert set(names(path.read_bytes().decode(), kind)) == EVERY
    assert path.read_bytes().count(b"name,text") == (kind == "csv")
    assert "ended in the middle of an item" in run.log
    assert f"Stored {kind} feed" in run.log


def test_overwriting_keeps_what_the_run_has_written(project, site):
    """`-O` after a kill adds to what the killed process wrote, for that is not fetched again."""
    project.write(SPIDER, "CONCURRENT_REQUESTS_PER_DOMAIN = 2\n")
    path = project.directory / "out.jl"
    path.write_text('{"name": "old"}\n')
    kill_at_gate(project, site, "-O", "out.jl")

    run = project.crawl("-O", "out.jl")

    assert run.code == 0, run.log
    assert set(names(path.read_text(), "jl")) == EVERY
    again = project.crawl("-O", "out.jl")
    assert "out.jl will hold only what is scraped from now on" in again.log


def test_batches_that_are_full_have_what_is_committed(project, site):
    """Files that are full are closed before the commit of what they hold."""
    options = {"format": "jsonlines", "batch_item_count": 25}
    project.write(SPIDER, SETTINGS.format(feed="out-%(batch_id)d.jl", options=options))

    kill_at_gate(project, site)

    files = [path.read_text() for path in project.directory.glob("out-*.jl")]
    assert done(project) <= {name for text in files for name in names(text, "jl")}


@pytest.mark.tracebacks("ConnectionRefusedError")  # by the storage that is down
@pytest.mark.crawls(
    SPIDER.replace("/gate", "/page/30"),
    """
    FEEDS = {
        "a.json": {"format": "json"},
        "b.jl.gz": {"format": "jl", "postprocessing":
            ["scrapy.extensions.postprocessing.GzipPlugin"]},
        "c.jl": {"format": "jl"},
        "ftp://me:secret@127.0.0.1:1/d.jl": {"format": "jl"},
    }
    """,
)
def test_feeds_that_cannot_be_flushed_are_named_once(run):
    """One warning names the feeds that a crash can rob of items, and what to set."""
    (warning,) = [line for line in run.log.splitlines() if "ITEMGRAPH_KEEP_ITEMS" in line]
    assert "a.json, b.jl.gz, ftp://127.0.0.1:1/d.jl may lack" in warning
    assert "c.jl" not in warning
    assert "secret" not in warning


@pytest.mark.tracebacks("No space left on device")  # as Scrapy closes the feed
def test_what_cannot_be_written_is_not_done(project):
    """A feed without room ends the crawl with one line, and its pages are done by the next one."""
    project.write(
        SPIDER.replace("/gate", "/page/30"),
        SETTINGS.format(feed="/dev/full", options={"format": "jl"}),
    )

    run = project.crawl()

    assert run.code == 1
    assert "The feed /dev/full cannot be written: [Errno 28]" in run.log
    assert done(project) == set()


@pytest.mark.crawls(
    SPIDER.replace("/gate", "/page/30"),
    SETTINGS.format(feed="out.jl", options={"format": "jl"})
    + """
EXTENSIONS |= {"scrapy.extensions.feedexport.FeedExporter": None, "proj.mine.Mine": 0}
""",
    mine="""
    from scrapy.extensions.feedexport import FeedExporter

    class Mine(FeedExporter):
        def item_scraped(self, item, spider):
            super().item_scraped({"name": item["name"] + "!"}, spider)
    """,
)
def test_an_exporter_of_the_project_is_left(run, project):
    """Who has a feed exporter of their own keeps it, and is told what it does not promise."""
    assert "Mine of this project writes its feeds itself" in run.log
    found = names((project.directory / "out.jl").read_text(), "jl")
    assert set(found) == {f"{name}!" for name in EVERY}


def test_who_has_no_feed_exporter_gets_none(project):
    """An exporter that was switched off stays off."""
    project.write(
        SPIDER.replace("/gate", "/page/30"),
        SETTINGS.format(feed="out.jl", options={"format": "jl"})
        + 'EXTENSIONS["scrapy.extensions.feedexport.FeedExporter"] = None\n',
    )

    assert project.crawl().code == 0

    assert not (project.directory / "out.jl").exists()
