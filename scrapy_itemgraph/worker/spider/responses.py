"""Responses, which leave memory as soon as they are scraped.

Scrapy's response keeps its selector, and that keeps the response. So a page and its parsed tree,
which may be 50 times as large, would stay until a collection of garbage finds them, and these are
rare. What holds them is let go here, unless somebody else still has the response.
"""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy.http import TextResponse

from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    import asyncio

    from scrapy.http import Response


def watch(scrape: asyncio.Task[Any], response: Response) -> None:
    """Have a response let go of its selector when its scrape ends; to be called last of all."""
    if isinstance(response, TextResponse):
        scrape.add_done_callback(partial(_let_go, response))


def snippet(response: Response | None, most: int) -> str | None:
    """Return the first characters of a response, `most` of them; None of what is no text."""
    if not most or not isinstance(response, TextResponse) or not response.body:
        return None
    beginning = response.body[: 4 * most]
    try:
        return beginning.decode(response.encoding, errors="replace")[:most]
    except (LookupError, ValueError):  # a website may name any codec of Python's, such as "hex"
        return beginning.decode("latin-1")[:most]


def _let_go(response: Any, _scrape: asyncio.Task[Any] | None) -> None:
    """Take its selector from a response that nobody else has; else it may be used again."""
    if scrapy_internals.has_selector(response) and _count(response) == _OWN:
        scrapy_internals.drop_selector(response)


def _count(response: Any) -> int:
    """Count who has a response: its selector, and the callers of this."""
    return sys.getrefcount(response)


def _of_nobody_else() -> int:
    """Return what is counted of a response that nobody but its selector has."""
    counts: list[int] = []

    def note(response: Any, _scrape: None) -> None:
        counts.append(_count(response))

    response = SimpleNamespace()
    response.selector = SimpleNamespace(response=response)
    ended = partial(note, response)
    del response
    ended(None)
    return counts[0]


_OWN = _of_nobody_else()
