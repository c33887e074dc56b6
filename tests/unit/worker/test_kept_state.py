"""What callbacks keep on `self` is found in a spider's code, and nothing else is."""

from __future__ import annotations

from collections import Counter as Counts

import pytest
import scrapy
from scrapy.downloadermiddlewares import retry
from scrapy.downloadermiddlewares.retry import get_retry_request
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
    """What each callback sets for itself, what the constructor gave, the state."""

    name = "apart"

    def __init__(self, cat="x", **kwargs):
        super().__init__(**kwargs)
        self.cat = cat

    async def start(self):
        self.began = 1
        yield scrapy.Request("http://a.example")

    def parse(self, response):
        self.item = {"cat": self.cat}
        self.total = 0
        for _ in response.css("a"):
            self.total += 1
        if self.driver is None:
            self.driver = object()
        self.state["seen"] = 1
        self.logger.info("x")
        yield self.item
        yield response.follow("/a", self.parse_page)

    def parse_page(self, response):
        self.item = {"other": self.cat, "began": self.began}
        yield self.item
        yield {"seen": self.state["seen"]}


class Counter(scrapy.Spider):
    """A counter of one callback, as scrapy#5312 has it."""

    name = "counter"
    counter = 0

    def parse(self, response):
        self.counter += 1
        yield {"number": self.counter}


class Counted(scrapy.Spider):
    """A counter that two callbacks count on, and one that is set by what it was."""

    name = "counted"
    found = 0
    page = 1

    def parse(self, response):
        self.found += 1
        self.page = self.page + 1
        yield response.follow(f"/{self.page}", self.parse_page)

    def parse_page(self, response):
        self.found += 1


class Seen(scrapy.Spider):
    """A set by which one callback knows what it has seen, and counts by key."""

    name = "seen"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen, self.counts = set(), Counts()

    def parse(self, response):
        for name in response.css("b::text").getall():
            self.counts[name] += 1
            if name not in self.seen:
                self.seen.add(name)
                yield {"name": name}


@pytest.mark.parametrize(
    ("cls", "kept"),
    [
        (Token, [("token", "parse", "parse_page")]),
        (Ids, [("ids", "parse", "parse_page")]),
        (Rules, [("found", "parse_item", "parse_other")]),
        (Sometimes, [("token", "parse", "parse_page")]),
        (Apart, []),
        (Counter, [("counter", "parse", "parse")]),
        (Counted, [("found", "parse", "parse_page"), ("page", "parse", "parse")]),
        (Seen, [("counts", "parse", "parse"), ("seen", "parse", "parse")]),
        (type("Made", (Token,), {"name": "made"}), [("token", "parse", "parse_page")]),
        (scrapy.Spider, []),
        (type("Made", (scrapy.Spider,), {"name": "made"}), []),
    ],
)
def test_what_one_callback_writes_and_another_reads_is_found(cls, kept):
    """Helpers, rules and changes in place count, and what goes on from page to page in one.

    Without source nothing is said.
    """
    assert sorted(kept_state.found_in(cls)) == kept


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


class Retrying(scrapy.Spider):
    """Callbacks that ask for another try, and what they do where there is none left."""

    name = "retrying"

    def parse(self, response):
        if not response.css("b"):
            return get_retry_request(response.request, spider=self, reason="empty")
        return None

    def parse_kept(self, response):
        again = get_retry_request(response.request, spider=self, reason="empty")
        if again is not None:
            yield again
            return
        self.logger.info("given up")

    def parse_walrus(self, response):
        if again := retry.get_retry_request(response.request, spider=self):
            yield again

    def parse_raises(self, response):
        again = get_retry_request(response.request, spider=self, reason="empty")
        if again is None:
            raise ValueError("still empty")
        yield again

    def parse_else(self, response):
        if again := get_retry_request(response.request, spider=self):
            yield again
        else:
            yield {"empty": response.url}

    def parse_not(self, response):
        again = get_retry_request(response.request, spider=self)
        if not again:
            yield {"empty": response.url}

    def parse_is_none(self, response):
        again = get_retry_request(response.request, spider=self)
        if again is None:
            yield {"empty": response.url}

    def parse_none(self, response):
        yield {"url": response.url}


def test_scrapy_retries_that_end_quietly_are_found():
    """Not those that raise, or do something else where `get_retry_request` returns None."""
    assert kept_state.giving_up(Retrying) == ["parse", "parse_kept", "parse_walrus"]
    assert kept_state.giving_up(Token) == []
