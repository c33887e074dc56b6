"""Requests that wait in memory, by slot, so that a full slot does not hold up the others."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class Buffer(Generic[T]):
    """A queue per slot, taken in turn; within a slot higher priority first, then first in."""

    def __init__(self) -> None:
        self._queues: dict[str, list[tuple[int, int, T]]] = {}
        self._size = 0
        self._order = count()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Go over what waits, in no order."""
        return (entry for queue in self._queues.values() for _, _, entry in queue)

    def push(self, slot: str, entry: T, *, priority: int = 0) -> None:
        """Add an entry to a slot's queue."""
        queue = self._queues.setdefault(slot, [])
        heapq.heappush(queue, (-priority, next(self._order), entry))
        self._size += 1

    def pop(self, has_room: Callable[[str], bool]) -> tuple[str, T] | None:
        """Take the next entry of the first slot that has room, and send that slot to the back."""
        for slot in self._queues:
            if has_room(slot):
                break
        else:
            return None
        queue = self._queues.pop(slot)
        _, _, entry = heapq.heappop(queue)
        if queue:
            self._queues[slot] = queue
        self._size -= 1
        return slot, entry


class Slots:
    """How many fetches each slot has under way, against how many it may have."""

    def __init__(self, limit_of: Callable[[str], int]) -> None:
        self._limit_of = limit_of
        self._running: Counter[str] = Counter()

    def has_room(self, slot: str) -> bool:
        """Tell whether one more fetch may start; work without a download has no slot."""
        if not slot:
            return True
        limit = self._limit_of(slot)
        return limit <= 0 or self._running[slot] < limit

    def take(self, slot: str) -> None:
        """Count a fetch that starts."""
        self._running[slot] += 1

    def free(self, slot: str) -> None:
        """Count a fetch that ended."""
        self._running[slot] -= 1
        if not self._running[slot]:
            del self._running[slot]
