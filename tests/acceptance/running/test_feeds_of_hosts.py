"""Feeds of queued crawls on hosts with folders of their own: the last host has a whole file."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

from support import queued
from support.projects import until

PAGES = 30
SPIDER = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        for number in range({PAGES}):
            yield response.follow(f"/page/{{number}}", self.parse_page, priority=1)
        yield response.follow("/gate/last", self.parse_page)

    def parse_page(self, response):
        yield {{"page": response.url.rpartition("/")[2]}}
"""
EVERY = sorted([*map(str, range(PAGES)), "last"])


def pages(path) -> list[str]:
    """Return the pages that a feed has, sorted."""
    text = path.read_text()
    if path.suffix == ".csv":
        header, *rows = text.splitlines() or ["page"]  # empty: the process begins to write
        assert header == "page"
        return sorted(rows)
    return sorted(row["page"] for row in json.loads(text))


def test_the_host_where_the_run_ends_writes_the_whole_feed(project, other, site):
    """A runner dies with its process; on another host the files of lines and of JSON are whole."""
    for one in (project, other):
        one.write(SPIDER)
    feeds = ("out/%(crawl)s.csv", "out/%(crawl)s.json")
    added = project.scrapy(
        "itemgraph", "crawls", "add", "s", "-a", "cat=a", "-o", feeds[0], "-o", feeds[1]
    )
    assert added.code == 0, added.log
    csv, document = "out/s@cat=a.csv", "out/s@cat=a.json"
    first = queued.work(project, "--name", "first")
    assert site.arrived.wait(120), project.log()
    part = project.directory / csv
    until(lambda: part.exists() and len(pages(part)) == PAGES, project.log)
    (process,) = queued.running(project).values()
    first.kill()
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    first.wait()
    until(lambda: not queued.is_alive(process))

    second = queued.work(other, "--name", "second")
    until(lambda: queued.running(project).get("s:cat=a") not in {None, process}, other.log)
    site.may_answer.set()
    until(lambda: project.rows("SELECT state FROM crawls") == [("finished",)], other.log)
    until(lambda: not queued.running(project), other.log)  # the last process writes, and ends
    queued.end(other, second)

    assert pages(other.directory / csv) == EVERY
    assert pages(other.directory / document) == EVERY
    assert pages(part) == EVERY[:-1]
    hosts = project.rows("SELECT name, file FROM feeds ORDER BY name")
    assert [
        (name, file.endswith(f"/other/{path}"))
        for (name, file), path in zip(hosts, (csv, document), strict=True)
    ] == [(name, True) for name in feeds]


def test_a_queued_crawl_that_is_told_to_keep_no_items_says_that_its_feed_is_split(project, site):
    """Settings that change after `crawls add` has refused this once: a warning names the feed."""
    project.write(SPIDER.replace("/gate/", "/page/"))
    assert project.scrapy("itemgraph", "crawls", "add", "s", "-o", "out.csv").code == 0
    project.write(SPIDER.replace("/gate/", "/page/"), "ITEMGRAPH_KEEP_ITEMS = False\n")

    refused = project.scrapy("itemgraph", "crawls", "add", "s", "again", "-o", "out.csv")
    run = project.finish(queued.work(project, "--once"))

    assert refused.code == 1
    assert "when its runner dies and one on another host goes on" in refused.log
    assert run.code == 0, run.log
    log = project.scrapy("itemgraph", "jobs", "log", "1").output
    assert "each process of this crawl writes out.csv by itself" in log
