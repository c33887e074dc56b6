"""The spider `site`, which comes with the package: whole websites are kept, without any code."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from support import queued
from support.whole_sites import NEEDED, PAGES, WholeSite

from scrapy_itemgraph.graph import ItemGraph

ELSEWHERE = "-s", "ITEMGRAPH_ALLOWED_HOSTS=localhost"


@pytest.fixture(scope="module")
def site_kind():
    """Have the tests crawl a website as archivists meet them."""
    return WholeSite


@pytest.fixture
def empty(project):
    """Return a project without a spider of its own."""
    return project.write("", "ROBOTSTXT_OBEY = True\n")


def kept(project, crawl: str) -> dict[str, tuple[int, bytes]]:
    """Return the status and the content of each page that a crawl keeps, by its path."""
    with ItemGraph.open(project.url, crawl) as graph:
        found = {}
        for item in graph.items():
            for result in graph.results(item.id):
                if "status" in result.metadata:
                    path = urlsplit(item.data["url"]).path
                    body = b"".join(graph.blobs.read(item.id, "body"))
                    found[path] = result.metadata["status"], body
        return found


def test_a_site_is_queued_run_and_kept_without_code(empty, site):
    """MNB-1: `crawls add site` names it, a runner finds it, and `scrapy list` does not grow."""
    listed = empty.scrapy("list")
    mine = ("site", "mine", "-a", f"url={site.url}/", *ELSEWHERE)
    added = empty.scrapy("itemgraph", "crawls", "add", *mine)
    run = empty.finish(queued.work(empty, "--once"))

    assert "site" not in listed.output.split()
    assert added.code == 0, added.log
    assert run.code == 0, run.log
    assert queued.jobs(empty) == [("mine", "completed", 1)]
    found = kept(empty, "mine")
    outside = {"/empty", "/private", "/hidden"}
    assert found.keys() == PAGES.keys() - outside - {"/target"} | {"/moved", "/gone"}
    assert all(found[path] == (200, PAGES[path][1]) for path in NEEDED)
    assert found["/gone"] == (404, b"not here")
    assert not site.hits.keys() & {"/outside", "/hidden", "/private", "/one?replytocom=1"}
    assert {path for path, hits in site.hits.items() if hits > 1} == {"/robots.txt"}
