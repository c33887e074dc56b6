"""What a run leaves that its spider closed: held step by step, and freed by links of later runs."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.model.operations import Expire
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import crawl_ends, crawl_queue, item_sweeps, left_sweeps, runs


@pytest.fixture
def crawl(connection):
    """Return a crawl in the queue with a task, a plain callback, and one with a time to live."""
    new = NewCrawl(spider="s", name="books", project="p", arguments={}, settings={})
    crawl_queue.add(connection, new, by="ann")
    crawl = graphs.Crawl(connection, "books")
    crawl.register(parse={"tags": ["page"]}, callbacks={"plain": {}, "kept": {"ttl": "1d"}})
    with graphs.committed(connection):
        assert runs.join(connection, crawl.id).number == 1
    return crawl


def request(name, callback="plain", *, again=None, **meta):
    """Return what stores a request of a page."""
    data = {"url": f"http://{graphs.SLOT}/{name}", "request": {"meta": meta}}
    tags = (f"callback:{callback}",)
    return EnqueueRequest(id=name, tags=tags, data=data, again=again)


def close(crawl, run=1):
    """Have the spider close a run; return whether that ended it."""
    with graphs.committed(crawl.connection):
        return crawl_ends.close(
            crawl.connection, crawl.id, run, "enough", worker_id=1, incremental=["kept"]
        )


def hold(crawl):
    """Do a step of holding what is left, as the next start does; tell if there is more."""
    with graphs.committed(crawl.connection):
        return left_sweeps.do_step(crawl.connection, crawl.id, before=2)


def left(crawl):
    """Return the pages that are left."""
    found = crawl.rows(
        "SELECT i.name FROM results r JOIN items i ON i.id = r.item_id WHERE r.hold = 'left' "
        "ORDER BY 1"
    )
    return [row.name for row in found]


def test_plain_pages_are_left_and_what_has_a_task_or_a_ttl_waits(crawl):
    """The crawl is finished and nobody is woken; new work has it go on, with all that waits."""
    crawl.do(request("A"), request("B", "kept"), request("C", itemgraph_ttl="1d"))
    crawl.work("TASK")

    ended, again = close(crawl), close(crawl)
    while hold(crawl):
        pass

    assert (ended, again) == (True, False)
    assert left(crawl) == ["A"]
    assert sorted(crawl.worklist()) == ["B kept", "C plain", "TASK parse"]
    assert crawl.state("A", "plain") == "left"
    ((state, reason),) = crawl.rows("SELECT state, state_reason FROM crawls")
    assert (state, reason.split(";")[0]) == ("finished", "its spider closed the run: enough")
    assert status.summary(crawl.connection, crawl.id).left == 1
    assert crawl_ends.awaken_missed(crawl.connection) == 0
    assert crawl.rows("SELECT FROM queues WHERE is_live") == []
    crawl.do(Expire(id="B", task="kept"))
    crawl.work("NEW")
    ((run,),) = crawl.rows("SELECT is_finished FROM runs WHERE continued_at IS NOT NULL")
    assert run is False
    assert crawl.rows("SELECT state FROM crawls") == [("active",)]


def test_a_thousand_pages_are_held_in_a_transaction_and_a_crash_loses_no_step(crawl):
    """Two steps for 1,500 pages: who comes after a crash goes on behind the first."""
    crawl.do(*(request(f"P{n}") for n in range(1500)))
    close(crawl)

    more = hold(crawl)
    first = len(left(crawl))
    assert (more, first) == (True, 1000)
    assert not hold(crawl)
    assert len(left(crawl)) == 1500
    assert crawl.worklist() == []


def test_nobody_holds_what_is_left_while_others_are_in_the_run(crawl):
    """A worker's own rounds leave it; claimed pages come to their end, and are not left."""
    crawl.do(request("A"), request("B"))
    (claim, *others) = crawl.claim()
    crawl.release(*others)
    close(crawl)

    with graphs.committed(crawl.connection):
        assert not item_sweeps.sweep(crawl.connection, crawl.id, run=1)
    assert left(crawl) == []
    hold(crawl)
    assert len(left(crawl)) == 1
    assert crawl.end(claim).outcome == "ok"
    assert len(left(crawl)) == 1


@pytest.mark.parametrize("only_gone", [False, True])
def test_a_link_in_a_later_run_frees_a_page_that_was_left(crawl, only_gone):
    """Never run, or to be fetched again: it is outstanding then, also where pages stay done."""
    crawl.do(request("A"), request("B"))
    crawl.done("B", task="plain")
    crawl.do(Expire(id="B", task="plain"))
    close(crawl)
    hold(crawl)
    before = left(crawl)
    with graphs.committed(crawl.connection):
        number = runs.join(crawl.connection, crawl.id).number

    links = [request(name, again=number) for name in "AB"]
    for link in links:
        object.__setattr__(link, "only_gone", only_gone)
    crawl.do(*links)

    assert (before, number) == (["A", "B"], 2)
    assert left(crawl) == []
    assert sorted(crawl.worklist()) == ["A plain", "B plain"]


def test_expire_frees_a_page_that_was_left(crawl):
    """A person who expires it wants it fetched."""
    crawl.do(request("A"))
    close(crawl)
    hold(crawl)

    crawl.do(Expire(id="A", task="plain"))

    assert crawl.worklist() == ["A plain"]


def test_revive_begins_a_new_run_in_the_place_of_one_that_goes_on(crawl):
    """A crawl that new work has awakened continues; revived instead, it begins another run."""
    close(crawl)
    hold(crawl)
    crawl.work("NEW")
    with graphs.committed(crawl.connection):
        continued = runs.join(crawl.connection, crawl.id, for_queue=True)
    for change in (Change.ABORT, Change.REVIVE):
        with graphs.committed(crawl.connection):
            crawl_queue.change(crawl.connection, "books", change, by="ann")
    with graphs.committed(crawl.connection):
        revived = runs.join(crawl.connection, crawl.id, for_queue=True)

    assert (continued.number, continued.is_continued) == (1, True)
    assert (revived.number, revived.is_continued) == (2, False)


def test_a_start_by_hand_goes_on_only_where_that_is_asked_for(crawl):
    """With nothing outstanding it is over; with work the last run is opened, or a new one begun."""
    close(crawl)
    hold(crawl)
    with graphs.committed(crawl.connection):
        crawl.connection.execute(sa.text("DELETE FROM processes"))
        nothing = runs.join(crawl.connection, crawl.id, continues=True)
    crawl.work("NEW")
    with graphs.committed(crawl.connection):
        continued = runs.join(crawl.connection, crawl.id, continues=True)
    with graphs.committed(crawl.connection):
        new = runs.join(crawl.connection, crawl.id)

    assert (nothing.number, nothing.is_over) == (1, True)
    assert (continued.number, continued.is_continued) == (1, True)
    assert (new.number, new.is_continued) == (2, False)


def test_new_work_wakes_a_crawl_that_had_nothing_to_continue(crawl):
    """A start that found nothing to go on with leaves the queues parked: new work is noticed."""
    crawl.do(request("A"))
    close(crawl)
    hold(crawl)
    with graphs.committed(crawl.connection):
        crawl.connection.execute(sa.text("DELETE FROM processes"))
        assert runs.join(crawl.connection, crawl.id, continues=True).is_over

    crawl.work("NEW")

    assert crawl.rows("SELECT state FROM crawls") == [("active",)]
