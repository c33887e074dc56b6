"""Least depth: a crawl fetches what is near enough by the shortest of its paths."""

from __future__ import annotations

import pytest
from support import linked_sites
from support.linked_sites import SPIDER, LinkedSite

DEPTHS = """
    SELECT i.data->>'url', d.depth FROM depths d JOIN items i ON i.id = d.item_id
"""
TRACKED = "ITEMGRAPH_LEAST_DEPTH = True\n"


@pytest.fixture(scope="module")
def site_kind():
    """Return sites whose pages link to each other."""
    return LinkedSite


def depths(project):
    """Return how deep each page is, by its number."""
    return {int(url.rpartition("/")[2]): depth for url, depth in project.rows(DEPTHS)}


def test_what_is_found_by_the_longer_path_first_is_fetched(project, site):
    """MNB-9: a page's depth is the least of all paths, that of links to known pages included."""
    project.write(SPIDER, f"DEPTH_LIMIT = 4\n{TRACKED}")

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.fetched == linked_sites.ball(site.links, 4) == set(range(7))
    assert depths(project) == linked_sites.depths(site.links)


def test_scrapy_alone_misses_what_it_finds_by_the_longer_path_first(project, site):
    """MNB-9: without it the same crawl lacks a page, for the path that came first was longer."""
    project.write(SPIDER, "DEPTH_LIMIT = 4\n")

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.fetched == set(range(6))
    assert not project.rows("SELECT FROM depths UNION ALL SELECT FROM depth_work")
