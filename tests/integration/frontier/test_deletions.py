"""URLs that are deleted: of a queue, of a crawl, or old ones; all else stays."""

from __future__ import annotations

import asyncio
import time

import pytest
from support import races
from support.frontiers import OK, SKIPPED, pages, url

from scrapy_itemgraph import ItemGraph
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.graph.frontier_deletions import FrontierDeletions
from scrapy_itemgraph.graph.frontier_listings import FrontierListings
from scrapy_itemgraph.model.frontier import Stats
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.store.admin import frontier_stats
from scrapy_itemgraph.store.frontier import deletions, lookup

pytestmark = pytest.mark.server

CRAWL = "DEFAULT"
QUEUES = """
    SELECT l.name, f.is_deleting FROM frontier_queues f JOIN queues q ON q.id = f.queue_id
    JOIN limits l ON l.id = q.slot_id ORDER BY 1
"""
LEFT = (
    "SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM aliases), "
    "(SELECT count(*) FROM tags), (SELECT count(*) FROM work), (SELECT count(*) FROM results), "
    "(SELECT count(*) FROM attempts)"
)


class Deletions:
    """A frontier, and what deletes in it."""

    def __init__(self, server):
        self.server = server
        self.parts = FrontierDeletions(server.transactions, server.own)

    def __getattr__(self, name):
        return lambda *args: self.server.run(getattr(self.parts, name)(*args))


@pytest.fixture
def deletes(server):
    """Return what deletes."""
    return Deletions(server)


@pytest.fixture
def many(monkeypatch):
    """Have more than two URLs be many, and deleted two at a time."""
    monkeypatch.setattr(deletions, "AT_ONCE", 2)
    monkeypatch.setattr(deletions, "STEP", 2)


def stats(server, key=None):
    """Return the numbers of a crawl or a queue."""
    return server.run(FrontierListings(server.transactions).stats(CRAWL, key))


def test_a_queue_goes_with_its_urls_and_all_that_hangs_on_them(server, deletes):
    """UF-9: completed and held ones count too; a queue that is gone has no more to delete."""
    server.put(*pages("a", 5), *pages("b", 1))
    server.put(url("http://a.example/0", 0))
    server.get(key="a.example", urls_per_queue=1, hold=100)
    server.change(
        "INSERT INTO attempts (item_id, task_id, token, task_version, number, outcome) "
        "SELECT item_id, task_id, gen_random_uuid(), '1', 1, 'ok' FROM work"
    )
    assert deletes.delete_queue(CRAWL, "a.example") == 5
    assert server.rows(LEFT) == [(1, 1, 1, 1, 0, 1)]
    assert server.rows(QUEUES) == [("b.example", False)]
    assert stats(server, "a.example") == Stats()
    assert deletes.delete_queue(CRAWL, "a.example") == 0
    assert deletes.delete_queue("none", "a.example") == 0
    server.assert_is_true()
    assert server.put(*pages("a", 1)) == [OK]
    assert server.get(key="a.example") == ["http://a.example/0"]


@pytest.mark.parametrize("key", [None, "a.example"])
def test_what_goes_while_it_is_counted_has_nothing(server, deletes, engine, key):
    """UF-9, UF-10: GetStats beside a deletion answers with zeros, and does not fail."""
    server.put(*pages("a", 2))
    with engine.begin() as connection:
        scope = lookup.find(connection, CRAWL, key)
        assert frontier_stats.stats(connection, scope).size == 2
        deletes.delete_crawl(CRAWL)
        assert frontier_stats.stats(connection, scope) == Stats()


def test_a_crawl_loses_its_queues_and_others_keep_theirs(server, deletes):
    """UF-11: it is not listed any more, and may be filled again."""
    server.put(*pages("a", 3), *pages("b", 2))
    server.put(*pages("a", 4), crawl="other")
    assert deletes.delete_crawl(CRAWL) == 5
    assert server.run(FrontierListings(server.transactions).crawls()) == ["other"]
    assert deletes.delete_crawl(CRAWL) == 0
    assert deletes.delete_crawl("none") == 0
    assert len(server.get(None)) == 4
    assert server.put(*pages("a", 2)) == [OK, OK]


def test_items_of_spiders_stay_where_a_crawl_is_shared(server, deletes, database):
    """UF-11: only URLs of the frontier are deleted, and workers are told that names are free."""
    server.put(*pages("a", 2))
    with ItemGraph.open(database, crawl=CRAWL) as graph:
        graph.apply([CreateItem("book", data={"url": "http://a.example/book"})])
    before = server.rows("SELECT coalesce(names_freed, 0) FROM crawls")
    assert deletes.delete_crawl(CRAWL) == 2
    assert server.rows("SELECT name FROM items") == [("book",)]
    assert server.rows("SELECT name FROM aliases") == [("book",)]
    after = server.rows("SELECT coalesce(names_freed, 0) FROM crawls")
    assert after[0][0] == before[0][0] + 1


def test_old_urls_are_purged_and_empty_queues_stay(server, deletes):
    """UF-9: days are of 24 hours; none takes all that are older than this second."""
    server.put(*pages("a", 3), *pages("b", 1))
    server.put(url("http://a.example/0", 0))
    server.run(FrontierControls(server.transactions, server.own).set_limit(CRAWL, "a.example", 9))
    server.change(
        "UPDATE items SET created_at = now() - interval '25 hours' "
        "WHERE name IN ('URL:http://a.example/0', 'URL:http://a.example/1')"
    )
    assert deletes.purge(CRAWL, None, 2) == 0
    assert deletes.purge(CRAWL, "b.example", 1) == 0
    assert deletes.purge(CRAWL, None, 1) == 2
    assert stats(server, "a.example") == Stats(1, 0, 0, 1, 1)
    assert server.rows("SELECT max(completed) FROM frontier_queues") == [(0,)]
    server.change("UPDATE items SET created_at = created_at - interval '2 seconds'")
    server.put(url("http://b.example/new"))
    server.change(
        "UPDATE items SET created_at = now() + interval '60 seconds' WHERE name LIKE '%new'"
    )
    assert deletes.purge(CRAWL, "a.example", 0) == 1
    assert deletes.purge(CRAWL, None, 0) == 1
    assert deletes.purge(CRAWL, None, 2**32 - 1) == deletes.purge("none", None, 0) == 0
    assert [name for name, _ in server.rows(QUEUES)] == ["a.example", "b.example"]
    assert server.rows("SELECT name FROM items") == [("URL:http://b.example/new",)]
    server.assert_is_true()


def test_many_urls_are_deleted_step_by_step(server, deletes, many):
    """UF-9: all are counted, of a queue and of a crawl."""
    server.put(*pages("a", 7), *pages("b", 5), *pages("c", 3))
    assert deletes.delete_queue(CRAWL, "b.example") == 5
    assert [name for name, _ in server.rows(QUEUES)] == ["a.example", "c.example"]
    assert deletes.purge(CRAWL, None, 1) == 0
    assert deletes.delete_crawl(CRAWL) == 10
    assert server.rows(LEFT) == [(0, 0, 0, 0, 0, 0)]
    assert server.rows(QUEUES) == []


def test_another_server_ends_what_one_has_begun(server, deletes, many):
    """UF-9: a queue takes and hands out nothing from the first step on, and goes at last."""
    server.put(*pages("a", 7), *pages("b", 1))
    with server.engine.begin() as connection:
        scope = lookup.find(connection, CRAWL, "a.example")
        assert not deletions.delete_few(connection, scope, 0).is_done
    with server.engine.begin() as connection:
        assert deletions.delete_step(connection, scope, scope.start).deleted == 2
    assert server.rows(QUEUES) == [("a.example", True), ("b.example", False)]
    assert server.put(url("http://a.example/9"), url("http://b.example/9")) == [SKIPPED, OK]
    assert server.get(key="a.example") == []
    deletes.resume()
    assert server.rows(QUEUES) == [("b.example", False)]
    assert server.rows("SELECT count(*) FROM items") == [(2,)]
    assert server.put(url("http://a.example/9")) == [OK]
    server.assert_is_true()


def test_a_deletion_is_left_to_its_server_while_that_lives(server, deletes, many):
    """UF-9: else its answer would count a part; what it gave up itself goes on."""
    server.put(*pages("a", 7))
    server.change(
        "INSERT INTO processes (kind, host, process_id, lease_until) SELECT 'frontier', 'h', 1, "
        "now() + interval '1 hour' FROM generate_series(1, 2)"
    )
    (other,), (own,) = server.rows("SELECT id FROM processes ORDER BY id")
    server.own.id = own
    with server.engine.begin() as connection:
        scope = lookup.find(connection, CRAWL, "a.example")
        assert not deletions.delete_few(connection, scope, other).is_done
    deletes.resume()
    assert server.rows("SELECT count(*) FROM items") == [(7,)]
    server.change("UPDATE frontier_queues SET deleted_by = :own", own=own)
    with server.engine.begin() as connection:
        assert deletions.take_over(connection, own, [scope.crawl_id]) == []
        assert deletions.take_over(connection, own, []) == [scope]
        connection.rollback()
    server.change("UPDATE frontier_queues SET deleted_by = :other", other=other)
    server.change("UPDATE processes SET stopped_at = now() WHERE id = :other", other=other)
    deletes.resume()
    assert server.rows(QUEUES) == []
    assert server.rows("SELECT count(*) FROM items") == [(0,)]


def test_a_put_waits_for_a_deletion_and_makes_the_queue_anew(server, many, engine):
    """UF-9: no URL is left in a queue that is gone, whichever comes first."""
    server.put(*pages("a", 2))
    with races.actors(engine, 1) as (deleting,):
        scope = deleting.run(lookup.find, CRAWL, "a.example")
        assert deleting.run(deletions.delete_few, scope, 0).deleted == 2

        async def put():
            puts = asyncio.ensure_future(server.puts.put(CRAWL, pages("a", 1)))
            await asyncio.to_thread(until_somebody_waits, engine)
            await asyncio.to_thread(deleting.commit)
            return await puts

        assert server.run(put()) == [OK]
    assert server.rows(QUEUES) == [("a.example", False)]
    assert server.get() == ["http://a.example/0"]


def until_somebody_waits(engine):
    """Return when a connection waits for a lock."""
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        with engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            if found.scalar_one():
                return
    raise AssertionError("nobody waits")


def test_claimed_work_ends_by_its_worker(server, deletes):
    """UF-9: a spider's claim of a URL that is deleted stays until its commit, as of any item."""
    server.put(*pages("a", 2))
    server.change(
        "INSERT INTO processes (kind, host, process_id, lease_until) "
        "VALUES ('worker', 'h', 1, now() + interval '1 hour')"
    )
    server.change(
        "UPDATE work SET token = gen_random_uuid(), claimed_at = now(), "
        "worker_id = (SELECT max(id) FROM processes) WHERE item_id = (SELECT min(id) FROM items)"
    )
    assert deletes.delete_queue(CRAWL, "a.example") == 2
    assert server.rows("SELECT token IS NOT NULL FROM work") == [(True,)]


def test_a_queue_that_is_made_again_is_new(deletes):
    """UF-6: what its turn waited for, such as a block, has gone with it."""
    controls = FrontierControls(deletes.server.transactions, deletes.server.own)
    for delete in (
        lambda: deletes.delete_queue(CRAWL, "a.example"),
        lambda: deletes.delete_crawl(CRAWL),
    ):
        deletes.server.put(*pages("a", 1))
        block = controls.block_until(CRAWL, "a.example", int(time.time()) + 900)
        deletes.server.run(block)
        assert deletes.server.get() == []
        assert delete() == 1
        deletes.server.put(*pages("a", 1))
        assert deletes.server.get(hold=600) == ["http://a.example/0"]


def test_a_queue_at_its_limit_is_looked_into_as_soon_as_it_is_below(deletes):
    """UF-12: a completed URL that is to be fetched again, or is deleted, makes room at once."""
    server = deletes.server
    controls = FrontierControls(server.transactions, server.own)
    server.put(url("http://a.example/1", 0), url("http://a.example/2", 0), *pages("a", 1))
    server.run(controls.set_limit(CRAWL, "a.example", 2))
    assert server.get() == []
    server.put(url("http://a.example/1", 1))
    assert server.get(hold=1) == ["http://a.example/1", "http://a.example/0"]
    server.put(url("http://a.example/1", 0))
    server.pass_seconds(3)
    assert server.get() == []
    server.change("UPDATE items SET created_at = now() - interval '2 days' WHERE name LIKE '%/2'")
    assert deletes.purge(CRAWL, "a.example", 1) == 1
    assert server.get() == ["http://a.example/0"]
