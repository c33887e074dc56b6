"""What lists, numbers and deletions read of a large frontier: no more than they answer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support import frontiers
from support.frontiers import url
from support.plans import explaining

from scrapy_itemgraph.changesets import additions, apply
from scrapy_itemgraph.model.frontier import Request
from scrapy_itemgraph.model.operations import Changeset, CreateItem, StoreResult, UpdateData
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import queues as stored_queues
from scrapy_itemgraph.store.admin import counting, frontier_stats
from scrapy_itemgraph.store.frontier import (
    controls,
    crawls,
    deletions,
    handouts,
    listings,
    lookup,
    puts,
)
from scrapy_itemgraph.store.frontier.listings import Filter
from scrapy_itemgraph.store.registry import crawls as registered
from scrapy_itemgraph.store.registry import item_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

pytestmark = pytest.mark.server

QUEUES, EACH = 500, 100
STEP = 50  # URLs of a page here
BIG = ("items", "aliases", "tags", "results", "work", "queues", "frontier_queues", "limits")
# Each queue has a completed URL for each that waits; the first hundred wait for their dates.
FILL = (
    "INSERT INTO limits (kind, name) SELECT 'slot', 'h' || n FROM generate_series(1, :queues) AS n",
    """INSERT INTO queues (crawl_id, slot_id, is_live)
    SELECT c.id, l.id, true FROM crawls c, limits l WHERE l.name LIKE 'h%' ORDER BY l.id""",
    """INSERT INTO frontier_queues (queue_id, crawl_id)
    SELECT q.id, q.crawl_id FROM queues q ON CONFLICT DO NOTHING""",
    """INSERT INTO items (crawl_id, slot_id, name, data, in_frontier)
    SELECT q.crawl_id, q.slot_id, 'URL:http://h' || q.slot_id || '/' || n,
        json_build_object('url', 'http://h' || q.slot_id || '/' || n, 'metadata', '{}'::json), true
    FROM queues q CROSS JOIN generate_series(1, :each) AS n""",
    """INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT crawl_id, encode(substr(sha256(convert_to(name, 'UTF8')), 1, 16), 'hex')::uuid, name, id
    FROM items ON CONFLICT DO NOTHING""",
    """INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT id, 'url', crawl_id FROM items ON CONFLICT DO NOTHING""",
    """INSERT INTO results (item_id, task_id, task_version, is_successful, completed_at)
    SELECT i.id, t.id, '1', true, now() FROM items i, tasks t WHERE i.id % 2 = 0""",
    """INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT i.id, k.task_id, i.crawl_id, q.id, k.id, false, 1,
        CASE WHEN q.id <= 100 THEN now() + interval '1 day' END
    FROM items i JOIN queues q ON q.slot_id = i.slot_id, kinds k WHERE i.id % 2 = 1
    ON CONFLICT DO NOTHING""",
)


@pytest.fixture(params=["no statistics", "statistics"])
def filled(request, engine, monkeypatch) -> Iterator[Connection]:
    """Yield a transaction on a frontier of 500 queues with 100 URLs each."""
    monkeypatch.setattr(listings, "PAGE", STEP)
    monkeypatch.setattr(deletions, "STEP", STEP)
    with frontiers.opened(engine) as server:
        server.put(url("http://a.example/1"))
    with engine.begin() as connection:
        for table in BIG:
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        for statement in FILL:
            given = {"queues": QUEUES, "each": EACH}
            text = sa.text(statement)
            connection.execute(text, {name: given[name] for name in text._bindparams})
        if request.param == "statistics":
            connection.exec_driver_sql("ANALYZE")
    with engine.connect() as connection:
        engines.hot_path(connection)
        yield connection
        connection.rollback()


def most_rows(explained) -> dict[str, int]:
    """Return how many rows of tables each statement read at most."""
    names = itertools.groupby(sorted(explained, key=lambda one: one.name), lambda one: one.name)
    return {name: max(one.rows for one in group) for name, group in names}


def test_a_page_of_a_list_reads_as_many_rows_as_it_has(filled):
    """UF-10: of URLs with and without a filter, of a place far on, of queues, and of one URL."""
    crawl = lookup.find(filled, "DEFAULT", None)
    with explaining(filled) as explained:
        queue = lookup.find(filled, "DEFAULT", "h300")
        assert lookup.find(filled, "DEFAULT", None) == crawl
        part = listings.urls(filled, "DEFAULT", crawl, queue.start, Filter())
        assert len(part.urls) == STEP
        assert not listings.urls(filled, "DEFAULT", queue, part.next, Filter("none")).urls
        last = listings.passed(filled, crawl, queue.start, STEP)
        assert listings.count(filled, crawl, queue.start, last, Filter("/1")) > 0
        given = {"start": 5, "size": 10}
        assert len(listings.queues(filled, crawl, **given, include_inactive=False)) == 10
        assert len(listings.queues(filled, crawl, **given, include_inactive=True)) == 10
        name = f"URL:{part.urls[0].url}"
        assert listings.url(filled, "DEFAULT", crawl, name) == part.urls[0]
        assert listings.crawls(filled) == ["DEFAULT"]
        controls.set_delay(filled, queue.queue_id, 5)
        controls.block_until(filled, queue.queue_id, 5)
    read = most_rows(explained)
    assert {name: rows for name, rows in read.items() if rows > 4 * STEP} == {}


def test_a_step_of_a_deletion_reads_what_it_deletes(filled):
    """UF-9: with names, tags, results and work, however many others there are."""
    queue = lookup.find(filled, "DEFAULT", "h300")
    with explaining(filled) as explained:
        step = deletions.delete_step(filled, queue, queue.start)
    assert step.deleted == STEP
    read = most_rows(explained)
    assert {name: rows for name, rows in read.items() if rows > 4 * STEP} == {}


def test_a_queue_that_is_deleted_is_read_alone(filled):
    """UF-9: with its turn and what was set for it, however many others there are."""
    queue = lookup.find(filled, "DEFAULT", "h300")
    with explaining(filled) as explained:
        assert deletions.delete_few(filled, queue, 0) == (EACH, True)
        stored_queues.look_again(filled, [queue.queue_id])
    read = most_rows(explained)
    assert {name: rows for name, rows in read.items() if rows > 4 * EACH} == {}


def test_numbers_are_read_as_far_as_they_are_exact(filled, monkeypatch):
    """UF-9: of a crawl and of a queue, beyond what is counted on a part of the table alone."""
    for name in ("MOST", "AT_FIRST"):
        monkeypatch.setattr(counting, name, 100)
    monkeypatch.setattr(counting, "IN_ALL", 500)
    monkeypatch.setattr(counting, "PAGES", 10)
    with explaining(filled) as explained:
        for key in (None, "h300"):
            scope = lookup.find(filled, "DEFAULT", key)
            assert frontier_stats.stats(filled, scope).size > 0
    read = most_rows(explained)
    assert {name: rows for name, rows in read.items() if rows > 6_000} == {}


def test_a_hand_out_reads_what_it_hands_out(filled):
    """UF-13: ten URLs of ten queues, however many queues and URLs wait."""
    request = Request("DEFAULT", urls_per_queue=10, queues=10)
    filled.execute(sa.text("UPDATE queues SET is_live = id > 100"))

    with explaining(filled) as explained:
        urls, search = handouts.step(filled, request, 0, handouts.Search(10))

    assert len(urls) == 100
    assert search.is_over
    found = most_rows(explained)
    assert {name: rows for name, rows in found.items() if rows > 450} == {}, found


def test_a_put_reads_what_is_put(filled):
    """UF-5: new URLs and known ones, however many others there are."""
    crawl_id = filled.scalar(sa.text("SELECT id FROM crawls"))
    fetch = crawls.fetch(filled, crawl_id)
    new = [url(f"http://h{n}.example/new") for n in range(25)]
    slot = filled.scalar(sa.text("SELECT min(slot_id) FROM items WHERE name LIKE 'URL:http://h%'"))
    old = [url(f"http://h{slot}/{n}", n % 3, key=f"h{slot}") for n in range(1, 26)]

    with explaining(filled) as explained:
        shared = registered.share_crawl(filled, crawl_id)
        given = puts.Puts([*new, *old])
        puts.put(filled, given, puts.find_new(filled, given, crawl_id), shared, fetch)

    found = most_rows(explained)
    assert {name: rows for name, rows in found.items() if rows > 250} == {}, found


def made(address):
    """Return what makes the item of a URL, as spiders do."""
    return CreateItem(f"URL:{address}", tags=["url"], data={"url": address})


@pytest.mark.parametrize("has_limits", [False, True])
def test_what_a_spider_changes_reads_what_it_changes(filled, has_limits):
    """UF-12, UF-13: URLs that are new, that move, and that are completed; and a step of a sweep."""
    crawl_id = filled.scalar(sa.text("SELECT id FROM crawls"))
    slot = filled.scalar(sa.text("SELECT min(slot_id) FROM items WHERE name LIKE 'URL:http://h%'"))
    filled.execute(sa.text("UPDATE crawls SET frontier = 2"))
    if has_limits:
        filled.execute(sa.text("UPDATE frontier_queues SET crawl_limit = 9 WHERE queue_id % 2 = 0"))
    old = [f"URL:http://h{slot}/{n}" for n in range(1, 26)]
    changes = [
        *(made(f"http://h{n}.example/new") for n in range(25)),
        *(UpdateData({"url": name[4:], "download_slot": "h300"}, id=name) for name in old),
        *(StoreResult({}, id=name, task="fetch") for name in old),
    ]

    with explaining(filled) as explained:
        shared = registered.share_crawl(filled, crawl_id)
        changeset = Changeset(operations=tuple(changes), outcome=Outcome.OK)
        (applied,) = apply.apply(filled, [changeset], crawl=shared, worker_id=None)
        assert applied.error is None
        given = additions.Additions([made(f"http://h{n}.example/more") for n in range(25)])
        additions.add(filled, given, crawl=registered.share_crawl(filled, crawl_id))
        item_sweeps.open_sweep(filled, crawl_id, None, tags=["url"])
        assert item_sweeps.sweep(filled, crawl_id)

    found = most_rows(explained)
    assert {name: rows for name, rows in found.items() if rows > 7 * 100} == {}, found
    assert "marks.MARK" in found
    assert ("completions.OF_ITEMS" in found) is has_limits
