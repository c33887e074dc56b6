"""URLs that are handed out: the earliest first, held for a while, by queues whose turn it is."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import frontiers
from support.frontiers import pages, url

from scrapy_itemgraph.model.frontier import Request
from scrapy_itemgraph.store.frontier import handouts

pytestmark = pytest.mark.server


def test_the_earliest_date_goes_first_and_known_dates_before_what_was_discovered(server):
    """UF-5: dates are priorities; equal ones go as they came."""
    now = int(time.time())
    server.put(
        url("http://a.example/new"),
        url("http://a.example/now", now - 100),
        url("http://a.example/old", now - 10_000),
        url("http://a.example/first", 1),
        url("http://a.example/later", now + 1000),
    )
    assert server.get() == [
        "http://a.example/first",
        "http://a.example/old",
        "http://a.example/now",
        "http://a.example/new",
    ]


def test_what_is_handed_out_is_held_and_comes_back_after_the_hold(server):
    """UF-13: nobody gets it meanwhile; then it is handed out again, once."""
    server.put(*pages("a", 1))
    assert server.get(hold=20) == ["http://a.example/0"]
    server.pass_seconds(10)
    assert server.get() == []
    server.pass_seconds(11)
    assert server.get(hold=20) == ["http://a.example/0"]
    assert server.rows("SELECT tries FROM work") == [(1,)]
    server.assert_is_true()


def test_what_becomes_known_ends_the_hold(server):
    """UF-5: done it is never handed out again; with a date it is as soon as that has come."""
    server.put(*pages("a", 2))
    server.get(hold=100)
    server.put(url("http://a.example/0", 0), url("http://a.example/1", 5))
    server.pass_seconds(2)
    assert server.get() == ["http://a.example/1"]
    server.assert_is_true()


def test_a_queue_waits_for_its_delay_after_it_was_served(server):
    """UF-8: for the default of a second, or for its own; whole seconds count."""
    server.put(*pages("a", 5))
    one = {"urls_per_queue": 1}
    assert server.get(**one) == ["http://a.example/0"]
    assert server.get(**one) == []
    server.pass_seconds(2)
    assert server.get(urls_per_queue=2) == ["http://a.example/1", "http://a.example/2"]
    server.change("UPDATE frontier_queues SET delay = 10")
    server.pass_seconds(9)
    assert server.get() == []
    server.pass_seconds(3)
    assert server.get() == ["http://a.example/3", "http://a.example/4"]


def test_a_queue_hands_out_no_more_than_a_crawler_takes_at_a_time(server):
    """UF-13: while as many are held as are asked for, nothing of it is handed out."""
    server.put(*pages("a", 9))
    assert len(server.get(urls_per_queue=2)) == 2
    server.pass_seconds(3)
    assert server.get(urls_per_queue=2) == []
    server.pass_seconds(2)
    assert len(server.get(urls_per_queue=3)) == 3


def test_blocked_full_and_paused_queues_hand_nothing_out(server):
    """UF-6, UF-7, UF-12: until a moment, at the limit, or while servers are paused."""
    server.put(*pages("a", 3))
    later = int(time.time()) + 100
    server.change("UPDATE frontier_queues SET blocked_until = :later", later=later)
    assert server.get() == []
    server.change("UPDATE frontier_queues SET blocked_until = 0, crawl_limit = 1, completed = 1")
    assert server.get(key="a.example") == []
    server.change("UPDATE frontier_queues SET crawl_limit = NULL")
    server.change("UPDATE frontier SET is_active = false")
    assert server.get(key="a.example") == []
    server.change("UPDATE frontier SET is_active = true")
    assert len(server.get(key="a.example")) == 3


def test_queues_take_turns_and_each_is_served_once(server):
    """UF-13: those that waited longest go first; URLs come round robin."""
    server.put(*pages("a", 3), *pages("b", 3), *pages("c", 3))
    first = server.get(queues=2, urls_per_queue=2)
    assert len(first) == 4
    hosts = [one.split("/")[2][0] for one in first]
    assert hosts[0] == hosts[2]
    assert hosts[1] == hosts[3]
    rest = server.get(queues=2, urls_per_queue=2)
    assert {one.split("/")[2][0] for one in rest} == {"a", "b", "c"} - set(hosts)


def test_without_limits_all_that_is_due_is_handed_out_once(server):
    """UF-13: more than a transaction takes, of one queue and of many."""
    server.put(*pages("a", 2500))
    server.put(*[url(f"http://h{n}.example/") for n in range(1500)])
    given = server.get()
    assert len(given) == len(set(given)) == 4000
    server.pass_seconds(5)
    assert server.get() == []


def test_a_key_and_a_crawl_are_kept_to_and_any_crawl_means_all(server):
    """UF-13: the crawl of a URL is told with it."""
    server.put(*pages("a", 1), *pages("b", 1))
    server.put(*pages("a", 1), crawl="other")
    assert server.get(key="b.example") == ["http://b.example/0"]
    assert server.get(key="none.example") == []
    assert server.get("none") == []
    rest = server.handed(None)
    assert {(one.crawl, one.url) for one in rest} == {
        ("DEFAULT", "http://a.example/0"),
        ("other", "http://a.example/0"),
    }


def test_queues_that_have_become_empty_are_not_in_the_way_of_others(server, monkeypatch):
    """UF-13: who asks for few queues gets what is due of the last one, in few transactions."""
    server.put(*[url(f"http://h{n}.example/") for n in range(300)])
    server.put(*[url(u, 0) for u in server.get()])
    server.pass_seconds(5)
    server.put(url("http://last.example/"))
    looked, step = [], handouts.step

    def noted(*given):
        urls, search = step(*given)
        looked.append(search.looked_at)
        return urls, search

    monkeypatch.setattr(handouts, "step", noted)
    assert server.get(queues=1) == ["http://last.example/"]
    assert looked == [10, 100, 1000, 1]


def test_crawls_in_which_nothing_is_due_cost_nothing(server):
    """UF-13: who asks for any crawl is sent to those alone that may have something by now."""
    server.put(*pages("a", 1))
    server.put(*pages("a", 1), crawl="other")

    def looked_into():
        with server.engine.connect() as connection:
            return [one.name for one in handouts.crawls_of(connection, Request(), 0)]

    assert looked_into() == ["DEFAULT", "other"]
    assert len(server.get(hold=30)) == 1
    assert looked_into() == ["other"]
    server.pass_seconds(31)
    assert sorted(looked_into()) == ["DEFAULT", "other"]


def test_what_was_not_sent_is_given_back(server):
    """UF-13: it is handed out again as soon as its queue's turn comes."""
    server.put(*pages("a", 3))
    given = server.handed(hold=600)
    server.run(server.handouts.give_back(given[1:]))
    server.pass_seconds(2)
    assert server.get() == ["http://a.example/1", "http://a.example/2"]
    server.assert_is_true()


def test_metadata_comes_as_it_was_put(server):
    """UF-13: lists of text by name."""
    server.put(url("http://a.example/1", depth="3"))
    (one,) = server.handed()
    assert (one.key, one.metadata) == ("a.example", {"depth": ["3"]})


def test_more_of_a_queue_than_a_transaction_takes_is_handed_out_up_to_what_is_asked(server):
    """UF-13: the rest of it comes in further transactions, and no more than that."""
    server.put(*pages("a", 2500))
    assert len(server.get(urls_per_queue=1700)) == 1700


def test_two_servers_hand_out_no_url_twice(server, engine):
    """UF-13: eight crawlers at two servers get all there is, each URL once."""
    server.put(*[one for n in range(40) for one in pages(f"h{n}", 10)])
    served = []

    async def crawl(one):
        while True:
            got = [u async for chunk in one.handouts.hand_out(request) for u in chunk]
            served.extend(u.url for u in got)
            await one.puts.put("DEFAULT", [url(u.url, 0) for u in got])
            if not got and len(served) >= 400:
                return
            await asyncio.sleep(0.05)

    request = Request("DEFAULT", urls_per_queue=5, queues=3, hold=600)
    server.change("UPDATE frontier SET default_delay = 0")
    with frontiers.opened(engine) as other:

        def run(one):
            async def crawl_all():
                async with asyncio.TaskGroup() as group:
                    for _ in range(4):
                        group.create_task(crawl(one))

            one.run(asyncio.wait_for(crawl_all(), 60))

        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(run, other)
            run(server)
            beside.result()
    assert len(served) == len(set(served)) == 400
    assert server.rows("SELECT count(*) FROM work") == [(0,)]
    server.assert_is_true()


def test_what_others_hold_by_now_is_not_given_back(server):
    """UF-13: a hold that ended is nobody's to end; the next one stays."""
    server.put(*pages("a", 3))
    first = server.handed(hold=20)
    server.pass_seconds(25)
    assert len(server.get(hold=100)) == 3

    server.run(server.handouts.give_back(first))
    server.pass_seconds(3)
    assert server.get() == []


def chunks(server, between, **request):
    """Get URLs, and run something between two chunks; return how many came in each."""

    async def get():
        sizes = []
        async for chunk in server.handouts.hand_out(Request("DEFAULT", **request)):
            sizes.append(len(chunk))
            await between(chunk)
        return sizes

    return server.run(get())


@pytest.mark.parametrize("key", [None, "a.example"])
def test_a_call_gets_no_more_of_a_queue_than_it_asks_for(server, key):
    """UF-13: though what it got is completed meanwhile, and the queue's delay is over."""
    server.put(*pages("a", 3000))

    async def complete(chunk):
        await server.puts.put("DEFAULT", [url(one.url, 0) for one in chunk])
        await server.transactions.call(run, "UPDATE frontier_queues SET last_served = 1")

    assert chunks(server, complete, key=key, urls_per_queue=1200) == [1000]
    server.pass_seconds(3)
    assert chunks(server, nothing, key=key, urls_per_queue=1200) == [1000, 200]


async def nothing(_):
    """Do nothing between two chunks."""


def run(connection, statement):
    """Run a statement."""
    connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE frontier_queues SET blocked_until = 9999999999",
        "UPDATE frontier_queues SET crawl_limit = 1, completed = 1",
        "UPDATE frontier SET is_active = false",
        "UPDATE limits SET blocked_until = now() + interval '1 hour' WHERE kind = 'slot'",
        "UPDATE frontier_queues SET last_served = last_served + 1",
    ],
)
def test_a_queue_that_is_shut_between_two_chunks_is_left(server, statement):
    """UF-6, UF-7, UF-12: a block, a limit, a pause, and who serves it meanwhile end a long call."""
    server.put(*pages("a", 3000))

    async def shut(_):
        await server.transactions.call(run, statement)

    assert chunks(server, shut) == [1000]


def test_a_url_that_workers_died_on_is_handed_out_when_a_crawler_says_so(server):
    """UF-5: a spider runs it alone, crawlers do not get it; known again it is as any other."""
    server.put(url("http://a.example/"))
    server.change("UPDATE work SET deaths = 2")
    assert server.get() == []
    server.put(url("http://a.example/", 5))
    assert server.get() == ["http://a.example/"]
