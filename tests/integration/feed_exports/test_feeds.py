"""Feeds and the journal: what is marked for whom, and who may say that it is written."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.graphs import Crawl

from scrapy_itemgraph.model.feed_exports import Scraped
from scrapy_itemgraph.store import feed_exports as feeds
from scrapy_itemgraph.store import pruning, scraped_items
from scrapy_itemgraph.store.registry import runs

pytestmark = pytest.mark.server


@pytest.fixture
def crawl(connection) -> Crawl:
    """Return a crawl whose run is under way, on a connection that is rolled back."""
    one = Crawl.of(connection)
    runs.join(connection, one.id)
    return one


def keep(connection, crawl_id: int, *names: str) -> None:
    """Append to the journal."""
    entries = [scraped_items.Entry(Scraped("dict", f'{{"name": "{name}"}}')) for name in names]
    scraped_items.append(connection, crawl_id, entries)


def unwritten(connection, feed_id: int, *, all_of_it: bool = False) -> list[str]:
    """Return the names of what a feed has to write."""
    rows = feeds.read(connection, feed_id, after_id=0, limit=100, with_written=all_of_it)
    return [row.fields["name"] for row in rows]


def ids(connection, feed_id: int) -> list[int]:
    """Return the numbers of what a feed has to write."""
    rows = feeds.read(connection, feed_id, after_id=0, limit=100, with_written=False)
    return [row.journal_id for row in rows]


def begin_run(crawl: Crawl) -> None:
    """End the run, and begin the next one."""
    crawl.connection.execute(runs.BEGIN, {"crawl": crawl.id})


def test_what_is_kept_is_marked_for_the_feeds_of_the_run(crawl):
    """A feed gets what its run keeps, also before it took part; a feed of another run does not."""
    connection = crawl.connection
    keep(connection, crawl.id, "early")
    (first,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "late")
    assert unwritten(connection, first.id) == ["early", "late"]
    state = feeds.take(connection, first.id)
    feeds.advance(connection, state, ids(connection, first.id), whole=False)
    begin_run(crawl)

    (second,) = feeds.register(connection, crawl.id, ["b.jl"])
    keep(connection, crawl.id, "new")

    assert first.is_new
    assert second.is_new
    assert unwritten(connection, first.id) == []
    assert unwritten(connection, second.id) == ["new"]


def test_a_clock_that_goes_back_between_runs_doubles_nothing(crawl):
    """What an earlier run kept stays its own, though by the clock it is later than the next one."""
    connection = crawl.connection
    (feed,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "old")
    state = feeds.take(connection, feed.id)
    feeds.advance(connection, state, ids(connection, feed.id), whole=False)
    connection.exec_driver_sql("UPDATE journal SET created_at = created_at + interval '1 hour'")
    connection.exec_driver_sql("UPDATE runs SET started_at = started_at + interval '1 hour'")
    begin_run(crawl)

    (again, other) = feeds.register(connection, crawl.id, ["a.jl", "b.jl"])
    keep(connection, crawl.id, "new")
    feeds.mark_run(connection, crawl.id, again.id)

    assert unwritten(connection, again.id) == ["new"]
    assert unwritten(connection, other.id) == ["new"]


def test_a_feed_that_lacks_something_goes_on_in_the_next_run(crawl):
    """What was not written before a run ended is written with the next one's, as one feed."""
    connection = crawl.connection
    (feed,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "owed")
    state = feeds.take(connection, feed.id)
    feeds.advance(connection, state, (), whole=False)
    begin_run(crawl)

    (again,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "new")

    assert not again.is_new
    assert unwritten(connection, feed.id) == ["owed", "new"]


def test_only_the_writer_says_what_is_written(crawl):
    """Who has been followed by another writer changes nothing any more."""
    connection = crawl.connection
    (feed,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "a")
    late = feeds.take(connection, feed.id)
    now = feeds.take(connection, feed.id)

    assert not feeds.advance(connection, late, ids(connection, feed.id), whole=False)
    assert unwritten(connection, feed.id) == ["a"]
    assert feeds.advance(connection, now, ids(connection, feed.id), whole=False)
    assert unwritten(connection, feed.id) == []


def test_a_whole_feed_keeps_what_is_in_it_until_a_run_begins(crawl):
    """What a feed that is made whole has written can be read again within the run."""
    connection = crawl.connection
    (feed,) = feeds.register(connection, crawl.id, ["a.json"])
    keep(connection, crawl.id, "a")
    feeds.advance(connection, feeds.take(connection, feed.id), ids(connection, feed.id), whole=True)

    assert unwritten(connection, feed.id) == []
    assert unwritten(connection, feed.id, all_of_it=True) == ["a"]
    begin_run(crawl)
    feeds.register(connection, crawl.id, ["b.json"])
    assert unwritten(connection, feed.id, all_of_it=True) == []


def test_a_lower_number_that_commits_later_is_not_passed_over(engine):
    """Numbers commit out of order, and what is marked is found whatever came before it."""
    with engine.connect() as one, engine.connect() as two:
        crawl = Crawl.of(one)
        runs.join(one, crawl.id)
        (feed,) = feeds.register(one, crawl.id, ["a.jl"])
        one.commit()
        keep(one, crawl.id, "slow")
        keep(two, crawl.id, "fast")
        two.commit()
        state = feeds.take(two, feed.id)
        assert unwritten(two, feed.id) == ["fast"]
        feeds.advance(two, state, ids(two, feed.id), whole=False)
        two.commit()

        one.commit()

        assert unwritten(two, feed.id) == ["slow"]
        two.rollback()


def test_pruning_leaves_what_is_young_or_owed(crawl):
    """Only what is older than the period, and written everywhere, leaves the journal."""
    connection = crawl.connection
    (feed,) = feeds.register(connection, crawl.id, ["a.jl"])
    keep(connection, crawl.id, "written", "owed")
    first, _ = ids(connection, feed.id)
    feeds.advance(connection, feeds.take(connection, feed.id), [first], whole=False)
    connection.execute(sa.text("UPDATE journal SET created_at = created_at - interval '2 days'"))
    keep(connection, crawl.id, "young")

    assert pruning.prune_journal(connection, crawl.id, timedelta(days=1)) == 1
    rows = scraped_items.read(connection, crawl.id, after_id=0, limit=10)
    assert [row.fields["name"] for row in rows] == ["owed", "young"]
