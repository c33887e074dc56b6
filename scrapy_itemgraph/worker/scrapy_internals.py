"""What Scrapy keeps to itself and we need: its private names stand here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

_STARTS = {"crawl", "crawl_async"}  # methods of Crawler, which forget what they were called with


def given_arguments(crawler: Crawler) -> dict[str, Any] | None:
    """Return what a crawl under way was started with, positional arguments by their place from 1.

    To be called by what `Crawler.crawl` or `crawl_async` calls; None where neither does.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way to them
    while frame is not None:
        here = frame.f_locals if frame.f_code.co_name in _STARTS else {}
        if here.get("self") is crawler and "kwargs" in here:
            places = {str(place): value for place, value in enumerate(here.get("args", ()), 1)}
            return {**places, **here["kwargs"]}
        frame = frame.f_back  # type: ignore[assignment]
    return None
