"""Items as people name them: a page by its URL, and what they may have meant."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support import graphs

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import page_names
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.store.failures import OpenFailure

pytestmark = pytest.mark.server

SITE = "http://a.example/list"
LONG = f"{SITE}/{'x' * 5000}"


def page(url, name=None, callback="parse", **request):
    """Return the operation that a request becomes."""
    return EnqueueRequest(
        id=name or page_names.plain_name(url),
        tags=(f"callback:{callback}",),
        data={"url": url, "request": request},
    )


@pytest.fixture
def graph(engine):
    """Yield the graph of a crawl with pages of two callbacks, and an item with a URL."""
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection, parse={"tags": ["callback:parse"]})
        crawl.do(
            page(f"{SITE}?a=1&b=%20"),
            page(f"{SITE}/form", "REQ:abc", method="POST", body="x"),
            page(f"{SITE}/form", "REQ:abd", callback="again", method="POST", body="y"),
            page(f"{SITE}/headers", "REQ:f00d", headers={"Cookie": ["a"]}),
            page(f"{SITE}/twice"),
            page(f"{SITE}/twice", "START:abf:again", callback="again"),
            page(f"{SITE}/4/"),
            page(f"{SITE}/alike", "REQ:ab1", method="POST", body="q=tea"),
            page(f"{SITE}/alike", "REQ:ab2", method="POST", body="q=milk", meta={"rank": 2}),
            page(f"{SITE}/alike", "REQ:ab3", callback="again", method="POST", body="q=tea"),
            page(LONG),
            page("https://www.b.example/Page"),
            CreateItem("URL:http://c.example/tea", ["page"], {"url": "http://c.example/tea"}),
            CreateItem("EAN:4012345010350", ["page"], {"url": "http://c.example/many"}),
            CreateItem("EAN:2", ["page"], {"url": "http://c.example/many"}),
        )
    return ItemGraph(engine, "books")


@pytest.mark.parametrize(
    ("given", "item"),
    [
        (f"{SITE}?a=1&b=%20", page_names.plain_name(f"{SITE}?a=1&b=%20")),
        (f"{SITE}?b=%20&a=1#there", page_names.plain_name(f"{SITE}?a=1&b=%20")),
        (f"POST {SITE}/form parse", "REQ:abc"),
        (f"{SITE}/form again", "REQ:abd"),
        (f"{SITE}/headers", "REQ:f00d"),
        (f"GET {SITE}/headers", "REQ:f00d"),
        (f"{SITE}/twice", page_names.plain_name(f"{SITE}/twice")),
        (f"{SITE}/twice again", "START:abf:again"),
        (LONG, page_names.plain_name(LONG)),
        ("http://c.example/tea", "URL:http://c.example/tea"),
        ("REQ:abc", "REQ:abc"),
    ],
)
def test_a_page_is_found_by_its_url(graph, given, item):
    """A page has its URL for a name, whatever its request was like; method and callback help."""
    assert graph.lookup.page(given).item == item
    assert graph.get(given).id == item
    assert graph.show(given)["id"] == item
    assert [one.item for one in graph.lookup.in_crawls(given)] == [item]


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        (f"{SITE}/form", [f"POST {SITE}/form parse", f"POST {SITE}/form again"]),
        ("http://c.example/many", ["EAN:4012345010350", "EAN:2"]),
    ],
)
def test_several_pages_of_a_url_are_listed(graph, given, listed):
    """Where several pages are meant, the error has what to write for each."""
    with pytest.raises(NotFoundError, match="several pages have this URL") as refused:
        graph.get(given)

    assert list(refused.value.did_you_mean) == listed
    assert all(one in str(refused.value) for one in listed)
    assert [graph.lookup.page(one) for one in listed]


def test_pages_that_a_url_does_not_tell_apart_are_listed_with_what_does(graph):
    """Pages alike in URL, method and callback are named by their ids, and what they carry."""
    with pytest.raises(NotFoundError) as refused:
        graph.get(f"{SITE}/alike")

    said = str(refused.value)
    assert """'REQ:ab1' (body "q=tea", no meta rank), """ in said
    assert """'REQ:ab2' (body "q=milk", meta rank 2), """ in said
    assert said.endswith(f"'POST {SITE}/alike again'")
    assert refused.value.did_you_mean == ("REQ:ab1", "REQ:ab2", f"POST {SITE}/alike again")


@pytest.mark.parametrize(
    ("failed", "written"),
    [
        ((page_names.plain_name(f"{SITE}/4/"), f"{SITE}/4/", "GET", "parse"), f"{SITE}/4/"),
        (("REQ:f00d", f"{SITE}/headers", "GET", "parse"), f"{SITE}/headers"),
        (("START:abf:again", f"{SITE}/twice", "GET", "callback.again"), f"{SITE}/twice again"),
        (("REQ:abd", f"{SITE}/form", "POST", "again"), f"POST {SITE}/form again"),
        (("REQ:ab2", f"{SITE}/alike", "POST", "parse"), "REQ:ab2"),
        (
            ("URL:http://c.example/tea", "http://c.example/tea", None, "x"),
            "URL:http://c.example/tea",
        ),
    ],
)
def test_what_is_written_for_a_failed_page_leads_to_it_alone(graph, failed, written):
    """Its URL, with method and callback where these tell it; its id where nothing else does."""
    item, url, method, task = failed
    failure = OpenFailure(1, 1, 1, task, item, url, method, False, {}, datetime.now(UTC), [])

    assert graph.lookup.written([failure]) == [written]
    assert graph.lookup.page(written).item == item


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (f"{SITE}/4", f"{SITE}/4/"),
        (f"{SITE}/twice/", f"{SITE}/twice"),
        (f"{SITE.replace('http:', 'https:')}/4/", f"{SITE}/4/"),
        (f"URL:{SITE}/4/", f"{SITE}/4/"),
        ("http://b.example/Page", "https://www.b.example/Page"),
        ("https://WWW.B.example/Page/", "https://www.b.example/Page"),
        ("https://c.example/tea", "URL:http://c.example/tea"),
        ("EAN:401234501", "EAN:4012345010350"),
        (f"{SITE}/head", f"{SITE}/headers"),
    ],
)
def test_an_item_that_is_not_there_is_told_from_one_that_is(graph, given, meant):
    """What is written a little differently, or goes on, is said to be what was meant."""
    with pytest.raises(NotFoundError, match="did you mean") as refused:
        graph.show(given)

    assert meant in refused.value.did_you_mean
    assert repr(meant) in str(refused.value)


def test_nothing_is_meant_by_what_is_like_nothing(graph):
    """An id that resembles none is said not to be there, and no more; a URL is that of a page."""
    with pytest.raises(NotFoundError, match=r"the item 'nothing' does not exist$") as refused:
        graph.results("nothing")

    assert refused.value.did_you_mean == ()
    assert graph.get("http://nowhere.example/") is None
    with pytest.raises(NotFoundError, match=r"the crawl knows no page 'http://b]/'$"):
        graph.results("http://b]/")


def test_a_page_is_changed_by_its_url(graph):
    """Results of a page expire, and it is deleted, by its URL alone."""
    assert [one.task for one in graph.expire(f"{SITE}/headers")] == ["parse"]
    assert [one.task for one in graph.set_ttl(f"{SITE}/headers", 60)] == ["parse"]
    graph.set_nice(f"{SITE}/headers", -1)
    graph.delete(f"{SITE}/headers")

    assert graph.get(f"{SITE}/headers") is None
