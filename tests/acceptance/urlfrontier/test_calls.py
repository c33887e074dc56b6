"""Calls of the URL frontier with one answer: their corners, and their errors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from support import frontier, proxies
from support.frontier import discovered, known
from support.frontier_v3 import speaking

A, B = "http://a.example/", "http://b.example/"


@pytest.fixture(params=["2.6", "3"])
def client(request, served):
    """Return a client that speaks a version, and has the messages of 2.6 in any."""
    with speaking(request.param, served) as one:
        yield one


def code(client, method, **fields):
    """Return the code with which a call is refused."""
    with pytest.raises(grpc.RpcError) as refused:
        client.ask(method, **fields)
    return refused.value.code()


def test_the_status_of_a_url(client):
    """A URL's status is known, with a date; one that is not there is an error (UF-10)."""
    began = int(time.time())
    client.put(discovered(A, metadata={"depth": ["1"]}), known(B, 0, key="k"))

    one = client.ask("GetURLStatus", url=A)
    assert one.known.refetchable_from_date >= began - 60
    assert one.creation_date >= began - 60
    assert list(one.known.info.metadata["depth"].values) == ["1"]
    assert (one.known.info.key, one.known.info.crawlID) == ("a.example", "DEFAULT")
    assert client.ask("GetURLStatus", url=B, key="k").known.refetchable_from_date == 0
    assert code(client, "GetURLStatus", url=B) is grpc.StatusCode.NOT_FOUND
    assert code(client, "GetURLStatus", url="http://?x") is grpc.StatusCode.INVALID_ARGUMENT


def test_a_limit_shuts_a_queue(client):
    """A queue stops at its limit; an unknown one is an error, and 0 lifts the limit (UF-12)."""
    client.put(discovered(A), known(A + "done", 0))
    assert code(client, "SetCrawlLimit", key="no", limit=1) is grpc.StatusCode.NOT_FOUND

    client.ask("SetCrawlLimit", key="a.example", limit=1)
    assert client.get(key="a.example", crawlID="") == []
    client.ask("SetCrawlLimit", key="a.example", limit=0)
    assert client.get(key="a.example", crawlID="") == [A]


def test_a_block_shuts_a_queue(client):
    """A queue is blocked until a moment; 0 ends it, and an unknown queue is none (UF-6)."""
    client.put(discovered(A))
    client.ask("BlockQueueUntil", key="no", time=2**64 - 1)
    client.ask("BlockQueueUntil", key="a.example", time=2**64 - 1)

    assert client.get() == []
    assert list(client.ask("ListQueues").values) == []
    assert list(client.ask("ListQueues", include_inactive=True).values) == ["a.example"]
    client.ask("BlockQueueUntil", key="a.example", time=0)
    assert client.get() == [A]


def test_calls_that_wait_for_a_queue_keep_up_no_others(served, engine):
    """UF-10: what only reads is answered, and URLs are acked, while many calls wait for a lock."""
    client = served.client
    client.put(discovered(A))
    with ThreadPoolExecutor() as threads:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT FROM frontier_queues FOR UPDATE")
            blocks = [
                threads.submit(client.ask, "BlockQueueUntil", key="a.example", time=2**40)
                for _ in range(20)
            ]
            assert client.ask("GetStats").size == 1
            assert list(client.ask("ListQueues").values) == ["a.example"]
            assert client.put(discovered(A + "2")) == [(A + "2", "OK")]
            assert not any(one.done() for one in blocks)
        for one in blocks:
            one.result(timeout=frontier.PATIENCE)
    assert client.get() == []


def test_a_pause_outlives_the_server(database):
    """While it is not active nothing is handed out, by another server neither (UF-7)."""
    with frontier.serving(database) as first:
        first.client.put(discovered(A))
        first.client.ask("SetActive", state=False)
        assert not first.client.ask("GetActive").state
    with frontier.serving(database) as second:
        assert second.client.put(discovered(B)) == [(B, "OK")]
        assert second.client.get() == []
        second.client.ask("SetActive", state=True)
        assert second.client.ask("GetActive").state
        assert sorted(second.client.get()) == [A, B]


def test_nodes_are_servers_that_live(database):
    """A server is listed by its address, or that which it advertises, until it ends (UF-16)."""
    with frontier.serving(database) as first:
        with frontier.serving(database, "--advertise", "crawl.example:7071") as second:
            assert second.said["advertised"] == "crawl.example:7071"
            nodes = first.client.ask("ListNodes").values
            assert sorted(nodes) == sorted([first.address, "crawl.example:7071"])
        assert list(first.client.ask("ListNodes").values) == [first.address]


def test_urls_are_listed_by_page_and_filter(client):
    """Start and size count what the filter lets pass; a blank filter is none (UF-10)."""
    client.put(*(discovered(f"{A}{'odd' if at % 2 else 'EVEN'}/{at}") for at in range(250)))

    assert len(client.ask("ListURLs")) == 100
    assert len(client.ask("ListURLs", start=240)) == 10
    assert len(client.ask("ListURLs", size=1000, filter="  ")) == 250
    assert len(client.ask("ListURLs", size=1000, filter="even")) == 0
    assert len(client.ask("ListURLs", size=1000, start=25, filter="even", ignoreCase=True)) == 100
    assert client.ask("CountURLs", filter="odd").value == 125
    assert client.ask("CountURLs", crawlID="none").value == 0


def test_a_key_goes_with_a_crawl(client):
    """A key without a crawl has no URLs; any crawl is asked where none is said (UF-11)."""
    client.put(discovered(A), discovered(B, crawl="other"))

    assert client.get(key="a.example") == []
    assert client.get(key="a.example", anyCrawlID={}) == []
    assert sorted(client.get(anyCrawlID={})) == [A, B]


def test_a_default_delay_holds_for_all_queues(client):
    """Without a key the delay is that of all queues of all crawls (UF-8)."""
    client.ask("SetDelay", delay_requestable=3600)
    client.put(discovered(A), discovered(A + "2"), discovered(B, crawl="other"))

    first = client.get(max_urls_per_queue=1)
    assert len(first) == 2
    assert client.get() == []
    client.ask("SetDelay", key="a.example", delay_requestable=0)
    until, found = time.monotonic() + 10, []
    while not found and time.monotonic() < until:
        found = client.get()
    assert sorted([*first, *found]) == [A, A + "2", B]


def test_logs_are_of_the_level_that_is_set(engine):
    """A level is of the whole server; one that is none changes nothing, and is no error (UF-16)."""
    with (
        proxies.proxy(engine) as (way, url),
        frontier.serving(url, "-s", "ITEMGRAPH_PATIENCE=1s") as served,
    ):

        def put_while_away(address: str) -> list[tuple[str, str]]:
            before = way.lead(("127.0.0.1", 9))
            way.cut()
            found = served.client.put(discovered(address))
            way.lead(before)
            assert served.client.put(discovered(address)) == [(address, "OK")]
            return found

        served.client.ask("SetLogLevel", package="crawlercommons.urlfrontier", level=4)
        served.client.ask("SetLogLevel", level=99)
        assert put_while_away(A) == [(A, "FAIL")]
        served.client.ask("SetLogLevel", level=3)
        assert put_while_away(B) == [(B, "FAIL")]
        code, errors = served.stop()

    assert code == 0
    assert errors.count("to be sent again") == 1


def test_calls_that_get_urls_are_told_at_the_level_debug(database):
    """UF-16: what a call asked for and got; the levels of other packages are not for clients."""
    with frontier.serving(database) as served:
        client = served.client
        client.put(discovered(A))
        client.ask("SetLogLevel", package="crawlercommons.urlfrontier", level=1)
        client.ask("SetLogLevel", package="sqlalchemy.engine", level=2)
        assert client.get(max_queues=3) == [A]
        code, said = served.stop()

    assert code == 0
    assert "GetURLs: sent 1 in " in said
    assert "queues=3" in said
    assert "SELECT" not in said


def test_what_is_unknown_has_nothing_to_delete(client):
    """Deletes of what is not there answer 0, and take nothing else with them (UF-16)."""
    client.put(discovered(A))

    assert client.ask("DeleteQueue", key="no").value == 0
    assert client.ask("DeleteQueue", key="").value == 0
    assert client.ask("DeleteCrawl", value="no").value == 0
    assert client.ask("PurgeURLs", key="no").value == 0
    assert client.ask("PurgeURLs", days=1).value == 0
    assert client.ask("CountURLs").value == 1


def test_old_urls_are_purged(client):
    """With 0 days all goes that is older than this second, done or not; queues stay (UF-16)."""
    client.put(discovered(A), known(A + "done", 0), discovered(B))

    until, purged = time.monotonic() + 10, 0
    while purged < 2 and time.monotonic() < until:
        purged += client.ask("PurgeURLs", key="a.example").value
    assert purged == 2
    assert client.ask("CountURLs").value == 1
    assert len(client.ask("ListQueues", include_inactive=True).values) == 2
