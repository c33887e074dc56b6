"""What a frontier has, in lists and numbers, beside what was put into it."""

from __future__ import annotations

import time

import pytest
from support.frontiers import pages, url

from scrapy_itemgraph.graph.frontier_listings import FrontierListings
from scrapy_itemgraph.model.frontier import KnownURL, Stats
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.frontier import listings

pytestmark = pytest.mark.server


class Lists:
    """A frontier, and what it lists."""

    def __init__(self, server):
        self.server = server
        self.parts = FrontierListings(server.transactions)

    def queues(self, crawl="DEFAULT", *, start=0, size=100, include_inactive=False):
        asked = {"start": start, "size": size, "include_inactive": include_inactive}
        return self.server.run(self.parts.queues(crawl, **asked))

    def known(self, crawl="DEFAULT", key=None, *, start=0, size=100, **wanted):
        async def read():
            parts = self.parts.urls(crawl, key, start=start, size=size, **wanted)
            return [one async for part in parts for one in part]

        return self.server.run(read())

    def urls(self, *args, **given):
        return [one.url for one in self.known(*args, **given)]

    def count(self, crawl="DEFAULT", key=None, **wanted):
        return self.server.run(self.parts.count(crawl, key, **wanted))

    def url(self, address, key="a.example", crawl="DEFAULT"):
        return self.server.run(self.parts.url(crawl, key, address))

    def stats(self, crawl="DEFAULT", key=None):
        return self.server.run(self.parts.stats(crawl, key))


@pytest.fixture
def lists(server):
    """Return what the frontier lists."""
    return Lists(server)


def test_crawls_are_listed_that_have_a_queue(server, lists):
    """UF-11: crawls of spiders alone are not, and without any there are none."""
    assert server.run(lists.parts.crawls()) == []
    server.put(*pages("a", 1), crawl="second")
    server.put(*pages("a", 1))
    server.change("INSERT INTO crawls (name) VALUES ('spiders')")
    assert server.run(lists.parts.crawls()) == ["DEFAULT", "second"]


def test_queues_are_listed_page_by_page_without_inactive_ones(server, lists):
    """UF-10: blocked queues, and those whose URLs are all completed, are listed on request."""
    for host in "abcdef":
        server.put(*pages(host, 2))
    every = [f"{host}.example" for host in "abcdef"]
    assert lists.queues() == every
    now = int(time.time())
    server.put(url("http://b.example/0", 0), url("http://b.example/1", 0))
    server.put(url("http://c.example/0", 0), url("http://c.example/1", now + 9999))
    server.get(key="d.example")
    server.change(
        "UPDATE frontier_queues SET blocked_until = :later WHERE queue_id = ("
        "SELECT q.id FROM queues q JOIN limits l ON l.id = q.slot_id WHERE l.name = 'e.example')",
        later=now + 1000,
    )
    active = [f"{host}.example" for host in "acdf"]
    assert lists.queues() == active
    assert lists.queues(start=1, size=2) == active[1:3]
    assert lists.queues(start=4) == []
    assert lists.queues(include_inactive=True) == every
    assert lists.queues(include_inactive=True, start=2, size=3) == every[2:5]
    assert lists.queues("none", include_inactive=True) == []


def test_urls_are_known_with_their_dates_and_metadata(server, lists):
    """UF-10: what was discovered has the second of its discovery; what is completed has 0."""
    later = int(time.time()) + 9999
    began = int(time.time()) - 1
    server.put(
        url("http://a.example/1", colour="red"),
        url("http://a.example/2", later),
        url("http://a.example/3", 0, depth="3"),
        url("http://a.example/4", 2**63),
    )
    first, second, third, fourth = lists.known()
    assert first.refetchable_from == first.created_at
    assert began <= first.created_at <= time.time() + 1
    assert (first.key, first.metadata) == ("a.example", {"colour": ["red"]})
    assert second.refetchable_from == later
    assert third == KnownURL(
        "DEFAULT", "a.example", "http://a.example/3", {"depth": ["3"]}, 0, third.created_at
    )
    assert fourth.refetchable_from == 2**63
    server.get(hold=100)
    assert lists.known() == [first, second, third, fourth]
    assert lists.url("http://a.example/3") == third


def test_a_url_is_asked_for_by_its_queue(server, lists):
    """UF-10: under another key it is another URL, and one that nobody put is none."""
    server.put(url("http://a.example/1"), url("http://a.example/1", 7, key="b"))
    one = lists.url("http://a.example/1")
    other = lists.url("http://a.example/1", "b")
    assert (one.key, other.key) == ("a.example", "b")
    assert (one.refetchable_from, other.refetchable_from) == (one.created_at, 7)
    assert lists.url("http://a.example/2") is None
    assert lists.url("http://a.example/1", "c") is None
    assert lists.url("http://a.example/1", crawl="none") is None


def test_urls_come_queue_by_queue_from_any_start(server, lists):
    """UF-10: start and size count URLs, of a crawl or a queue, and pages join without a gap."""
    server.put(*pages("a", 1200), *pages("b", 1300))
    server.put(*pages("a", 1), crawl="other")
    every = [one.url for one in (*pages("a", 1200), *pages("b", 1300))]
    assert lists.urls(size=2**31) == every
    assert lists.urls(start=1150, size=1100) == every[1150:2250]
    assert lists.urls(start=2499) == every[2499:]
    assert lists.urls(start=2500) == []
    assert lists.urls(key="b.example", start=1299, size=9) == every[-1:]
    assert lists.urls(key="c.example") == []
    assert lists.urls("other") == every[:1]
    assert lists.count() == 2500
    assert lists.count(key="a.example") == 1200
    assert lists.count(key="c.example") == lists.count("none") == 0


def test_a_filter_is_a_part_of_urls_with_or_without_their_case(server, lists, monkeypatch):
    """UF-10: it is no pattern; start and size count what matches, however far apart it is."""
    monkeypatch.setattr(listings, "COUNTED", 300)
    server.put(*pages("a", 1500))
    server.put(url("http://a.example/x%_X"), url("http://b.example/x%_x"), url("http://b.example/"))
    assert lists.urls(filter="x%_X") == ["http://a.example/x%_X"]
    both = ["http://a.example/x%_X", "http://b.example/x%_x"]
    assert lists.urls(filter="%_X", ignore_case=True) == both
    assert lists.urls(filter="%_x", ignore_case=True, start=1) == both[1:]
    assert lists.urls(filter="/999") == ["http://a.example/999"]
    assert lists.urls(filter="a.example/1", start=600, size=2) == [
        "http://a.example/1489",
        "http://a.example/1490",
    ]
    assert lists.count(filter="%_x", ignore_case=True) == 2
    assert lists.count(filter="a.example/1") == 611
    assert lists.count(filter="example", key="b.example") == 2
    assert lists.count(filter="none") == 0


def test_data_that_the_database_cannot_read_is_filtered_by_name(server, lists):
    """UF-10: a spider may have stored a NUL in its data."""
    server.put(url("http://a.example/1"))
    server.change(r"""UPDATE items SET data = '{"url": "http://a.example/\u0000"}'""")
    assert lists.count(filter="example/1") == 1
    assert len(lists.urls(filter="example/1")) == 1


def test_numbers_are_of_a_crawl_or_a_queue(server, lists):
    """UF-9: what is held, due or to come is of the size, blocked or not; an unknown queue is 0."""
    later = int(time.time()) + 9999
    server.put(*pages("a", 5), url("http://b.example/1", later), url("http://c.example/1", 0))
    server.put(url("http://a.example/0", 0))
    server.put(url("http://a.example/0", 0))
    server.get(urls_per_queue=2, hold=100)
    assert lists.stats() == Stats(
        size=5, in_process=2, completed=2, queues=3, active_queues=2, is_estimated=False
    )
    assert lists.stats(key="a.example") == Stats(4, 2, 1, 1, 1)
    assert lists.stats(key="c.example") == Stats(0, 0, 1, 1, 0)
    assert lists.stats(key="none.example") == lists.stats("none") == Stats()
    server.pass_seconds(200)
    server.change("UPDATE frontier_queues SET blocked_until = 9999999999")
    assert lists.stats(key="a.example") == Stats(4, 0, 1, 1, 1)
    assert lists.stats().active_queues == 2


def test_numbers_beyond_what_is_counted_are_estimates(server, lists, monkeypatch):
    """UF-9: and they say so; where a queue has a limit its completed URLs are counted."""
    for name in ("MOST", "AT_FIRST"):
        monkeypatch.setattr(counting, name, 20)
    server.put(*pages("a", 60))
    server.put(*(url(f"http://a.example/{number}", 0) for number in range(30)))
    found = lists.stats(key="a.example")
    assert found.is_estimated
    assert (found.size, found.completed) == (30, 30)
    server.change("UPDATE frontier_queues SET crawl_limit = 99, completed = 31")
    assert lists.stats(key="a.example").completed == 31


def test_servers_that_live_are_listed(server, lists):
    """UF-11: by the address that they told, until they stop or die."""
    server.change(
        "INSERT INTO processes (kind, host, process_id, lease_until, stopped_at) VALUES "
        "('frontier', 'h', 1, now() + interval '1 hour', NULL), "
        "('frontier', 'h', 2, now() + interval '1 hour', now()), "
        "('frontier', 'h', 3, now() - interval '1 hour', NULL), "
        "('frontier', 'h', 4, now() + interval '1 hour', NULL)"
    )
    server.change(
        "INSERT INTO frontier_nodes (process_id, address) "
        "SELECT id, 'h:' || process_id FROM processes"
    )
    assert server.run(lists.parts.nodes()) == ["h:1", "h:4"]
