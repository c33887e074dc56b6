"""URLs that are put into queues: discovered ones count when they are new, known ones overwrite."""

from __future__ import annotations

import time

import pytest
from support import frontiers
from support.frontiers import OK, SKIPPED, pages, url
from support.races import Crawl

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.frontier import crawls, puts
from scrapy_itemgraph.store.registry import crawls as registered

pytestmark = pytest.mark.server

A = "http://a.example/"


class Fetching:
    @task(name="fetch", tags=["url"])
    def fetch(self, response, item): ...


def test_a_discovered_url_is_new_once(server):
    """UF-5: the second time it is skipped, in the same batch or later, completed or not."""
    assert server.put(url("http://a.example/1"), url("http://a.example/1")) == [OK, SKIPPED]
    assert server.put(url("http://a.example/1"), url("http://a.example/2")) == [SKIPPED, OK]
    assert server.put(url("http://a.example/1", 0)) == [OK]
    assert server.put(url("http://a.example/1")) == [SKIPPED]
    server.assert_is_true()


def test_a_known_url_is_made_or_overwritten_with_its_metadata(server):
    """UF-5: what was put last stands, and the work waits for its date."""
    later = int(time.time()) + 3600
    assert server.put(url("http://a.example/1", later, colour="red")) == [OK]
    assert server.put(url("http://a.example/1", 7, colour="blue")) == [OK]
    (row,) = server.rows(
        "SELECT i.data ->> 'refetchable_from_date', i.data -> 'metadata', w.nice, w.not_before, "
        "i.in_frontier FROM items i JOIN work w ON w.item_id = i.id"
    )
    assert row == ("7", {"colour": ["blue"]}, 7, None, True)
    server.put(url("http://a.example/1", later))
    ((waits,),) = server.rows("SELECT extract(epoch FROM not_before) FROM work")
    assert waits == later
    server.assert_is_true()


def test_a_url_of_date_0_is_never_fetched_again_until_it_is_put_anew(server):
    """UF-5: it has a result and no work; a date gives it work again."""
    server.put(url("http://a.example/1"), url("http://a.example/2", 0))
    server.put(url("http://a.example/1", 0))
    assert server.rows("SELECT * FROM work") == []
    assert server.rows("SELECT count(*) FROM results WHERE completed_at IS NOT NULL") == [(2,)]
    server.assert_is_true()
    server.put(url("http://a.example/1", 5))
    assert server.rows("SELECT nice, not_before FROM work") == [(5, None)]
    server.assert_is_true()


def test_puts_of_one_url_in_a_batch_count_in_their_order(server):
    """UF-5: the last that is known stands, and what was discovered after it changes nothing."""
    one = "http://a.example/1"
    assert server.put(url(one), url(one, 0), url(one), url(one, 9), url(one)) == [
        OK,
        OK,
        SKIPPED,
        OK,
        SKIPPED,
    ]
    assert server.rows("SELECT nice FROM work") == [(9,)]
    server.assert_is_true()


def test_one_url_under_two_keys_is_two(server):
    """UF-13: a URL is known by crawl, key and address; a key that is the host's is no other."""
    one = "http://a.example/1"
    assert server.put(url(one), url(one, key="b"), url(one, key="a.example")) == [OK, OK, SKIPPED]
    assert server.put(url(one), crawl="other") == [OK]
    names = server.rows(
        "SELECT i.name, l.name FROM items i JOIN limits l ON l.id = i.slot_id ORDER BY i.id"
    )
    assert names == [
        ("URL:http://a.example/1", "a.example"),
        ("URL@b:http://a.example/1", "b"),
        ("URL:http://a.example/1", "a.example"),
    ]
    server.assert_is_true()
    server.assert_is_true("other")


def test_dates_beyond_what_a_moment_can_say_stay_exact(server):
    """UF-4: milliseconds by mistake, and the year 2099, are kept as they were put."""
    huge = 4_102_358_400_000_000
    server.put(url("http://a.example/1", 4_102_358_400), url("http://a.example/2", huge))
    rows = server.rows("SELECT data ->> 'refetchable_from_date' FROM items ORDER BY id")
    assert rows == [("4102358400",), (str(huge),)]
    assert server.rows("SELECT DISTINCT nice FROM work") == [(frontier.LAST_NICE,)]
    server.assert_is_true()


def test_a_limit_counts_what_is_completed_each_url_once(server):
    """UF-12: a URL that is completed again counts once, and one that is put anew no more."""
    server.put(url("http://a.example/1"), url("http://b.example/1"))
    server.change(
        "UPDATE frontier_queues SET crawl_limit = 5 WHERE queue_id = (SELECT min(id) FROM queues)"
    )
    for _ in range(2):
        server.put(
            url("http://a.example/1", 0), url("http://a.example/2", 0), url("http://b.example/1", 0)
        )
    counts = "SELECT completed FROM frontier_queues ORDER BY queue_id"
    assert server.rows(counts) == [(2,), (0,)]
    server.put(url("http://a.example/1", 3))
    assert server.rows(counts) == [(1,), (0,)]


def test_a_queue_that_is_being_deleted_takes_nothing(server):
    """UF-5: what is put into it is skipped, and other queues take theirs."""
    server.put(url("http://a.example/1"))
    server.change("UPDATE frontier_queues SET is_deleting = true")
    assert server.put(url("http://a.example/2"), url("http://b.example/1")) == [SKIPPED, OK]


class Unread:
    """Metadata that must not be read."""

    def items(self):
        raise AssertionError


def test_of_known_urls_nothing_is_read_or_written(server):
    """UF-5: what was discovered before is skipped by its name alone, and no commit is noted."""
    server.put(*pages("a", 3))
    noted = server.rows("SELECT count(*) FROM commit_tokens")
    drawn = server.rows("SELECT last_value FROM items_id_seq")

    assert server.put(*(one._replace(metadata=Unread()) for one in pages("a", 3))) == [SKIPPED] * 3
    assert server.rows("SELECT count(*) FROM commit_tokens") == noted
    assert server.rows("SELECT last_value FROM items_id_seq") == drawn


def test_a_name_that_another_takes_after_the_look_is_known(server, engine):
    """UF-5: who inserts a name has it: what was discovered is skipped, a date is written."""
    server.put(url(A))
    given = puts.Puts([url("http://a.example/1"), url("http://a.example/2", 7)])
    with engine.begin() as connection:
        crawl_id = registered.find_crawl(connection, frontier.DEFAULT_CRAWL)
        shared = registered.share_crawl(connection, crawl_id)
        new = puts.find_new(connection, given, crawl_id)
        assert len(new) == 2
        assert server.put(url("http://a.example/1"), url("http://a.example/2")) == [OK, OK]
        fetch = crawls.fetch(connection, crawl_id)
        assert puts.put(connection, given, new, shared, fetch) == [SKIPPED, OK]
    assert server.rows("SELECT name, nice FROM items WHERE nice < 9") == [
        ("URL:http://a.example/2", 7)
    ]
    server.assert_is_true()


def test_what_the_database_refuses_fails_alone(server):
    """UF-5: a NUL that got as far as here fails, and the others are committed."""
    bad = url("http://a.example/\0")
    told = server.put(url("http://a.example/1"), bad, url("http://a.example/2"))
    assert told == [OK, frontiers.FAIL, OK]
    assert server.rows("SELECT count(*) FROM work") == [(2,)]


def test_data_of_a_spider_stays_when_a_crawler_puts_its_url(server):
    """UF-13: keys that the frontier does not write are kept."""
    server.put(url("http://a.example/1"))
    server.change("""UPDATE items SET data = '{"url": "http://a.example/1", "title": "T"}'""")
    server.put(url("http://a.example/1", 5, colour="red"))
    ((data,),) = server.rows("SELECT data FROM items")
    assert data == {
        "url": "http://a.example/1",
        "title": "T",
        "metadata": {"colour": ["red"]},
        "refetchable_from_date": 5,
    }


def test_work_is_what_is_outstanding_where_it_follows_from_more_than_the_url(server):
    """UF-13: with another task of the same tag, and a dependency, `refresh` decides."""
    server.put(url("http://a.example/0"))
    server.change(
        "INSERT INTO tasks (crawl_id, name, spider, version, definition) "
        "SELECT crawl_id, 'other', spider, '1', gen_random_uuid() FROM tasks"
    )
    server.change(
        "INSERT INTO task_tags SELECT crawl_id, 'url', id FROM tasks WHERE name = 'other'"
    )
    server.change("INSERT INTO kinds (task_id) SELECT id FROM tasks WHERE name = 'other'")
    later = int(time.time()) + 3600
    server.put(url("http://a.example/1"), url("http://a.example/2", later))
    server.put(url("http://a.example/1", later), url("http://a.example/2", 0))
    server.put(url("http://a.example/0", 0))
    rows = server.rows(
        "SELECT i.data ->> 'url', t.name, w.not_before IS NULL FROM work w "
        "JOIN items i ON i.id = w.item_id JOIN tasks t ON t.id = w.task_id ORDER BY 1, 2"
    )
    assert rows == [
        ("http://a.example/0", "other", True),
        ("http://a.example/1", "fetch", False),
        ("http://a.example/1", "other", True),
        ("http://a.example/2", "other", False),
    ]


def test_a_put_and_a_commit_of_the_same_new_queue_do_not_deadlock(server, pair):
    """Both take names before they make queues: one waits, and the URL is there once (UF-5)."""
    committing, putting = pair
    crawl = Crawl(server.engine, Fetching, frontier.DEFAULT_CRAWL)
    new = "http://new.example/"
    server.put(url(A))
    server.put(url(new), crawl="another")

    def put(connection):
        shared = registered.share_crawl(connection, crawl.id)
        fetch = crawls.fetch(connection, crawl.id)
        given = puts.Puts([url(new)])
        unknown = puts.find_new(connection, given, crawl.id)
        return puts.put(connection, given, unknown, shared, fetch)

    committing.pause_before(queues.MAKE_QUEUES)
    committing.start(crawl.operate, CreateItem(f"URL:{new}", tags=["url"], data={"url": new}))
    committing.until_paused()
    told = putting.start(put)
    putting.until_blocked()
    assert committing.resume().error is None
    committing.commit()

    assert told.result(60) == [SKIPPED]
    putting.commit()
    assert server.rows(
        "SELECT name FROM items WHERE crawl_id = :crawl ORDER BY id", crawl=crawl.id
    ) == [(f"URL:{one}",) for one in (A, new)]
    server.assert_is_true()


@pytest.mark.parametrize("extra", [{"note": "a\0b"}, {"k\0": 1}])
def test_a_url_with_data_that_postgresql_cannot_read_is_completed(server, engine, extra):
    """UF-5: what a spider wrote stays as it is, and the URL is not handed out any more."""
    server.put(url("http://first.example/"))
    data = {"url": "http://a.example/", **extra}
    Crawl(engine, Fetching, "DEFAULT").seed(
        CreateItem("URL:http://a.example/", tags=["url"], data=data)
    )
    assert server.put(url("http://a.example/", 0)) == [OK]
    assert server.get() == ["http://first.example/"]
