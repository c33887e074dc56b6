"""Least depths, whatever the order in which links, merges, limits and their workers come."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from support import graphs, linked_sites, oracle
from support.tracked_sites import DEPTHS, TrackedSite

from scrapy_itemgraph.model.operations import CreateItem, DeleteItem, MergeItem, RenameItem
from scrapy_itemgraph.store.admin import depth_reports, explain
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawl_depths

SEEDS = 200 if os.environ.get("ITEMGRAPH_TEST_SLOW") else 12


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Let steps be so small that many are needed."""
    monkeypatch.setattr(relax, "MOST_OFFERS", 2)
    monkeypatch.setattr(relax, "MOST_PARTS", 2)
    monkeypatch.setattr(relax, "MOST_CHILDREN", 4)
    monkeypatch.setattr(sweeps, "STEP", 3)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_fetched_is_the_ball_of_the_limit(connection, seed):
    """MNB-9: on random graphs with cycles, in any order, with retries, in steps at any moment."""
    limit = seed % 5 + 1
    site = TrackedSite(connection, seed, limit)

    while site.fetch(site.chance.randrange(1, 4)):
        for _ in range(site.chance.randrange(3)):
            site.step()
    site.finish()

    near = {page for page, far in linked_sites.depths(site.links, ["P0"]).items() if far <= limit}
    assert site.fetched == near
    site.assert_depths_are_least()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_limits_and_merges_on_the_way_leave_what_is_so_in_the_end(connection, seed):
    """MNB-9: limits go up and down, items are merged and renamed; the last limit is what counts."""
    site = TrackedSite(connection, 1000 + seed, 2)
    for _ in range(30):
        what = site.chance.random()
        known = [row.name for row in site.crawl.rows(DEPTHS, crawl=site.crawl.id)]
        if what < 0.5:
            site.fetch(3)
        elif what < 0.65:
            limit = site.chance.choice([1, 2, 3, 4, None])
            crawl_depths.set_limit(connection, site.crawl.id, limit, by="a person")
        elif what < 0.75 and len(known) > 2:
            gone, into = site.chance.sample(sorted(set(known) - {"P0"}), 2)
            site.crawl.do(MergeItem(into=into, id=gone))
            site.merged[gone] = into
        else:
            site.step()
    crawl_depths.set_limit(connection, site.crawl.id, None, by="a person")
    site.finish()

    site.assert_depths_are_least()
    assert {site.page(one) for one in site.fetched} == set(site.known_links())
    assert set(linked_sites.depths(site.known_links(), ["P0"])) == set(site.known_links())


def chain(crawl, *names):
    """Fetch pages of which each links to the next one."""
    for page, following in pairwise(names):
        crawl.done(page, CreateItem(following, ["page"]))


@pytest.fixture
def crawl(connection):
    """Return a crawl that tracks depth, where pages may be two links deep."""
    crawl = graphs.Crawl.of(connection)
    crawl_depths.begin(connection, crawl.id, 2)
    crawl.do(CreateItem("A", ["page"]))
    chain(crawl, "A", "B", "C", "D")
    return crawl


def work_off(crawl):
    """Do all that is due of depths."""
    steps = (sweeps.free, sweeps.sweep, relax.relax)
    while sum(step(crawl.connection, crawl.id) for step in steps):
        pass
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)


def depths(crawl):
    """Return the depths of pages by name."""
    return {row.name: row.depth for row in crawl.rows(DEPTHS, crawl=crawl.id)}


def test_what_is_too_deep_is_explained_with_its_path(crawl):
    """MNB-9: how deep it is, the limit, and the pages that lead there; it is kept, and counted."""
    (found,) = explain.explain(crawl.connection, crawl.id, crawl.item_id("D"))
    standing = depth_reports.standing(crawl.connection, crawl.id)

    assert crawl.worklist() == []
    assert not found.is_eligible
    assert found.reasons[0].startswith("too deep: 3, the limit is 2; the shortest path is A → B → ")
    assert (standing.limit, standing.is_set, standing.too_deep) == (2, False, 1)
    assert [(one.depth, one.pages) for one in standing.by_depth] == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_a_shorter_path_frees_what_waits_and_what_is_behind_it(crawl):
    """MNB-9: a link to a page that was known is enough, and pages behind it come nearer as well."""
    crawl.do(CreateItem("D", ["page"]))  # a path begins there: somebody names it
    work_off(crawl)

    assert depths(crawl) == {"A": 0, "B": 1, "C": 2, "D": 0}
    assert crawl.worklist() == ["D parse"]


def test_the_limit_of_a_person_goes_before_that_of_the_code(crawl):
    """MNB-10: a start with another DEPTH_LIMIT leaves it; one before that takes the code's."""
    crawl_depths.begin(crawl.connection, crawl.id, 3)
    work_off(crawl)
    by_code = crawl.worklist()
    crawl_depths.set_limit(crawl.connection, crawl.id, 1, by="a person")
    crawl_depths.begin(crawl.connection, crawl.id, 3)
    work_off(crawl)

    assert (by_code, crawl.worklist()) == (["D parse"], [])


def test_a_renamed_page_keeps_its_depth_and_a_deleted_one_passes_on_nothing(crawl):
    """MNB-9: names say nothing of depth; what a deleted page linked to keeps the depth it had."""
    crawl.do(RenameItem(to="C2", id="C"))
    crawl.do(DeleteItem("B"))
    work_off(crawl)

    assert depths(crawl) == {"A": 0, "C2": 2, "D": 3}


def test_depths_are_found_anew_without_what_was_deleted(crawl):
    """MNB-9: depths that were had by a page that is gone are not known any more, nor fetched."""
    crawl.do(CreateItem("E", ["page"]))
    chain(crawl, "E", "C")
    work_off(crawl)
    before = depths(crawl)
    crawl.do(DeleteItem("E"))
    crawl_depths.find_anew(crawl.connection, crawl.id)
    work_off(crawl)

    assert before == {"A": 0, "B": 1, "C": 1, "D": 2, "E": 0}
    assert depths(crawl) == {"A": 0, "B": 1, "C": 2, "D": 3}


def test_depths_that_are_found_anew_can_be_found_anew_again(crawl):
    """MNB-9: one that waits for links to be looked at gives way to the next, which does all."""
    crawl_depths.find_anew(crawl.connection, crawl.id)
    while crawl.rows("SELECT phase FROM depth_sweeps") != [("settle",)]:
        assert sweeps.sweep(crawl.connection, crawl.id)
    crawl_depths.find_anew(crawl.connection, crawl.id)
    work_off(crawl)

    assert crawl.rows("SELECT FROM depth_sweeps") == []
    assert depths(crawl) == {"A": 0, "B": 1, "C": 2, "D": 3}


def test_a_crawl_that_tracks_later_finds_depths_from_who_created_which(connection):
    """MNB-9: pages of before get depths from their creators, and what is too deep waits."""
    crawl = graphs.Crawl.of(connection)
    crawl.do(CreateItem("A", ["page"]))
    chain(crawl, "A", "B", "C", "D")
    untracked = crawl.worklist()

    crawl_depths.set_limit(connection, crawl.id, 2, by="a person")
    work_off(crawl)

    assert untracked == ["D parse"]
    assert (depths(crawl), crawl.worklist()) == ({"A": 0, "B": 1, "C": 2, "D": 3}, [])


def test_a_crawl_that_does_not_track_writes_nothing_of_depths(connection):
    """MNB-9: no row, no link, and nothing to count."""
    crawl = graphs.Crawl.of(connection)
    crawl.do(CreateItem("A", ["page"]))
    chain(crawl, "A", "B")

    assert depth_reports.standing(connection, crawl.id) is None
    assert crawl.rows("SELECT FROM depths UNION ALL SELECT FROM links") == []
