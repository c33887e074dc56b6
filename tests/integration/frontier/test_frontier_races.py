"""Two at once in a crawl with a frontier, stepped: hand-outs, answers, spiders, controls."""

from __future__ import annotations

import pytest
from support import frontiers, races
from support.frontiers import url
from support.races import ended

from scrapy_itemgraph import task
from scrapy_itemgraph.model.frontier import Request, Status
from scrapy_itemgraph.model.operations import CreateItem, DeleteItem, MergeItem, UpdateData
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.frontier import controls, deletions, handouts, lookup, puts
from scrapy_itemgraph.store.frontier import crawls as frontier_crawls
from scrapy_itemgraph.store.registry import crawls

pytestmark = pytest.mark.server

CRAWL, KEY = "DEFAULT", "a.example"
FIRST, SECOND = (f"http://a.example/{number}" for number in (1, 2))


class Fetching:
    @task(name="fetch", tags=["url"])
    def fetch(self, response, item): ...


@pytest.fixture
def crawl(engine):
    """Return the crawl of a spider that fetches URLs, and of the frontier."""
    return races.Crawl(engine, Fetching, CRAWL)


@pytest.fixture
def server(engine, crawl):
    """Yield a frontier with two URLs of a queue, which may be served as often as is asked."""
    with frontiers.opened(engine) as one:
        one.put(url(FIRST), url(SECOND))
        yield one
        one.assert_is_true()


def hand_out(connection, crawl_id, **request):
    """Hand URLs out in the caller's transaction."""
    engines.hot_path(connection)
    search = handouts.Search(10, [handouts.Crawl(crawl_id, CRAWL)])
    given = []
    while not search.is_over:
        urls, search = handouts.step(connection, Request(CRAWL, **request), 0, search)
        given += [one.url for one in urls]
    return given


def put(connection, crawl_id, *urls):
    """Put URLs in the caller's transaction."""
    engines.hot_path(connection)
    shared = crawls.share_crawl(connection, crawl_id)
    fetch = frontier_crawls.fetch(connection, crawl_id)
    given = puts.Puts(urls)
    new = puts.find_new(connection, given, crawl_id)
    return puts.put(connection, given, new, shared, fetch)


def queue_of(server):
    """Return the queue, as controls find it."""
    with server.engine.connect() as connection:
        return lookup.find_queue(connection, CRAWL, KEY)


def test_two_hand_outs_of_a_queue_at_once_give_it_to_one(server, crawl, pair):
    """UF-13: the second one passes over it, does not wait, and finds it served then."""
    one, two = pair
    assert one.run(hand_out, crawl.id, urls_per_queue=1) == [FIRST]
    assert two.run(hand_out, crawl.id) == []
    one.commit()
    two.commit()
    assert two.run(hand_out, crawl.id) == []
    two.commit()
    server.pass_seconds(2)
    assert two.run(hand_out, crawl.id) == [SECOND]
    two.commit()


def test_a_hand_out_passes_over_what_a_spider_is_claiming(server, crawl, pair):
    """UF-13: neither waits for the other, and each has a URL of its own."""
    claiming, handing = pair
    worker = crawl.worker()
    (claim,) = claiming.run(crawl.claim, worker, 1)
    handed = handing.run(hand_out, crawl.id)
    claiming.commit()
    handing.commit()
    assert {claim.item.data["url"], *handed} == {FIRST, SECOND}
    assert len(handed) == 1
    assert crawl.claimed(worker) == []


def test_a_claim_passes_over_what_is_being_handed_out(server, crawl, pair):
    """UF-13: it is held when the claim looks again."""
    claiming, handing = pair
    worker = crawl.worker()
    assert handing.run(hand_out, crawl.id, urls_per_queue=1) == [FIRST]
    (claim,) = claiming.run(crawl.claim, worker, 5)
    claiming.commit()
    handing.commit()
    assert claim.item.data["url"] == SECOND
    assert crawl.claimed(worker) == []


@pytest.mark.parametrize("date", [0, 7])
def test_an_answer_waits_for_the_hand_out_of_its_url_and_ends_the_hold(server, crawl, pair, date):
    """UF-5: whichever URL is handed out again, a hold that was ended does not come back."""
    handing, putting = pair
    assert handing.run(hand_out, crawl.id) == [FIRST, SECOND]
    putting.start(put, crawl.id, url(FIRST, date))
    putting.until_blocked()
    handing.commit()
    assert putting.resume() == [Status.OK]
    putting.commit()
    assert server.rows("SELECT count(*) FROM work WHERE tries = 1") == [(1,)]
    server.pass_seconds(2)
    assert server.get() == ([] if date == 0 else [FIRST])


def test_a_hand_out_passes_over_what_is_being_answered(server, crawl, pair):
    """UF-5: a URL that is done is not handed out by who looked before that was committed."""
    handing, putting = pair
    putting.run(put, crawl.id, url(FIRST, 0))
    assert handing.run(hand_out, crawl.id) == [SECOND]
    putting.commit()
    handing.commit()
    assert server.rows("SELECT count(*) FROM work") == [(1,)]


def test_a_block_waits_for_a_hand_out_and_holds_from_then_on(server, crawl, pair):
    """UF-6: what is handed out after the call has returned, is so of another queue."""
    handing, blocking = pair
    queue = queue_of(server)
    assert handing.run(hand_out, crawl.id, urls_per_queue=1) == [FIRST]
    blocking.start(controls.block_until, queue.queue_id, 4_000_000_000)
    blocking.until_blocked()
    handing.commit()
    blocking.resume()
    blocking.commit()
    server.pass_seconds(2)
    server.change("UPDATE frontier_queues SET blocked_until = 4000000000")
    assert server.get() == []


def test_a_hand_out_passes_over_a_queue_that_is_being_blocked(server, crawl, pair):
    """UF-6: it does not wait, and hands nothing of the queue out then."""
    handing, blocking = pair
    blocking.run(controls.block_until, queue_of(server).queue_id, 4_000_000_000)
    assert handing.run(hand_out, crawl.id) == []
    handing.commit()
    blocking.commit()
    assert server.get() == []
    blocking.run(controls.block_until, queue_of(server).queue_id, 0)
    blocking.commit()
    assert server.get() == [FIRST, SECOND]


def test_a_deletion_waits_for_a_hand_out_and_deletes_what_was_handed_out(server, crawl, pair):
    """UF-13: and an answer for what is gone makes the URL anew."""
    handing, deleting = pair
    scope = lookup.Scope(*queue_of(server))
    assert handing.run(hand_out, crawl.id) == [FIRST, SECOND]
    deleting.start(deletions.delete_few, scope, 0)
    deleting.until_blocked()
    handing.commit()
    assert deleting.resume() == (2, True)
    deleting.commit()
    assert server.rows("SELECT count(*) FROM work") == [(0,)]
    assert server.put(url(FIRST, 0)) == [Status.OK]


def test_a_hand_out_waits_for_a_deletion_and_finds_nothing(server, crawl, pair):
    """UF-13: not even a URL that a spider makes at the same time, which comes after both."""
    handing, deleting = pair
    assert deleting.run(deletions.delete_few, lookup.Scope(*queue_of(server)), 0) == (2, True)
    handing.start(hand_out, crawl.id)
    handing.until_blocked()
    deleting.commit()
    assert handing.resume() == []
    handing.commit()
    crawl.seed(page(FIRST))
    assert server.get() == [FIRST]


def test_a_purge_waits_for_a_hand_out_and_leaves_no_work_behind(server, crawl, pair):
    """UF-13: what is handed out meanwhile goes as well."""
    handing, purging = pair
    scope = lookup.Scope(*queue_of(server))
    assert handing.run(hand_out, crawl.id) == [FIRST, SECOND]
    purging.start(deletions.delete_step, scope, scope.start)
    purging.until_blocked()
    handing.commit()
    assert purging.resume() == (2, None)
    purging.commit()
    assert server.rows("SELECT count(*) FROM work") == [(0,)]


def page(address, **data):
    """Return what makes a URL's item."""
    return CreateItem(f"URL:{address}", tags=["url"], data={"url": address, **data})


def test_a_limit_waits_for_a_spider_that_completes_urls(server, crawl, pair):
    """UF-12: what it completes is counted once."""
    committing, setting = pair
    queue = queue_of(server)
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker, 1)
    committing.run(crawl.apply, ended(claim, page("http://a.example/3")), worker=worker)
    setting.start(controls.set_limit, queue, 5)
    setting.until_blocked()
    committing.commit()
    setting.resume()
    setting.commit()
    assert server.rows("SELECT completed FROM frontier_queues") == [(1,)]


def test_a_spider_that_completes_urls_waits_for_a_limit(server, crawl, pair):
    """UF-12: and counts what it completes beside what was counted."""
    committing, setting = pair
    worker = crawl.worker()
    claims = crawl.claimed(worker, 2)
    server.put(url("http://a.example/3", 0))
    setting.run(controls.set_limit, queue_of(server), 3)
    committing.start(crawl.apply, *map(ended, claims), worker=worker)
    committing.until_blocked()
    setting.commit()
    committing.resume()
    committing.commit()
    assert server.rows("SELECT completed FROM frontier_queues") == [(3,)]


def test_two_that_complete_urls_of_a_queue_both_count(server, crawl, pair):
    """UF-12: a spider and a client; the later one adds to what the earlier one counted."""
    committing, putting = pair
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker, 1)
    done = claim.item.data["url"]
    with server.engine.begin() as connection:
        controls.set_limit(connection, queue_of(server), 3)
    committing.run(crawl.apply, ended(claim), worker=worker)
    putting.start(put, crawl.id, url(SECOND if done == FIRST else FIRST, 0))
    putting.until_blocked()
    committing.commit()
    putting.resume()
    putting.commit()
    assert server.rows("SELECT completed FROM frontier_queues") == [(2,)]


def test_an_answer_for_an_item_that_is_merged_meanwhile_is_of_what_it_became(server, crawl, pair):
    """UF-5: the item's names went to another one, and the answer with them."""
    merging, putting = pair
    merging.run(crawl.operate, MergeItem(f"URL:{SECOND}", id=f"URL:{FIRST}"))
    putting.start(put, crawl.id, url(FIRST, 0))
    putting.until_blocked()
    merging.commit()
    assert putting.resume() == [Status.OK]
    putting.commit()
    assert server.rows("SELECT count(*) FROM work") == [(0,)]
    assert server.rows("SELECT count(*) FROM items WHERE in_frontier") == [(1,)]


def test_an_answer_for_an_item_that_is_deleted_meanwhile_is_skipped(server, crawl, pair):
    """UF-5: as if it had come before; and the next one makes the URL anew."""
    removing, putting = pair
    removing.run(crawl.operate, DeleteItem(f"URL:{FIRST}"))
    putting.start(put, crawl.id, url(FIRST, 0), url(SECOND, 0))
    putting.until_blocked()
    removing.commit()
    told = putting.resume()
    putting.commit()
    assert told[1] is Status.OK
    assert server.rows("SELECT count(*) FROM work") == [(0,)]
    assert server.put(url(FIRST, 0)) == [Status.OK]


def test_an_answer_and_a_spider_that_moves_the_url_agree_on_its_queue(server, crawl, pair):
    """UF-12: the later one says where it is, and each queue's count is right."""
    moving, putting = pair
    server.put(url("http://b.example/1"))
    with server.engine.begin() as connection:
        for key in (KEY, "b.example"):
            queue = lookup.find_queue(connection, CRAWL, key)
            controls.set_limit(connection, queue, 9)
    moving.run(crawl.operate, UpdateData({"download_slot": "b.example"}, id=f"URL:{FIRST}"))
    putting.start(put, crawl.id, url(FIRST, 0))
    putting.until_blocked()
    moving.commit()
    assert putting.resume() == [Status.OK]
    putting.commit()
    server.assert_is_true()
    counted = dict(
        server.rows(
            "SELECT l.name, f.completed FROM frontier_queues f "
            "JOIN queues q ON q.id = f.queue_id JOIN limits l ON l.id = q.slot_id"
        )
    )
    assert counted == {KEY: 1, "b.example": 0}


def test_a_frontier_waits_for_commits_that_do_not_know_of_it(engine, crawl, pair):
    """UF-13: what they make is swept; what begins later is marked as it is made."""
    committing, joining = pair
    committing.run(crawl.operate, page(FIRST))
    with engine.begin() as connection:
        assert frontier_crawls.announce(connection, CRAWL) == crawl.id
    joining.start(frontier_crawls.make, crawl.id)
    joining.until_blocked()
    committing.commit()
    joining.resume()
    joining.commit()
    crawl.seed(page(SECOND))
    marked = "SELECT name FROM items WHERE in_frontier ORDER BY id"
    assert crawl.rows(marked) == [(f"URL:{SECOND}",)]
    crawl.sweep()
    assert crawl.rows(marked) == [(f"URL:{FIRST}",), (f"URL:{SECOND}",)]


def test_a_frontier_that_was_announced_and_not_made_is_made_later(engine, crawl):
    """UF-13: the server was killed in between; what spiders made in the meantime is its own."""
    crawl.seed(page(FIRST))
    with engine.begin() as connection:
        frontier_crawls.announce(connection, CRAWL)
    crawl.seed(page(SECOND))
    with frontiers.opened(engine) as server:
        server.put(url("http://b.example/1"))
        crawl.sweep()
        server.assert_is_true()
        assert len(server.get()) == 3
