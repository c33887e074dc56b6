"""`raise TryAgain`: a page that is not ready is fetched again later, and that is no failure."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.utils.defer import deferred_f_from_coro_f
from support.inner_crawls import Spider

from scrapy_itemgraph import CreateItem, TryAgain, UpdateData, task

ATTEMPTS = "SELECT outcome, error->>'type', error->>'message' FROM attempts ORDER BY id"
FAILURES = "SELECT count(*) FROM failures"
SOON = 0.05


class Plain(Spider):
    """A page that is ready the fourth time, and one whose errback says that it is not ready."""

    looks = 0

    async def start(self):
        yield Request(self.site + "A", self.parse, errback=self.failed)

    def parse(self, response):
        type(self).looks += 1
        yield {"look": self.looks}
        if self.looks < 4:
            raise TryAgain(after=SOON, reason="no results yet")

    def failed(self, failure): ...


@deferred_f_from_coro_f
async def test_a_plain_callback_has_its_page_fetched_again(crawl_of, site, caplog):
    """As often as it says, whatever RETRY_TIMES is; nothing is logged as an error."""
    caplog.set_level("INFO", logger="scrapy_itemgraph")
    crawl = await crawl_of(Plain, RETRY_ENABLED=True, RETRY_TIMES=1).run(site.url)

    assert crawl.downloaded == ["/A"] * 4
    again = ("retry", "try again", "no results yet")
    assert crawl.rows(ATTEMPTS) == [again] * 3 + [("ok", None, None)]
    assert crawl.rows(FAILURES) == [(0,)]
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []
    (line, *_) = [one.message for one in caplog.records if "no results yet" in one.message]
    assert line.startswith("[retry] ")
    assert line.endswith("in 0 s: try again: no results yet")


class Redirected(Spider):
    """A page that redirects elsewhere, and whose callback is not ready there at first."""

    looks = 0

    async def start(self):
        yield Request(self.site + "moved/A", self.parse, errback=self.failed)

    def parse(self, response):
        type(self).looks += 1
        if self.looks < 3:
            raise TryAgain(after=SOON)

    def failed(self, failure): ...


@deferred_f_from_coro_f
async def test_a_page_is_asked_for_again_and_not_where_it_was_redirected(crawl_of, site):
    """A page that says "please wait" is none that becomes ready."""
    crawl = await crawl_of(Redirected).run(site.url)

    assert crawl.downloaded == ["/moved/A", "/A"] * 3
    assert [row[0] for row in crawl.rows(ATTEMPTS)] == ["retry", "retry", "ok"]


class OfTask(Spider):
    """A task with one attempt: its request is not ready first, nor its page, nor a part of it."""

    said = 0

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"url": self.site + "A"})

    def not_ready(self, number):
        if type(self).said < number:
            type(self).said = number
            raise TryAgain(after=SOON, reason=f"reason {number}")

    def request(self, item):
        self.not_ready(1)
        return Request(item.data["url"])

    @task(tags=["page"], request="request", max_attempts=1)
    async def parse(self, response, item):
        yield UpdateData({"looks": self.said})
        self.not_ready(2)
        yield Request(self.site + "part", self.parse_part)

    def parse_part(self, response, item):
        self.not_ready(3)
        yield UpdateData({"part": True})


@deferred_f_from_coro_f
async def test_a_task_is_done_again_whose_request_page_or_part_was_not_ready(crawl_of, site):
    """It keeps its one attempt, and of what an attempt yielded that ended so nothing is stored."""
    crawl = await crawl_of(OfTask).run(site.url)

    again = [("retry", "try again", f"reason {number}") for number in (1, 2, 3)]
    assert crawl.rows(ATTEMPTS) == [*again, ("ok", None, None)]
    assert crawl.rows(FAILURES) == [(0,)]
    assert crawl.rows("SELECT data->>'looks', data->>'part' FROM items") == [("3", "true")]


class Thrice(Spider):
    """A task that says `TryAgain` twice, and then raises."""

    looks = 0

    def seeds(self):
        yield CreateItem("A", tags=["page"], data={"url": self.site + "A"})

    @task(tags=["page"], max_attempts=100_000)
    def parse(self, response, item):
        type(self).looks += 1
        if self.looks < 3:
            raise TryAgain(after=SOON)
        raise TryAgain(after="soon")


@deferred_f_from_coro_f
async def test_a_period_that_is_none_is_a_failure_that_says_what_to_write(crawl_of, site):
    """It is a mistake of the spider, told as any other error of a callback."""
    crawl = await crawl_of(Thrice).run(site.url)

    *_, (outcome, kind, message) = crawl.rows(ATTEMPTS)
    assert (outcome, kind) == ("failed", "ValueError")
    assert message.startswith("TryAgain(after=…) is 'soon'; write a number of seconds above 0")


def test_a_period_above_zero_is_asked_for():
    """Zero would ask a website without a pause."""
    with pytest.raises(ValueError, match="seconds above 0"):
        TryAgain(after=0)
