"""Depths of requests, in a crawl whose pages have a least depth: Scrapy counts, and drops nothing.

Scrapy's middleware gives each link the depth of its response plus one, and the graph says how deep
that is. Which pages are too deep the graph says as well, so the middleware's own limit is off.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.worker.executions.execution import Execution

DEPTH = "depth"  # in a request's meta, as Scrapy's middleware has it


class LinkDepths:
    """Tells requests how deep they are, and notes what pages link to."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @cached_property
    def _are_counted(self) -> bool:
        """Whether Scrapy's middleware is there, whose limit is off from now on."""
        return scrapy_internals.take_depth_limit(self._crawler)

    def stamp(self, request: Request, depth: int) -> None:
        """Tell the request of a claim how deep its page is; one of `start()` is not told."""
        if self._are_counted and (depth or DEPTH in request.meta):
            request.meta[DEPTH] = depth

    def note(self, request: Request, name: str, execution: Execution, *, is_known: bool) -> None:
        """Note a link of a page: of those that are known nothing else is left."""
        is_root = (
            execution.tracks_depth and self._are_counted and request.meta.get(DEPTH) == 0
        )  # `depth_reset`
        if not (is_known or is_root) or execution.links is None:
            return
        key = item_names.hex_key(name)
        if is_root:
            execution.roots.add(key)
        if is_known:
            execution.links.add(key)
