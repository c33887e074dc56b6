"""Throttle: what the answers of a site say about how fast to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protego import Protego

from scrapy_itemgraph.model.types import Lesson
from scrapy_itemgraph.worker.spider import request_builder

if TYPE_CHECKING:
    from datetime import timedelta

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

_BUSY = (429, 503)


class Throttle:
    """AutoThrottle's formula and settings, for the delays of tasks."""

    def __init__(self, settings: BaseSettings) -> None:
        self.least = settings.getfloat("DOWNLOAD_DELAY")
        self.most = settings.getfloat("AUTOTHROTTLE_MAX_DELAY")
        self.first = max(self.least, settings.getfloat("AUTOTHROTTLE_START_DELAY"))
        self._target = settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY") or 1.0

    def bounded(self, delay: float) -> float:
        """Return a delay within the bounds that the settings give."""
        return min(max(self.least, delay), self.most)

    def adjusted(self, delay: float, latency: float, status: int) -> float:
        """Return the delay that follows from a response, as Scrapy's extension computes it."""
        target = latency / self._target
        new = self.bounded(max(target, (delay + target) / 2))
        # Errors are quick to answer: they never make it shorter.
        return delay if status != 200 and new <= delay else new  # noqa: PLR2004 - HTTP's OK


def lesson_of_answer(request: Request, response: Response, longest: timedelta) -> Lesson | None:
    """Return how long a site wants to be left alone, if it says so."""
    if response.status not in _BUSY:
        return None
    seconds = request_builder.retry_after(response, longest.total_seconds())
    slot = request_builder.slot_in_use(request)
    if seconds is None or seconds <= 0 or not slot:
        return None
    return Lesson(slot=slot, blocked_for=seconds, blocked_by=f"http {response.status}")


def is_robots(request: Request) -> bool:
    """Tell the requests of Scrapy's middleware for robots.txt."""
    return "dont_obey_robotstxt" in request.meta and request.url.endswith("/robots.txt")


def lesson_of_robots(
    request: Request, response: Response, agent: str, longest: timedelta
) -> Lesson | None:
    """Return the Crawl-delay that a robots.txt asks for; none takes back an earlier one."""
    slot = request_builder.slot_in_use(request)
    if not slot or response.status >= 500:  # noqa: PLR2004 - HTTP's server errors
        return None
    text = response.body.decode(errors="replace") if response.status < 300 else ""  # noqa: PLR2004
    delay = Protego.parse(text).crawl_delay(agent)
    seconds = 0.0 if delay is None or not delay > 0 else float(delay)
    return Lesson(slot=slot, crawl_delay=min(seconds, longest.total_seconds()))
