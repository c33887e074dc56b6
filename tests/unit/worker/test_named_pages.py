"""Which request and callback somebody means who names a page of a plain spider."""

from __future__ import annotations

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.request import RequestFingerprinter

from scrapy_itemgraph import task
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.simulations import StoredPage
from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
from scrapy_itemgraph.worker.spider.named_pages import NamedPage
from scrapy_itemgraph.worker.spider.request_ids import RequestIds

URL = "http://a.example/page/1"


class Plain(Spider):
    """Two callbacks, and a task."""

    name = "plain"

    def parse(self, response):
        """Yield nothing."""

    def parse_item(self, response):
        """Yield nothing."""

    @task(tags=["book"])
    def price(self, item, response):
        """Yield nothing."""


class Ruled(CrawlSpider):
    """A rule with a callback, and one that follows."""

    name = "ruled"
    start_urls = (URL,)
    rules = (
        Rule(LinkExtractor(allow="/item/"), callback="parse_item"),
        Rule(LinkExtractor(allow="/list/")),
    )

    def parse_item(self, response):
        """Yield nothing."""


class Without(Spider):
    """No `parse`."""

    name = "without"

    def parse_item(self, response):
        """Yield nothing."""


def page(name, callback=None, spider=Plain):
    """Return a page as somebody names it."""
    crawler = Crawler(spider, {"LOG_ENABLED": False})
    crawler.request_fingerprinter = RequestFingerprinter(crawler)
    crawler.spider = made = spider.from_crawler(crawler)
    return NamedPage(
        name=name,
        callback=callback,
        is_saved=False,
        callbacks=CallbackTasks(made, tasks.discover(spider), {}),
        identities=RequestIds(crawler),
    )


def stored(*callbacks, **request):
    """Return a page as the graph has it."""
    tags = dict.fromkeys(map(tasks.callback_tag, callbacks))
    return StoredPage(item="REQ:a", tags=tags, data={"url": URL, "request": request})


@pytest.mark.parametrize(
    ("spider", "url", "callback", "led"),
    [
        (Plain, URL, None, "parse"),
        (Plain, URL, "parse_item", "parse_item"),
        (Ruled, "http://a.example/item/1", None, "parse_item"),
        (Ruled, "http://a.example/list/1", None, "follow"),
        (Ruled, URL, None, "parse"),
        (Without, URL, "parse_item", "parse_item"),
    ],
)
def test_a_page_that_nobody_has_seen_goes_where_its_url_leads(spider, url, callback, led):
    """It is made up by GET, by the name of a crawl; another callback may be said."""
    named = page(url, callback, spider)
    plan = named.plan(None)

    assert plan.task == led
    assert plan.item == plan.made.id == named.names[1]
    assert plan.made.tags == (tasks.callback_tag(led),)
    assert plan.made.data["url"] == url


def test_a_stored_page_goes_to_its_own_callback_as_it_was_stored():
    """It is found by the name that was given, and of a URL by that of a GET request."""
    own = page(f"{URL}?b=1&a=2").plan(stored("parse_item", callback="parse_item", meta={"n": 1}))
    led = page(URL, "parse").plan(stored("parse_item", callback="parse_item", meta={"n": 1}))

    assert (own.task, own.item, own.request, own.made) == ("parse_item", "REQ:a", None, None)
    assert (led.task, led.request) == ("parse", {"callback": "parse", "meta": {"n": 1}})
    assert page("POST http://a.example/").names == ("POST http://a.example/",)
    assert page(f"{URL}?b=1&a=2").names[1] == page(f"{URL}?a=2&b=1").names[1]


def test_a_stored_page_is_led_to_a_rule_and_past_it():
    """Pages of rules go to Scrapy's own callback, which finds the rule."""
    ruled = {"callback": "_callback", "meta": {"rule": 0}}

    own = page(URL, None, Ruled).plan(stored("parse_item", **ruled))
    led = page(URL, "follow", Ruled).plan(stored("parse_item"))

    assert (own.task, own.request) == ("parse_item", None)
    assert (led.task, led.request) == ("follow", {"callback": "_callback"})


@pytest.mark.parametrize(
    ("named", "found", "error", "said"),
    [
        (page(URL, "parse_itm"), None, NotFoundError, "did you mean 'parse_item'"),
        (page(URL, "start"), stored("parse"), NotFoundError, "has no callback 'start'"),
        (page(URL, "price"), None, OperationError, f"itemgraph simulate plain price {URL}"),
        (page(URL, None, Without), None, NotFoundError, "--callback NAME"),
        (page(URL), stored("parse", "parse_item"), OperationError, "parse, parse_item; say which"),
        (
            page("B1"),
            StoredPage(item="B1", tags={"book": None}, data={}),
            OperationError,
            "itemgraph simulate plain price B1",
        ),
        (page("B1"), StoredPage(item="B1", tags={}, data={}), OperationError, "none has its tags"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_what_can(named, found, error, said):
    """A wrong callback, a task, several callbacks, and an item that is no page."""
    with pytest.raises(error, match=said.replace("(", r"\(").replace(".", r"\.")):
        named.plan(found)


def test_what_is_no_url_is_looked_for_by_its_name_alone():
    """Of what nobody has the graph says what is written alike: nothing is made up."""
    named = page("quotes.example/1")

    plan = named.plan(None)

    assert named.names == ("quotes.example/1",)
    assert (plan.task, plan.item, plan.made) == ("parse", "quotes.example/1", None)
