"""A crawl that tracks how deep its pages are as a dump: loaded, it is as deep, and goes on so."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise

import pytest
from conftest import new_database
from support import graphs, oracle
from support.tracked_sites import DEPTHS, TrackedSite

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.operations import CreateItem, DeleteItem, MergeItem, RenameItem
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import set_aside
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import dump, dump_depths, explain, load
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawl_depths

pytestmark = pytest.mark.server

SEEDS = 100 if os.environ.get("ITEMGRAPH_TEST_SLOW") else 8
WORDS = """
    SELECT tracks_depth, depth_limit, is_depth_limit_set, dripfeed FROM crawls WHERE id = :crawl
"""
KINDS = ("depth", "links", "depth_work", "depth_sweep")


def chain(crawl, *names):
    """Fetch pages of which each links to the next one."""
    for page, following in pairwise(names):
        crawl.done(page, CreateItem(following, ["page"]))


def work_off(crawl):
    """Do all that is due of depths."""
    steps = (sweeps.free, sweeps.sweep, relax.relax)
    while sum(step(crawl.connection, crawl.id) for step in steps):
        pass
    oracle.assert_worklist_is_true(crawl.connection, crawl.id)


def standing(crawl):
    """Return what a loaded crawl has to have as the one that it came from."""
    items = crawl.rows("SELECT id, name FROM items WHERE crawl_id = :crawl", crawl=crawl.id)
    return {
        "words": [tuple(row) for row in crawl.rows(WORDS, crawl=crawl.id)],
        "depths": sorted(
            (row.name, row.depth, row.via or "") for row in crawl.rows(DEPTHS, crawl=crawl.id)
        ),
        "worklist": sorted(crawl.worklist()),
        "explained": {
            row.name: [one.reasons for one in explain.explain(crawl.connection, crawl.id, row.id)]
            for row in items
        },
    }


def of_depths(lines):
    """Return what the lines of a dump say of depths, by their kind."""
    read = [json.loads(line) for line in lines]
    return {kind: [one for one in read if one.get("kind") == kind] for kind in KINDS}


def moved(crawl, lines):
    """Make another crawl of the lines of a dump, on the same connection."""
    connection = crawl.connection
    with (
        ThreadPoolExecutor(1) as writer,
        closing(
            load.Load(
                connection,
                "moved",
                partial(_intern, connection),
                writer,
                lambda content: None,
            )
        ) as loading,
    ):
        for number, line in enumerate(lines[1:], 2):
            loading.add(f"line {number}", line)
        loading.finish()
    other = graphs.Crawl(connection, "moved")
    other.register(parse={"tags": ["page"]})
    return other


def act(site):
    """Do something at random to a site's crawl."""
    what = site.chance.random()
    known = {row.name for row in site.crawl.rows(DEPTHS, crawl=site.crawl.id)} - {"P0"}
    if what < 0.5:
        site.fetch(3)
    elif what < 0.6:
        limit = site.chance.choice([1, 2, 3, 4, None])
        crawl_depths.set_limit(site.connection, site.crawl.id, limit, by="a person")
    elif what < 0.65:
        crawl_depths.find_anew(site.connection, site.crawl.id)
    elif what < 0.75 and len(known) > 1:
        gone, into = site.chance.sample(sorted(known), 2)
        site.crawl.do(MergeItem(into=into, id=gone))
        site.merged[gone] = into
    else:
        site.step()


def by_name(site):
    """Return depths; of paths that are equally short chance says which is told."""
    return {row.name: row.depth for row in site.crawl.rows(DEPTHS, crawl=site.crawl.id)}


def _intern(connection, wanted):
    return stored_slots.intern_limits(connection, keys=wanted)


@pytest.fixture
def filled(database, engine):
    """Yield a database with a crawl `books` that tracks depth, with all that there is of it."""
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection)
        crawl_depths.set_limit(connection, crawl.id, 3, by="a person")
        crawl.do(CreateItem("A", ["page"]), CreateItem("G", ["page"]))
        chain(crawl, "A", "B", "C")
        # A cycle, a link to a page that is known, and one to itself.
        crawl.done("C", *(CreateItem(one, ["page"]) for one in ("A", "D", "C", "G")))
        crawl.done("D", CreateItem("E", ["page"]), CreateItem("gone", ["page"]))
        crawl.done("G", CreateItem("B2", ["page"]))
        crawl.done("B2", CreateItem("F", ["page"]))
        crawl.do(MergeItem(into="B", id="B2"), RenameItem(to="G2", id="G"), DeleteItem("gone"))
        work_off(crawl)
        set_aside.set_dripfeed(connection, crawl.id, 7)
    return database


def test_a_loaded_crawl_is_as_deep(filled, engine, server_url, template):
    """MNB-9: depths, least paths, the limit, what waits as too deep and the drip feed are kept."""
    with ItemGraph.open(filled, "books") as graph:
        dumped = list(graph.crawls.dump())
    with new_database(server_url, template) as other:
        with ItemGraph.open(other, "noise") as graph:
            graph.apply([CreateItem(f"N{number}") for number in range(9)])
        with ItemGraph.open(other, "books") as graph:
            counts = graph.crawls.load(dumped)
            again = list(graph.crawls.dump())
        loaded = engines.sync_engine(other)
        with loaded.begin() as connection, engine.begin() as origin:
            crawls = [graphs.Crawl(one) for one in (origin, connection)]
            before, after = map(standing, crawls)
            oracle.assert_worklist_is_true(connection, crawls[1].id)
            oracle.assert_rows_have_items(connection)
        loaded.dispose()

    assert again[1:] == dumped[1:]
    assert before == after
    assert before["words"] == [(True, 3, True, 7)]
    assert before["worklist"] == ["F parse"]
    assert before["explained"]["E"][0][0].startswith(
        "too deep: 4, the limit is 3; the shortest path is A → B → C → D → E"
    )
    assert {row[0]: row[1:] for row in before["depths"]} == {
        "A": (0, ""),
        "B": (1, "A"),
        "C": (2, "B"),
        "D": (3, "C"),
        "E": (4, "D"),
        "F": (2, "B"),
        "G2": (0, ""),
    }
    assert counts == {
        "items": 7,
        "failures": 0,
        "scraped": 0,
        "depths": 7,
        "links": 5,
    }


def test_a_shorter_path_after_loading_frees_pages_as_in_the_original(filled, engine):
    """MNB-9: what a loaded crawl knows of links passes the new depth on, and frees what waits."""
    with ItemGraph.open(filled, "books") as graph:
        dumped = list(graph.crawls.dump())
    with ItemGraph.open(filled, "moved") as graph:
        graph.crawls.load(dumped)

    with engine.begin() as connection:
        crawls = [graphs.Crawl.of(connection), graphs.Crawl(connection, "moved")]
        for crawl in crawls:
            crawl.register(parse={"tags": ["page"]})
            crawl.do(CreateItem("C", ["page"]))  # a path begins there: somebody names it
            work_off(crawl)
        before, after = map(standing, crawls)

    assert before == after
    assert before["worklist"] == ["E parse", "F parse"]
    assert [row[:2] for row in before["depths"]] == [
        *(("A", 0), ("B", 1), ("C", 0), ("D", 1), ("E", 2), ("F", 2), ("G2", 0)),
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_crawl_that_is_dumped_at_any_moment_goes_on_as_it_would_have(
    connection, monkeypatch, seed
):
    """MNB-9: on random graphs, with merges, limits, retries and shorter paths under way."""
    monkeypatch.setattr(relax, "MOST_OFFERS", 2)
    monkeypatch.setattr(relax, "MOST_PARTS", 2)
    monkeypatch.setattr(sweeps, "STEP", 3)
    monkeypatch.setattr(dump_depths, "STEP", 3)
    monkeypatch.setattr(dump_depths, "MOST_CHILDREN", 4)
    monkeypatch.setattr(load, "STEP", 5)
    site = TrackedSite(connection, 2000 + seed, 2)
    for _ in range(30):
        act(site)

    lines = list(dump.lines(connection, site.crawl.id))
    other = site.moved_to(moved(site.crawl, lines))
    again = list(dump.lines(connection, other.crawl.id))

    assert again[1:] == lines[1:]
    assert standing(other.crawl) == standing(site.crawl)
    for one in (site, other):
        one.finish()
    assert other.fetched == site.fetched
    assert by_name(other) == by_name(site)
    for one in (site, other):
        crawl_depths.set_limit(connection, one.crawl.id, None, by="a person")
        one.finish()
        one.assert_depths_are_least()


def test_an_older_dump_is_loaded_without_depths(filled):
    """A dump of before depths were in it makes a crawl that does not track them."""
    with ItemGraph.open(filled, "books") as graph:
        read = [json.loads(line) for line in graph.crawls.dump()]
    for name in ("tracks_depth", "depth_limit", "is_depth_limit_set", "dripfeed"):
        del read[1][name]
    for name in ("depths", "links", "depth_work"):
        del read[-1][name]
    older = [json.dumps(one) for one in read if one.get("kind") not in KINDS]

    with ItemGraph.open(filled, "moved") as graph:
        counts = graph.crawls.load(older)
        again = [json.loads(line) for line in graph.crawls.dump()]
        standing = graph.depths.standing()

    assert counts == {"items": 7, "failures": 0, "scraped": 0}
    assert standing is None
    assert again[1:] == [one for one in read[1:] if one.get("kind") not in KINDS]


def test_a_crawl_that_does_not_track_depth_has_nothing_of_it_in_its_dump(database):
    """Neither lines nor members nor counts."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A", ["page"])])
        lines = list(graph.crawls.dump())

    assert not any(word in line for word in ("depth", "links", "dripfeed") for line in lines)


def changed(lines, kind, **members):
    """Return lines of which the last of a kind has other members."""
    read = [json.loads(line) for line in lines]
    next(one for one in reversed(read) if one.get("kind") == kind).update(members)
    return [json.dumps(one) for one in read]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (partial(changed, kind="depth", depth=-1), "a depth is 0 or more, and not -1"),
        (partial(changed, kind="depth", item="X"), "there is no 'X', which it needs"),
        (partial(changed, kind="links", to=["A"] * 1001), "there are 1,001 links; a line has"),
        (partial(changed, kind="links", item="A"), "duplicate key"),
        (partial(changed, kind="crawl", depth_limit=-1), "line 2: .*depth_limit"),
        (partial(changed, kind="crawl", dripfeed=0), "line 2: .*dripfeed"),
        (
            lambda lines: [line for line in lines if '"kind" : "links"' not in line],
            "lines are missing",
        ),
    ],
)
def test_wrong_lines_of_depths_are_refused(filled, change, error):
    """The error names what is wrong, and nothing is loaded."""
    with ItemGraph.open(filled, "books") as graph:
        damaged = change(list(graph.crawls.dump()))

    with ItemGraph.open(filled, "moved") as graph:
        with pytest.raises(OperationError, match=error):
            graph.crawls.load(damaged)
        assert graph.crawls.names() == ["books"]
