"""Waiting for one of two things, and for tasks that are cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

T = TypeVar("T")


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
