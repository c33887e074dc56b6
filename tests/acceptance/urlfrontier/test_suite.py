"""What upstream's own seven tests of a server ask for, told anew, over gRPC."""

from __future__ import annotations

import time

import pytest
from conftest import new_database
from support import frontier
from support.frontier import M, discovered, known
from support.frontier_v3 import speaking

KEY = "key_1"
URL = "http://key_1.example/"


@pytest.fixture(scope="module")
def served(server_url, template):
    """Serve one database to all of the suite, as upstream's has one server."""
    with new_database(server_url, template) as url, frontier.serving(url) as one:
        yield one


@pytest.fixture(params=["2.6", "3"])
def client(request, served):
    """Return a client that speaks a version, and has the messages of 2.6 in any."""
    with speaking(request.param, served) as one:
        yield one


@pytest.fixture(autouse=True)
def _is_empty(client):
    """Delete the crawls that the tests use, as upstream's do."""
    for crawl in ("BESPOKE", "DEFAULT"):
        client.ask("DeleteCrawl", value=crawl)


def stats(client, key="", crawl=""):
    """Return size, URLs in process, queues, completed ones and the crawl of the answer."""
    one = client.ask("GetStats", key=key, crawlID=crawl)
    return one.size, one.inProcess, one.numberOfQueues, one.counts["completed"], one.crawlID


def queues(client, crawl="", **fields):
    """Return the keys of a crawl's queues."""
    return list(client.ask("ListQueues", crawlID=crawl, **fields).values)


def test_a_url_without_a_date_is_never_fetched_again(client):
    """A URL that is known with date 0 is acked, and never handed out (UF-5)."""
    assert client.put(known(URL, 0, key=KEY)) == [(URL, "OK")]

    assert client.get(key=KEY, crawlID="DEFAULT", max_urls_per_queue=1) == []


def test_older_dates_go_first(client):
    """Of two URLs of a queue the one is handed out first that may be fetched for longer (UF-5)."""
    now = int(time.time())
    put = client.put(
        known(URL + "1", now, key=KEY),
        known(URL + "2", now - 10_000, key=KEY),
    )
    assert sorted(put) == [(URL + "1", "OK"), (URL + "2", "OK")]

    asked = M["GetParams"](key=KEY, crawlID="DEFAULT", max_urls_per_queue=2)
    call = client.call("GetURLs")(asked)

    assert next(call).url == URL + "2"  # and the call stays open


def test_a_url_is_held_for_a_while_and_deleted_with_its_queue(client):
    """Twice discovered is once there; it is held as long as is asked, and then free (UF-8)."""
    put = client.put(discovered(URL, key=KEY), discovered(URL, key=KEY))
    assert put == [(URL, "OK"), (URL, "SKIPPED")]
    assert queues(client) == [KEY]

    asked = {"key": KEY, "crawlID": "DEFAULT", "max_urls_per_queue": 1, "delay_requestable": 2}
    assert client.get(**asked) == [URL]
    assert stats(client, KEY) == (1, 1, 1, 0, "DEFAULT")
    assert client.get(**asked) == []

    until = time.monotonic() + 10
    while stats(client, KEY)[1] and time.monotonic() < until:
        pass
    assert stats(client, KEY) == (1, 0, 1, 0, "DEFAULT")
    assert client.ask("DeleteQueue", key=KEY).value == 1
    assert stats(client, KEY) == (0, 0, 0, 0, "DEFAULT")
    assert queues(client, include_inactive=True) == []


def test_a_queue_has_the_name_of_the_host(client):
    """Without a key a URL's queue is its host, also before a question mark (UF-13)."""
    url = "http://gac.icann.org?language_id=9"
    assert client.put(discovered(url)) == [(url, "OK")]

    assert queues(client) == ["gac.icann.org"]
    assert stats(client, "gac.icann.org")[0] == 1
    assert client.ask("DeleteQueue", key="gac.icann.org").value == 1


def test_crawls_know_nothing_of_each_other(client):
    """An empty crawl is DEFAULT, and others are apart; without queues there is none (UF-11)."""
    assert list(client.ask("ListCrawls").values) == []

    client.put(discovered(URL, key=KEY, crawl="BESPOKE"), discovered(URL, key=KEY))

    assert sorted(client.ask("ListCrawls").values) == ["BESPOKE", "DEFAULT"]
    for crawl, name in (("BESPOKE", "BESPOKE"), ("", "DEFAULT"), ("DEFAULT", "DEFAULT")):
        assert stats(client, crawl=crawl) == (1, 0, 1, 0, name)
        assert client.ask("ListQueues", crawlID=crawl).crawlID == name
        assert queues(client, crawl) == [KEY]
    assert client.ask("DeleteCrawl", value="BESPOKE").value == 1
    assert stats(client, crawl="BESPOKE") == (0, 0, 0, 0, "BESPOKE")
    assert stats(client) == (1, 0, 1, 0, "DEFAULT")
    assert client.ask("DeleteCrawl", value="").value == 1
    assert list(client.ask("ListCrawls").values) == []


def listed(client, crawl, **fields):
    """Return the URLs of a crawl as they are put again: all are known."""
    found = client.ask("ListURLs", crawlID=crawl, size=2**31 - 1, **fields)
    assert all(one.WhichOneof("item") == "known" and not one.ID for one in found)
    return found


def test_what_is_listed_can_be_put_again(client):
    """URLs that are listed, deleted and put again are as before (UF-10)."""
    later = int(time.time()) + 100_000
    client.put(
        discovered("http://a.example/new"),
        known("http://a.example/done", 0),
        known("http://b.example/later", later, metadata={"depth": ["3"], "path": ["x", "y"]}),
        discovered("http://c.example/other", crawl="BESPOKE"),
    )
    crawls = list(client.ask("ListCrawls").values)
    dump = [one for crawl in crawls for one in listed(client, crawl)]
    assert len(dump) == 4

    assert sum(client.ask("DeleteCrawl", value=crawl).value for crawl in crawls) == 4
    assert list(client.ask("ListCrawls").values) == []
    assert {status for _, status in client.put(*dump)} == {"OK"}

    again = [one for crawl in crawls for one in listed(client, crawl)]
    for one in (*dump, *again):
        one.creation_date = 0
    assert sorted(map(str, again)) == sorted(map(str, dump))
    dates = {one.known.info.url: one.known.refetchable_from_date for one in again}
    assert dates["http://a.example/done"] == 0
    assert dates["http://b.example/later"] == later
    assert dates["http://a.example/new"] > 0
    assert client.ask("CountURLs", crawlID="BESPOKE").value == 1
    assert client.ask("CountURLs").value == 3


def test_queues_can_be_listed_each_for_itself(client):
    """The URLs of all queues, the inactive ones too, are those of the crawl (UF-9)."""
    urls = [f"http://{number % 11}.example/{number}" for number in range(21)]
    client.put(*(known(url, 0) if at % 2 else discovered(url) for at, url in enumerate(urls)))

    keys = queues(client, include_inactive=True, size=10_000)
    found = [one.known.info.url for key in keys for one in listed(client, "", key=key)]

    assert len(keys) == 11
    assert sorted(found) == sorted(urls)
