"""What callbacks keep on `self` is found in a spider's code, and nothing else is."""

from __future__ import annotations

import pytest
import scrapy
from scrapy.spiders import CrawlSpider, Rule

from scrapy_itemgraph.worker.spider import kept_state


class Token(scrapy.Spider):
    """A token that the start page brings."""

    name = "token"
    token = None

    def parse(self, response):
        self.token = response.css("b::text").get()
        yield response.follow("/a", self.parse_page)

    def parse_page(self, response):
        yield response.follow("/b", headers={"X": self.token})


class Ids(scrapy.Spider):
    """A set of ids, through helpers."""

    name = "ids"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ids = set()

    def parse(self, response):
        self.remember(response)

    def remember(self, page):
        self.ids.add(page.url)

    async def parse_page(self, response):
        if response.url in self.ids:
            yield {}


class Rules(CrawlSpider):
    """A list by a rule's callback."""

    name = "rules"
    rules = (Rule(callback="parse_item"),)

    def parse_item(self, page):
        self.found["a"] = 1

    def parse_other(self, response):
        return self.found


class Sometimes(scrapy.Spider):
    """A token that is set by its name, and reset under a condition before it is read."""

    name = "sometimes"

    def parse(self, response):
        setattr(self, "token", "abc")  # noqa: B010 - that is what it is about

    def parse_page(self, response):
        if response.status == 500:
            self.token = None
        yield {"token": self.token}


class Apart(scrapy.Spider):
    """What each callback sets for itself, what the constructor gave, counters, the state."""

    name = "apart"

    def __init__(self, cat="x", **kwargs):
        super().__init__(**kwargs)
        self.cat = cat
        self.count = 0

    async def start(self):
        self.began = 1
        yield scrapy.Request("http://a.example")

    def parse(self, response):
        self.item = {"cat": self.cat}
        self.count += 1
        self.state["seen"] = 1
        self.logger.info("x")
        yield self.item
        yield response.follow("/a", self.parse_page)

    def parse_page(self, response):
        self.item = {"other": self.cat, "began": self.began}
        self.count += 1
        yield self.item
        yield {"seen": self.state["seen"]}

    def closed(self, reason):
        self.logger.info(self.count)


@pytest.mark.parametrize(
    ("cls", "kept"),
    [
        (Token, [("token", "parse", "parse_page")]),
        (Ids, [("ids", "parse", "parse_page")]),
        (Rules, [("found", "parse_item", "parse_other")]),
        (Sometimes, [("token", "parse", "parse_page")]),
        (Apart, []),
        (type("Made", (Token,), {"name": "made"}), [("token", "parse", "parse_page")]),
        (scrapy.Spider, []),
        (type("Made", (scrapy.Spider,), {"name": "made"}), []),
    ],
)
def test_what_one_callback_writes_and_another_reads_is_found(cls, kept):
    """Helpers, rules and changes in place count; without source nothing is said."""
    assert kept_state.found_in(cls) == kept


class MadeRules(CrawlSpider):
    """Rules that an instance makes."""

    name = "made_rules"

    @property
    def rules(self):
        return (Rule(callback="parse_item"),)

    def parse(self, response):
        self.token = "abc"

    def parse_item(self, response):
        yield {"token": self.token}


class NoRules(scrapy.Spider):
    """Rules that are none."""

    name = "no_rules"
    rules = None


def test_rules_that_cannot_be_read_stand_in_nobodys_way():
    """A property or None ends no start, and hides nothing that the methods show."""
    assert kept_state.found_in(MadeRules) == [("token", "parse", "parse_item")]
    assert kept_state.found_in(NoRules) == []
