"""The item of a page that is to be simulated, by what people know of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support import graphs

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import simulated_pages
from scrapy_itemgraph.model import page_names
from scrapy_itemgraph.model.request_operations import EnqueueRequest

URL = "http://a.example/list"
PLAIN = page_names.plain_name(URL)


@pytest.fixture
def crawl(connection):
    """Make a crawl with a page of GET, two of POST at its URL, and a task's item."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["callback:parse"]})
    tags = ("callback:parse",)
    post = {"method": "POST"}
    crawl.do(
        EnqueueRequest(id=PLAIN, tags=tags, data={"url": URL, "request": {}}),
        EnqueueRequest(
            id="REQ:a", tags=tags, data={"url": URL, "request": {**post, "body": "q=tea"}}
        ),
        EnqueueRequest(
            id="REQ:b", tags=tags, data={"url": URL, "request": {**post, "body": "q=milk"}}
        ),
        CreateItem("B1", ["book"], {"url": URL}),
    )
    return crawl


def find(crawl, name, *more, crawl_id=0):
    """Return what a page's names lead to."""
    wanted = SimpleNamespace(names=(name, *more), shown=name)
    return simulated_pages.find(crawl.connection, crawl.id if crawl_id == 0 else None, wanted)


def test_a_page_is_found_by_a_name_or_by_its_url(crawl):
    """An id, the name of a GET request, or the URL as tables show it; with its tags and data."""
    found = find(crawl, URL, PLAIN)

    assert (found.item, list(found.tags)) == (PLAIN, ["callback:parse"])
    assert found.data == {"url": URL, "request": {}}
    assert find(crawl, f"GET {URL}").item == PLAIN
    assert find(crawl, "REQ:b").data["request"]["body"] == "q=milk"
    assert find(crawl, "B1").item == "B1"


def test_what_is_not_there_is_none(crawl):
    """Nobody has seen the page, or there is no crawl yet."""
    assert find(crawl, f"{URL}/2", page_names.plain_name(f"{URL}/2")) is None
    assert find(crawl, URL, PLAIN, crawl_id=None) is None


def test_of_several_pages_one_has_to_be_said(crawl):
    """They are listed by their ids, with what their requests carry."""
    with pytest.raises(NotFoundError, match="several pages have this URL") as refused:
        find(crawl, f"POST {URL}")

    assert """'REQ:a' (body "q=tea"), 'REQ:b' (body "q=milk")""" in str(refused.value)
