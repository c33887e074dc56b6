"""Coroutines: waiting for one of two, ending some, turns of the event loop; its last signals."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Coroutine,
        Iterable,
        Iterator,
        MutableSequence,
        MutableSet,
        Sequence,
    )

    Emptied = MutableMapping[Any, Any] | MutableSequence[Any] | MutableSet[Any]

T = TypeVar("T")

LONGEST_TURN = 0.01  # seconds of work between two turns of the event loop
_PART = 4000  # values that are let go of at once


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


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so many seconds at most; tell whether it is set.

    `asyncio.wait_for` of Python 3.11 takes no notice of a cancellation at the moment at which the
    event is set.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def cancelled(running: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGINT from now on, at the end of what they would end.

    Python writes to standard error of one that comes while an event loop with handlers closes.
    """
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)


def emptying(container: Emptied) -> Iterator[None]:
    """Empty a container of a great many values, and yield after each part of them.

    Python frees what nothing else refers to at once, which takes long where it is much. A small
    container stays as it is: it may go with its owner.
    """
    if len(container) <= _PART:
        return
    take = container.popitem if isinstance(container, MutableMapping) else container.pop
    while container:
        for _ in range(min(_PART, len(container))):
            take()
        yield


async def clear_gradually(*containers: Emptied) -> None:
    """Empty large containers, and yield to the event loop meanwhile; small ones stay."""
    turns = Turns()
    for container in containers:
        for _ in emptying(container):
            if turns.is_due:
                await turns.give()


class Turns:
    """Tells a long piece of work when the event loop should have its turn."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Take note that the loop has turned."""
        self._until = time.perf_counter() + LONGEST_TURN

    @property
    def is_due(self) -> bool:
        """Whether the work has gone on for so long that others should have their turn."""
        return time.perf_counter() >= self._until

    async def give(self) -> None:
        """Let the loop turn once."""
        await asyncio.sleep(0)
        self.begin()

    async def within(self, given: Iterable[T]) -> AsyncIterator[T]:
        """Yield values, and let the loop turn meanwhile."""
        for one in given:
            if self.is_due:
                await self.give()
            yield one
