"""How far the spider's `start()` is, which may have to run once more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class SpiderStart:
    """Says when `start()` has nothing more, and when the database lacks what it gave.

    `error` is what it raised, `has_yielded` tells that it yielded something. `has_run` is set while
    no `start()` runs that has begun.
    """

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    has_run: asyncio.Event = field(default_factory=asyncio.Event)
    is_wanted_again: asyncio.Event = field(default_factory=asyncio.Event)
    error: str | None = None
    has_yielded: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether `start()` has nothing more."""
        return self.ended.is_set()

    def end(self) -> None:
        """Take note that `start()` has nothing more, unless it is to run again."""
        self.has_run.set()
        if not self.is_wanted_again.is_set():
            self.ended.set()

    def want_again(self) -> None:
        """Have `start()` run once more."""
        self.is_wanted_again.set()
        self.ended.clear()

    def begin_again(self) -> None:
        """Take note that it runs once more."""
        self.is_wanted_again.clear()
        self.has_run.clear()
