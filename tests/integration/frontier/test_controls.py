"""What is set for queues of a frontier: it decides what is handed out, and outlives servers."""

from __future__ import annotations

import time

import pytest
from support import frontiers
from support.frontiers import url

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.model.frontier import MAX_SECONDS
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.frontier import controls, lookup
from scrapy_itemgraph.store.registry import crawls

pytestmark = pytest.mark.server

CRAWL, KEY = "DEFAULT", "a.example"
SET = "SELECT delay, blocked_until, crawl_limit, completed FROM frontier_queues ORDER BY queue_id"


class Controls:
    """A frontier, and what is set for it."""

    def __init__(self, server):
        self.server = server
        self.parts = FrontierControls(server.transactions, server.own)

    def __getattr__(self, name):
        return lambda *args, **given: self.server.run(getattr(self.parts, name)(*args, **given))


@pytest.fixture
def server(engine):
    """Yield a frontier on a database of its own, with five URLs in a queue."""
    with frontiers.opened(engine) as one:
        one.put(*(url(f"http://a.example/{number}") for number in range(5)))
        yield one


@pytest.fixture
def set_(server):
    """Return what sets something."""
    return Controls(server)


def register(server, *addresses):
    """Register servers that live; the first is this one."""
    for address in addresses:
        server.change(
            "WITH made AS (INSERT INTO processes (kind, host, process_id, lease_until) VALUES "
            "('frontier', 'h', 1, now() + interval '1 hour') RETURNING id) "
            "INSERT INTO frontier_nodes (process_id, address) SELECT id, :address FROM made",
            address=address,
        )
    ((server.own.id,),) = server.rows("SELECT min(process_id) FROM frontier_nodes")


def test_a_delay_is_kept_and_a_shorter_one_counts_at_once(server, set_):
    """UF-8: a queue that waits by the delay of before is looked into again."""
    set_.set_delay(CRAWL, KEY, 1000)
    assert len(server.get(urls_per_queue=1)) == 1
    server.pass_seconds(5)
    assert server.get(urls_per_queue=2) == []
    set_.set_delay(CRAWL, KEY, 3)
    assert len(server.get(urls_per_queue=2)) == 2


def test_the_default_delay_is_of_queues_without_their_own(server, set_):
    """UF-8: it counts at once in all crawls, and leaves a queue with a delay of its own alone."""
    server.put(url("http://b.example/1"), url("http://b.example/2"))
    server.put(url("http://c.example/1"), url("http://c.example/2"), crawl="other")
    set_.set_delay(CRAWL, "b.example", 500)
    set_.set_delay(CRAWL, None, 1000)
    assert len(server.get(None, urls_per_queue=1)) == 3
    server.pass_seconds(5)
    assert server.get(None, urls_per_queue=2) == []
    set_.set_delay(CRAWL, None, 2)
    given = sorted(server.get(None, urls_per_queue=2))
    assert given == ["http://a.example/1", "http://a.example/2", "http://c.example/2"]


def test_a_delay_waits_for_who_hands_out_by_the_one_of_before(server, pair):
    """UF-8: the turn that a hand-out gives a queue meanwhile is pulled back as well."""
    handing, setting = pair
    scope = handing.run(lookup.find, CRAWL, None)
    handing.run(crawls.share_crawl, scope.crawl_id)
    setting.run(controls.set_default_delay, 0)
    setting.commit()
    setting.start(controls.look_again, scope.crawl_id)
    setting.until_blocked()
    ((queue,),) = server.rows("SELECT queue_id FROM frontier_queues")
    handing.run(queues.put_off, {queue: 200.0})
    handing.commit()
    setting.resume()
    setting.commit()
    assert server.rows("SELECT next_at <= clock_timestamp() FROM queues") == [(True,)]


def test_a_block_ends_at_its_moment_or_when_it_is_lifted(server, set_):
    """UF-6: 0 and what is past lift it, and then the queue is served at once."""
    now = int(time.time())
    set_.block_until(CRAWL, KEY, now + 1000)
    assert server.get() == []
    set_.block_until(CRAWL, KEY, 0)
    assert len(server.get(urls_per_queue=1)) == 1
    server.pass_seconds(9)
    set_.block_until(CRAWL, KEY, now + 1000)
    assert server.get() == []
    set_.block_until(CRAWL, KEY, now - 50)
    assert len(server.get()) == 4


def test_a_limit_counts_what_was_completed_before_it_and_after(server, set_):
    """UF-12: nothing is handed out at the limit; a larger one and none open the queue again."""
    server.put(url("http://a.example/0", 0), url("http://a.example/1", 0))
    set_.set_limit(CRAWL, KEY, 3)
    assert server.rows(SET) == [(None, 0, 3, 2)]
    server.put(url("http://a.example/2", 0))
    assert server.get() == []
    set_.set_limit(CRAWL, KEY, 4)
    assert server.rows(SET) == [(None, 0, 4, 3)]
    assert len(server.get(urls_per_queue=1)) == 1
    set_.set_limit(CRAWL, KEY, 1)
    server.pass_seconds(3)
    assert server.get() == []
    set_.set_limit(CRAWL, KEY, 0)
    assert server.rows(SET) == [(None, 0, None, 0)]
    assert len(server.get()) == 1


def test_a_limit_waits_for_a_batch_that_completes_urls(server, set_, pair):
    """UF-12: no completed URL is missed, nor counted twice."""
    putting, setting = pair
    queue = setting.run(lookup.find_queue, CRAWL, KEY)
    putting.run(crawls.share_crawl, queue.crawl_id)
    setting.start(controls.set_limit, queue, 9)
    setting.until_blocked()
    putting.commit()
    setting.resume()
    setting.commit()
    server.put(url("http://a.example/0", 0))
    assert server.rows(SET) == [(None, 0, 9, 1)]


def test_what_is_unknown_is_left_alone_but_for_a_limit(server, set_):
    """UF-6, UF-8, UF-12: a delay and a block of no queue do nothing; a limit of none is refused."""
    set_.set_delay(CRAWL, "none", 5)
    set_.block_until("none", KEY, 5)
    assert server.rows(SET) == [(None, 0, None, 0)]
    with pytest.raises(NotFoundError, match="no queue 'none'"):
        set_.set_limit(CRAWL, "none", 5)


def test_numbers_that_are_too_large_are_the_largest(server, set_):
    """UF-4: what 64 bits without a sign can say is no error."""
    set_.set_delay(CRAWL, KEY, 2**32)
    set_.block_until(CRAWL, KEY, 2**64 - 1)
    set_.set_limit(CRAWL, KEY, 2**64 - 1)
    assert server.rows(SET) == [(2**32, MAX_SECONDS, MAX_SECONDS, 0)]
    assert server.get() == []


def test_a_pause_is_of_one_server_or_of_all(server, set_):
    """UF-7: a local one is this server's alone; one of all holds for servers to come."""
    register(server, "h:1", "h:2")
    set_.set_active(False, local=True)
    assert server.get() == []
    assert not set_.is_active(local=True)
    assert not set_.is_active(local=False)
    set_.set_active(True, local=True)
    assert set_.is_active(local=False)
    set_.set_active(False, local=False)
    register(server, "h:3")
    assert server.get() == []
    assert not set_.is_active(local=True)
    set_.set_active(True, local=False)
    assert set_.is_active(local=True)
    assert len(server.get()) == 5


def test_a_server_that_is_gone_pauses_nobody(server, set_):
    """UF-7: whether all are active is asked of those that live; activating all ends each pause."""
    register(server, "h:1", "h:2")
    server.change("UPDATE frontier_nodes SET is_active = false WHERE address = 'h:2'")
    assert set_.is_active(local=True)
    assert not set_.is_active(local=False)
    server.change("UPDATE processes SET stopped_at = now() WHERE id <> :own", own=server.own.id)
    assert set_.is_active(local=False)
    set_.set_active(False, local=True)
    set_.set_active(True, local=False)
    assert set_.is_active(local=True)
