"""Feedback: what the answers of a site say about how fast to go on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.model.limits import SlotFeedback
from scrapy_itemgraph.model.rates import LONGEST_GAP, usable_gap
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker.downloads import robots
from scrapy_itemgraph.worker.downloads.request_slots import slot_in_use

if TYPE_CHECKING:
    from datetime import timedelta

    from protego import Protego
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_itemgraph.throttle.limiter import Lane
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.downloads.downloader_slots import AutoThrottle

_BUSY = (429, 503)
SHORT_BLOCK = 5.0  # seconds; work is not given back for a block that is over so soon
_UNTIL_SETTLED = 1.0  # seconds in which a slot whose delay changes waits for the database

logger = logs.logger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class SiteFeedback:
    """Takes up what sites answer: latencies, requests to be left alone, delays of robots.txt.

    Each holds here at once; what all workers are to keep to is `unsaved` until it is saved. `agent`
    is whom robots.txt speaks to, None for each request's own User-Agent; a site is left alone for
    `longest` at most, and gets a delay of `longest_delay` at most; `learns_delays` tells whether
    delays of robots.txt are kept to.
    """

    limiters: Limiters
    formula: AutoThrottle
    agent: str | None
    longest: timedelta
    longest_delay: timedelta
    learns_delays: bool
    unsaved: list[SlotFeedback] = field(default_factory=list)
    _crawl_delays: dict[str, float] = field(default_factory=dict)  # of hosts, and of slots by them
    _capped: set[str] = field(default_factory=set)  # slots that ask for more, as was said

    def starting(self, request: Request) -> None:
        """Have a slot that a spider names keep the delay that a host in it asks for."""
        host = urlparse_cached(request).hostname or ""
        slot = slot_in_use(request)
        delay = self._crawl_delays.get(host, 0.0)
        limiter = self.limiters.slot(slot)
        if limiter is None or slot == host:
            return
        if delay > max(self._crawl_delays.get(slot, 0.0), limiter.set_gap):
            self._crawl_delays[slot] = delay
            self._heed(SlotFeedback(slot=slot, crawl_delay=delay))

    def answered(self, request: Request, response: Response, lane: Lane) -> SlotFeedback | None:
        """Learn from a response how slow the site is; return the block that it asks for, if any."""
        latency = request.meta.get("download_latency")
        for limiter in lane:  # of slots Scrapy's extension sets the delay
            if not limiter.is_slot and limiter.throttle is not None and latency is not None:
                limiter.throttle = self.formula.adjusted(limiter.throttle, latency, response.status)
        answer = of_answer(request, response, self.longest)
        if answer is not None:
            self._heed(answer)
        return answer

    async def robots(self, request: Request, response: Response) -> Response:
        """Take up the delay that a robots.txt asks for; return what counts of it, parsed."""
        body = await robots.parsed(response.body)
        if len(body) < len(response.body):
            logger.warning(
                "%s has %s bytes; the first %s count, and no rule behind them",
                response.url,
                f"{len(response.body):,}",
                f"{len(body):,}",
                extra={"action": "robots_cut"},
            )
        agent = self.agent or (request.headers.get("User-Agent") or b"").decode("latin-1")
        answer = of_robots(request, response.status, body.parsed, agent)
        if answer is not None and self.learns_delays:
            delay = self._capped_delay(answer.slot, answer.crawl_delay or 0.0)
            self._crawl_delays[answer.slot] = delay
            self._heed(replace(answer, crawl_delay=delay))
        return response.replace(body=body)

    def _capped_delay(self, slot: str, asked: float) -> float:
        """Return the delay that a site gets, and say once where that is less than it asks for."""
        longest = self.longest_delay.total_seconds()
        if asked > longest and slot not in self._capped:
            self._capped.add(slot)
            logger.warning(
                "The robots.txt of %s asks for a Crawl-delay of %s; it gets %s. "
                "ITEMGRAPH_MAX_CRAWL_DELAY allows more",
                slot,
                "a day or more" if asked >= LONGEST_GAP else wording.format_period(asked),
                wording.format_period(longest),
                extra={"action": "crawl_delay_capped"},
            )
        return usable_gap(min(asked, longest))

    def _heed(self, answer: SlotFeedback) -> None:
        """Keep at once to what a site asked for, and have it saved for all."""
        self.unsaved.append(answer)
        limiter = self.limiters.slot(answer.slot)
        assert limiter is not None
        now = time.monotonic()
        if answer.blocked_for is not None:
            logger.info(
                "%s asks to be left alone for %s",
                answer.slot,
                wording.format_period(answer.blocked_for),
                extra={"action": "blocked"},
            )
            limiter.block(now + answer.blocked_for)
        elif answer.crawl_delay:
            limiter.block(now + _UNTIL_SETTLED)
        self.limiters.wanted.set()


def of_answer(request: Request, response: Response, longest: timedelta) -> SlotFeedback | None:
    """Return how long a site wants to be left alone, if it says so."""
    if response.status not in _BUSY:
        return None
    seconds = retry_after(response, longest.total_seconds())
    slot = slot_in_use(request)
    if seconds is None or seconds <= 0 or not slot:
        return None
    return SlotFeedback(slot=slot, blocked_for=seconds, blocked_by=f"http {response.status}")


def is_robots(request: Request) -> bool:
    """Tell the requests of Scrapy's middleware for robots.txt."""
    return "dont_obey_robotstxt" in request.meta and request.url.endswith("/robots.txt")


def of_robots(request: Request, status: int, parsed: Protego, agent: str) -> SlotFeedback | None:
    """Return the Crawl-delay that a robots.txt asks for; none takes back an earlier one."""
    slot = slot_in_use(request)
    if not slot or status >= 500:  # noqa: PLR2004 - HTTP's server errors
        return None
    delay = parsed.crawl_delay(agent) if status < 300 else None  # noqa: PLR2004
    return SlotFeedback(slot=slot, crawl_delay=usable_gap(delay))


def retry_after(response: Response, longest: float) -> float | None:
    """Return the seconds that a site asks to wait, below zero for a date in the past.

    None when it does not ask, or not so that it can be read.
    """
    header = response.headers.get("Retry-After")
    if header is None:
        return None
    text = header.decode("latin-1").strip()
    try:
        seconds = float(text) if text.isdigit() else _until(text, response)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(seconds, longest)


def _until(date: str, response: Response) -> float:
    """Return the seconds until a date, by the clock of the site where it tells its time."""
    told = response.headers.get("Date")
    now = parsedate_to_datetime(told.decode("latin-1")).timestamp() if told else time.time()
    return parsedate_to_datetime(date).timestamp() - now
