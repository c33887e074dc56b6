"""Coroutines: waiting for one of two, ending some, and turns of the event loop for the others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

T = TypeVar("T")

LONGEST_TURN = 0.01  # seconds of work between two turns of the event loop


async def either(event: asyncio.Event, other: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Wait until an event is set or something else ends, which is cancelled otherwise.

    It may end as it is cancelled; then its result counts as well.
    """
    own, others = asyncio.ensure_future(event.wait()), asyncio.ensure_future(other)
    try:
        await asyncio.wait({own, others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled([own, others])
    return others


async def cancelled(running: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class Turns:
    """Tells a long piece of work when the event loop should have its turn."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + LONGEST_TURN

    @property
    def is_due(self) -> bool:
        """Whether the work has gone on for so long that others should have their turn."""
        return time.perf_counter() >= self._until

    async def give(self) -> None:
        """Let the loop turn once."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + LONGEST_TURN
