"""What commands say of a crawl that other crawlers take URLs of."""

from __future__ import annotations

import pytest
from support import frontiers
from support.frontiers import url

URL = "http://a.example/1"


@pytest.fixture
def server(engine):
    """Yield a frontier with a URL that a crawler has, and two that wait behind it."""
    with frontiers.opened(engine) as one:
        one.put(url(URL), url("http://a.example/2"), url("http://b.example/1", 0))
        assert one.get(urls_per_queue=1, hold=300) == [URL]
        yield one


@pytest.mark.usefixtures("server")
def test_explain_says_by_url_who_has_it(scrapy):
    """UF-13: a person asks for the URL, and reads that a crawler has it."""
    said = scrapy("explain", URL, "--crawl", "DEFAULT")
    assert said.code == 0
    assert "it was given to a crawler until " in said.out
    (one,) = scrapy("explain", URL, "--crawl", "DEFAULT", "--json").document
    assert not one["is_eligible"]


@pytest.mark.usefixtures("server")
def test_status_says_what_crawlers_have(scrapy):
    """UF-11: beside the numbers of the task, with which those of the frontier agree."""
    said = scrapy("status", "--crawl", "DEFAULT")
    found = scrapy("status", "--crawl", "DEFAULT", "--json").document
    line = "crawlers have 1 URL, counted as later; queues not completed: 1 of 2"
    assert line in " ".join(said.out.split())
    assert found["frontier"] == {
        "size": 2,
        "in_process": 1,
        "completed": 1,
        "queues": 2,
        "active_queues": 1,
        "is_estimated": False,
    }
    assert "1 of 3 done (33%)" in said.out
    (fetching,) = found["tasks"]
    assert (fetching["waiting"], fetching["delayed"], fetching["completed"]) == (1, 1, 1)


def test_status_of_another_crawl_says_nothing_of_a_frontier(scrapy, crawl):
    """UF-11: it has none."""
    crawl.work("PAGE:1")
    assert scrapy("status", "--json").document["frontier"] is None
    assert "crawlers" not in scrapy("status").out
