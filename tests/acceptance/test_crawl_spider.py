"""An unmodified CrawlSpider on real input: the HTML of python3-doc and postgresql-doc-15."""

from __future__ import annotations

import manuals
import pytest

pytestmark = [
    pytest.mark.docs_crawl,
    pytest.mark.skipif(
        not manuals.is_installed(),
        reason="Debian's python3-doc and postgresql-doc-15 are not installed; .ci/run does it",
    ),
]


@pytest.fixture
def site():
    """Serve the manuals."""
    with manuals.site() as one:
        yield one


@pytest.fixture
def settings(database):
    """Point the crawl at the test's own database."""
    return (f"ITEMGRAPH_DATABASE_URL={database}",)


@pytest.fixture(scope="module")
def plain_pages():
    """Return how often a CrawlSpider fetches each page with Scrapy's own scheduler."""
    with manuals.site() as one:
        one.crawl("rules", "ADDONS={}")
        yield one.fetched()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 4])
def test_an_unmodified_crawl_spider_visits_each_page_once(site, settings, plain_pages, processes):
    """A CrawlSpider with our line visits what it visits without, also as four processes."""
    manuals.crawl_together(site, "rules", *settings, processes=processes)

    assert site.fetched() == plain_pages


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_an_unmodified_crawl_spider_survives_kills(
    site, settings, database, plain_pages, processes
):
    """While a random one of the processes is killed every two seconds no page is lost."""
    killed = manuals.crawl_together(site, "rules", *settings, processes=processes, kill_every=2.0)

    assert site.fetched().keys() == plain_pages.keys()
    assert killed
    pages = manuals.pages(database, "rules")
    assert all(page["results"] for page in pages.values())
