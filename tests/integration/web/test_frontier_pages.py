"""The cockpit's page of a URL that other crawlers take: it has the words of `explain`."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from conftest import new_database
from support import frontiers, web_servers
from support.frontiers import url

from scrapy_itemgraph.postgres import engine as engines

URL = "http://a.example/1"


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with a URL that a crawler has."""
    with new_database(server_url, template) as address:
        engine = engines.sync_engine(address)
        with frontiers.opened(engine) as server:
            server.put(url(URL), url("http://a.example/2"))
            assert server.get(urls_per_queue=1, hold=300) == [URL]
        engine.dispose()
        yield address


def test_an_items_page_says_who_has_it(filled):
    """UF-13: until when a crawler has it, as on the command line and over HTTP."""
    item = f"URL:{URL}"
    with web_servers.serving(filled, "--crawl", "DEFAULT") as web:
        page = web.ask("GET", f"/crawls/DEFAULT/item?{urlencode({'id': item})}").text
        (one,) = web.get(f"/api/v1/crawls/DEFAULT/items/{quote(item, safe='')}/explain")
    (hold, *_) = one["reasons"]
    assert hold.startswith("it was given to a crawler until ")
    assert hold in page
