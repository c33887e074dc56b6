"""An unmodified CrawlSpider on real input: the HTML of python3-doc and postgresql-doc-15."""

from __future__ import annotations

import pytest
from support import manuals

pytestmark = manuals.MARKS


@pytest.fixture(scope="module")
def plain_pages(tmp_path_factory):
    """Return how often a CrawlSpider fetches each page with Scrapy's own scheduler."""
    with manuals.site(tmp_path_factory.mktemp("plain")) as one:
        one.crawl("rules", "ADDONS={}")
        yield one.fetched()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 4])
def test_an_unmodified_crawl_spider_visits_each_page_once(debian, settings, plain_pages, processes):
    """A CrawlSpider with our line visits what it visits without, also as four processes."""
    manuals.crawl_together(debian, "rules", *settings, processes=processes)

    assert debian.fetched() == plain_pages


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_an_unmodified_crawl_spider_survives_kills(
    debian, settings, database, plain_pages, processes
):
    """While a random one of the processes is killed every two seconds no page is lost."""
    killed = manuals.crawl_together(debian, "rules", *settings, processes=processes, kill_every=2.0)

    assert debian.fetched().keys() == plain_pages.keys()
    assert killed
    pages = manuals.pages(database, "rules")
    assert all(page["results"] for page in pages.values())
