"""What sites answer is kept to at once, and is there to be saved for all."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from scrapy.settings import Settings

from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker.downloads.downloader_slots import AutoThrottle
from scrapy_itemgraph.worker.downloads.site_feedback import SiteFeedback

PAGE = Request("http://a.example/page")
ROBOTS = Request("http://a.example/robots.txt")
HOUR = timedelta(hours=1)


class Feedback:
    """A site's feedback, the limits that it changes, and the blocks that were told of."""

    def __init__(self, clock, monkeypatch, **options) -> None:
        monkeypatch.setattr("scrapy_itemgraph.worker.downloads.site_feedback.time", clock)
        self.blocks: list[tuple[str, float]] = []
        self.limiters = Limiters(lambda _: Terms(), lambda _: None)
        self.site = SiteFeedback(
            self.limiters,
            AutoThrottle(Settings({"AUTOTHROTTLE_START_DELAY": 4.0})),
            agent="itemgraph",
            longest=HOUR,
            longest_delay=timedelta(minutes=1),
            learns_delays=options.get("learns_delays", True),
        )

    def answered(self, response: Response) -> None:
        """Have the site answer a request."""
        block = self.site.answered(PAGE, response, ())
        if block is not None:
            self.blocks.append((block.slot, block.blocked_for))

    def read_robots(self, text: str) -> None:
        """Have the site answer a request for its robots.txt."""
        asyncio.run(self.site.robots(ROBOTS, TextResponse(ROBOTS.url, body=text.encode())))


@pytest.fixture
def feedback(clock, monkeypatch) -> Feedback:
    """Return the feedback of sites, on a clock of ours."""
    return Feedback(clock, monkeypatch)


def busy(seconds: str, status: int = 429) -> Response:
    """Return an answer that asks to be left alone."""
    return Response(
        PAGE.url,
        status=status,
        headers={"Retry-After": seconds, "Date": "Sun, 22 Nov 2026 17:00:00 GMT"},
    )


def test_a_busy_site_is_left_alone_at_once(feedback, clock):
    """Its slot lets nothing start, the database is to be told, and who has its work is told."""
    feedback.answered(busy("60"))

    assert feedback.limiters.slot("a.example").blocked_until == clock.now + 60
    assert feedback.blocks == [("a.example", 60.0)]
    assert feedback.limiters.wanted.is_set()
    (unsaved,) = feedback.site.unsaved
    assert (unsaved.slot, unsaved.blocked_for, unsaved.blocked_by) == ("a.example", 60, "http 429")


def test_a_site_is_left_alone_no_longer_than_the_settings_say(feedback):
    """ITEMGRAPH_MAX_RETRY_AFTER bounds what a site may ask for."""
    feedback.answered(busy("999999"))

    assert feedback.blocks == [("a.example", 3600.0)]


@pytest.mark.parametrize("answer", [busy("60", 200), busy("soon"), busy("0"), Response(PAGE.url)])
def test_other_answers_block_nothing(feedback, answer):
    """Only 429 and 503 with a Retry-After that can be read ask to be left alone."""
    feedback.answered(answer)

    assert not feedback.site.unsaved
    assert not feedback.limiters.wanted.is_set()


def test_a_crawl_delay_of_robots_txt_is_to_be_saved(feedback, clock):
    """Nothing starts until the database has answered, or for a second."""
    feedback.read_robots("User-agent: *\nCrawl-delay: 7")

    assert [one.crawl_delay for one in feedback.site.unsaved] == [7.0]
    assert feedback.limiters.slot("a.example").blocked_until == clock.now + 1.0
    assert not feedback.blocks


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("1e-320", 0.0),
        ("0.0009", 0.0),
        ("0.001", 0.001),
        ("60", 60.0),
        ("61", 60.0),
        ("1e308", 60.0),
        ("9" * 300, 60.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("-5", 0.0),
    ],
)
def test_a_crawl_delay_is_kept_from_a_millisecond_to_what_the_settings_allow(feedback, asked, kept):
    """Below a millisecond there is none, and ITEMGRAPH_MAX_CRAWL_DELAY is the most a site gets."""
    feedback.read_robots(f"User-agent: *\nCrawl-delay: {asked}")

    assert [one.crawl_delay for one in feedback.site.unsaved] == [kept]


def test_that_a_site_asks_for_too_long_a_delay_is_said_once(feedback, caplog):
    """Each site whose Crawl-delay is capped has one line of warning, with the setting's name."""
    for _ in range(3):
        feedback.read_robots("User-agent: *\nCrawl-delay: 90")

    (line,) = [one.getMessage() for one in caplog.records]
    assert "a.example asks for a Crawl-delay of 1m 30s; it gets 1m." in line
    assert "ITEMGRAPH_MAX_CRAWL_DELAY" in line


@pytest.mark.parametrize("asked", ["9" * 400, "1" + "0" * 308, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_retry_after_is_longer_than_the_settings_say(feedback, asked):
    """Numbers beyond a float's range and the last moment of the calendar are capped as well."""
    feedback.answered(busy(asked))

    assert feedback.blocks == [("a.example", 3600.0)]


@pytest.mark.parametrize("asked", ["inf", "nan", "-1", "1e999", "1e-320", "Mon, 99 Foo"])
def test_a_retry_after_that_is_no_number_blocks_nothing(feedback, asked):
    """Infinite, negative and broken waits are passed over."""
    feedback.answered(busy(asked))

    assert not feedback.blocks


def test_a_crawl_delay_is_not_kept_to_where_the_settings_say_so(clock, monkeypatch):
    """ITEMGRAPH_LEARN_DELAYS switches it off."""
    feedback = Feedback(clock, monkeypatch, learns_delays=False)
    feedback.read_robots("User-agent: *\nCrawl-delay: 7")

    assert not feedback.site.unsaved


def test_a_slot_that_a_spider_names_keeps_the_delay_of_a_host_in_it(feedback):
    """It is said once, for the longest delay of its hosts."""
    feedback.read_robots("User-agent: *\nCrawl-delay: 7")
    feedback.site.unsaved.clear()
    named = PAGE.replace(meta={"download_slot": "shops"})
    for _ in range(2):
        feedback.site.starting(named)

    assert [(one.slot, one.crawl_delay) for one in feedback.site.unsaved] == [("shops", 7.0)]


def test_latencies_set_the_delay_of_a_task_that_asks_for_it(feedback):
    """As Scrapy's AutoThrottle computes it: half way to the latency; an error never shortens it."""
    limiter = feedback.limiters.declare(1, ("task", "s/parse"), Terms(gap=0.001), first_delay=4.0)
    request = PAGE.replace(meta={"download_latency": 2.0})

    feedback.site.answered(request, Response(PAGE.url), (limiter,))
    assert limiter.throttle == 3.0
    feedback.site.answered(request, Response(PAGE.url, status=500), (limiter,))
    assert limiter.throttle == 3.0
