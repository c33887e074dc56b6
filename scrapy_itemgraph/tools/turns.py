"""Turns of the event loop: long work of one coroutine lets others go on in between."""

from __future__ import annotations

import asyncio
import time

LONGEST = 0.01  # seconds of work between two turns of the loop


class Turns:
    """Tells a long piece of work when the event loop should have its turn."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + LONGEST

    @property
    def is_due(self) -> bool:
        """Whether the work has gone on for so long that others should have their turn."""
        return time.perf_counter() >= self._until

    async def give(self) -> None:
        """Let the loop turn once."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + LONGEST
