"""Throttle: what the answers of a site say about how fast to go on."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from protego import Protego

from scrapy_itemgraph.model.types import SlotFeedback
from scrapy_itemgraph.throttle.local_slots import slot_in_use

if TYPE_CHECKING:
    from datetime import timedelta

    from scrapy import Request
    from scrapy.http import Response

_BUSY = (429, 503)


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


def of_robots(
    request: Request, response: Response, agent: str, longest: timedelta
) -> SlotFeedback | None:
    """Return the Crawl-delay that a robots.txt asks for; none takes back an earlier one."""
    slot = slot_in_use(request)
    if not slot or response.status >= 500:  # noqa: PLR2004 - HTTP's server errors
        return None
    text = response.body.decode(errors="replace") if response.status < 300 else ""  # noqa: PLR2004
    delay = Protego.parse(text).crawl_delay(agent)
    seconds = 0.0 if delay is None or not delay > 0 else float(delay)
    return SlotFeedback(slot=slot, crawl_delay=min(seconds, longest.total_seconds()))


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
