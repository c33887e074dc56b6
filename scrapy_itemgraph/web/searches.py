"""Searches: few at a time, for one may look through 100,000 items for ten seconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.concurrency import run_in_threadpool

from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.access.visitors import Visitor

T = TypeVar("T")

AT_ONCE = 2
PATIENCE = 2.0  # seconds that a search waits for its turn


class Searches:
    """Runs two searches at a time, and one for each token; others wait shortly, outside of threads.

    So most connections are free for all else, and no token keeps the others from searching.
    """

    def __init__(self) -> None:
        self._running: list[str | None] = []  # names of tokens
        self._ended = asyncio.Event()

    async def run(self, visitor: Visitor, search: Callable[[], T]) -> T:
        """Run a search in a thread.

        Raises:
            Problem: others take too long.

        """
        try:
            async with asyncio.timeout(PATIENCE):
                while not self._has_room(visitor):
                    await self._ended.wait()
        except TimeoutError:
            raise Problem(503, "other searches run; try again in a while", RETRY_AFTER) from None
        self._running.append(visitor.name)
        try:
            return await run_in_threadpool(search)
        finally:
            self._running.remove(visitor.name)
            self._ended.set()
            self._ended = asyncio.Event()

    def _has_room(self, visitor: Visitor) -> bool:
        is_running = visitor.name is not None and visitor.name in self._running
        return len(self._running) < AT_ONCE and not is_running
