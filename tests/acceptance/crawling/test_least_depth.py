"""Least depth: a crawl fetches what is near enough by the shortest of its paths."""

from __future__ import annotations

import itertools
import json
import os
import random

import pytest
from support import linked_sites
from support.linked_sites import SPIDER, LinkedSite
from support.projects import until

DEPTHS = """
    SELECT i.data->>'url', d.depth FROM depths d JOIN items i ON i.id = d.item_id
"""
TRACKED = "ITEMGRAPH_LEAST_DEPTH = True\n"
LEAST = 12  # pages that are near enough, so that a process is killed while others wait
SEEDS = 20 if os.environ.get("ITEMGRAPH_TEST_SLOW") else 1


@pytest.fixture(scope="module")
def site_kind():
    """Return sites whose pages link to each other."""
    return LinkedSite


def depths(project):
    """Return how deep each page is, by its number.

    The request that `start` makes for a page is another item than the request of a link to it.
    """
    found: dict[int, int] = {}
    for url, depth in project.rows(DEPTHS):
        page = int(url.rpartition("/")[2])
        found[page] = min(depth, found.get(page, depth))
    return found


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


@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_processes_and_a_kill_fetch_what_one_would(project, site, seed):
    """MNB-9: on a random site with slow pages and pages that fail at first: the ball, no more."""
    chance = random.Random(seed)
    limit, pages = chance.randrange(3, 6), 120
    site.links = next(
        links
        for number in itertools.count(seed, 1000)
        if len(linked_sites.ball(links := linked_sites.random_links(number, pages, most=3), limit))
        > LEAST
    )
    site.slow = {page: chance.random() * 0.3 for page in chance.sample(range(pages), 30)}
    site.fails_first = set(chance.sample(range(1, pages), 10))
    project.write(SPIDER, f"DEPTH_LIMIT = {limit}\nITEMGRAPH_LEASE = 3\n{TRACKED}")

    first = project.start("crawl", "s")
    until(lambda: len(site.fetched) > 3, project.log)
    second = project.start("crawl", "s")
    until(lambda: len(site.fetched) > 8, project.log)
    first.kill()
    run = project.finish(second)
    first.wait()

    near = linked_sites.ball(site.links, limit)
    assert run.stats["reason"] == "finished", run.log
    assert site.fetched == near
    expected = linked_sites.depths({page: site.links[page] for page in near})
    assert depths(project) == expected
    assert project.rows("SELECT FROM depth_work") == []


def test_a_limit_that_is_raised_while_it_runs_lets_more_in(project, site):
    """MNB-10: a running process goes on with what is freed, and says what is too deep."""
    site.links = {page: [page + 1] for page in range(9)}
    site.slow = {2: 6.0}
    project.write(SPIDER, f"DEPTH_LIMIT = 3\n{TRACKED}")

    process = project.start("crawl", "s")
    until(lambda: site.hits["/page/2"] > 0, project.log)
    said = project.scrapy("itemgraph", "crawls", "set", "s", "--depth", "6").output
    run = project.finish(process)
    status = project.scrapy("itemgraph", "status", "--json")
    explained = project.scrapy("itemgraph", "explain", f"{site.url}/page/7").output

    assert "6 links deep" in said
    assert run.stats["reason"] == "finished", run.log
    assert site.fetched == set(range(7))
    depth = json.loads(status.output)["depth"]
    assert (depth["limit"], depth["is_set"], depth["too_deep"]) == (6, True, 1)
    assert "too deep: 7, the limit is 6" in " ".join(explained.split())
    assert f"{site.url}/page/0 → " in " ".join(explained.split())
