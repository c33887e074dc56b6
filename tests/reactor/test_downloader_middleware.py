"""The downloader middleware under Scrapy's engine: how the end of a fetch settles its work."""

from __future__ import annotations

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph import CreateItem, UpdateData, task


class Page(Spider):
    """One page of a task, whose path is in the settings."""

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"url": self.site + self.settings["PATH"]})

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"found": response.url})


class NoDownload(Spider):
    """A task that needs no page."""

    def seeds(self):
        yield CreateItem("A", tags=["item"])

    @task(tags=["item"], download=False)
    def work(self, response, item):
        yield UpdateData({"has_response": response is not None})


@deferred_f_from_coro_f
async def test_a_task_without_a_download_asks_no_site(crawl_of, site):
    """Its callback is called without a response, and nothing is sent."""
    crawl = await crawl_of(NoDownload).run(site.url)

    assert crawl.rows("SELECT data FROM items") == [({"has_response": False},)]
    assert crawl.outcomes() == {"A": ["ok"]}
    assert site.moments == []


@deferred_f_from_coro_f
async def test_a_download_that_fails_settles_its_work(crawl_of, site):
    """The error of a fetch whose request has no errback is the attempt's, and its leg is closed."""
    crawl = await crawl_of(Page, PATH="A", DOWNLOAD_MAXSIZE=3).run(site.url)

    assert crawl.outcomes() == {"A": ["failed"]}
    assert crawl.rows("SELECT count(*) FROM work WHERE token IS NOT NULL") == [(0,)]
    assert not crawl.worker.parts.active.executions


class Refusing:
    """A downloader middleware of the project that lets no page pass."""

    async def process_request(self, request):
        raise IgnoreRequest("not today")


@deferred_f_from_coro_f
async def test_a_request_that_the_project_refuses_settles_its_work(crawl_of, site):
    """IgnoreRequest of another middleware ends the attempt as refused, without a download."""
    crawl = await crawl_of(Page, PATH="A", DOWNLOADER_MIDDLEWARES={Refusing: 500}).run(site.url)

    assert crawl.outcomes() == {"A": ["refused"]}
    assert site.moments == []
    assert not crawl.worker.parts.active.executions


@deferred_f_from_coro_f
async def test_a_redirect_keeps_its_work_open_to_the_callback(crawl_of, site):
    """The fetch of the target is the same attempt, and the item is what the callback changes."""
    crawl = await crawl_of(Page, PATH="moved/there").run(site.url)

    assert crawl.downloaded == ["/moved/there", "/there"]
    assert crawl.outcomes() == {"A": ["ok"]}
    assert crawl.rows("SELECT data->>'found' FROM items") == [(site.url + "there",)]


class Linked(Spider):
    """A plain start page, whose link is redirected."""

    async def start(self):
        yield Request(self.site + "start")

    def parse(self, response):
        yield Request(self.site + "moved/there", self.parse_link)

    def parse_link(self, response): ...


@deferred_f_from_coro_f
async def test_where_a_redirect_leads_is_stored_before_it_is_downloaded(crawl_of, site):
    """When the target's request reaches the downloader, its name is one of the link's item."""
    crawl = crawl_of(Linked)
    names = {}
    sql = "SELECT count(*) FROM aliases"
    crawl.on_download = lambda path: names.update({path: crawl.rows(sql)[0][0]})

    await crawl.run(site.url)

    assert crawl.downloaded == ["/start", "/moved/there", "/there"]
    assert names["/there"] == names["/moved/there"] + 1
