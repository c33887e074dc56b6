"""The data structure of both: entries that wait, by lane, so that a full lane holds up no other."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

L = TypeVar("L")
T = TypeVar("T")


class LaneQueues(Generic[L, T]):
    """A queue per lane, taken in turn; in a lane higher priority first, then first in first out.

    A lane is what requests have in common that decides when they may start.
    """

    def __init__(self) -> None:
        self._queues: dict[L, list[tuple[int, int, T]]] = {}
        self._size = 0
        self._order = count()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Go over what waits, in no order."""
        return (entry for queue in self._queues.values() for _, _, entry in queue)

    @property
    def lanes(self) -> Collection[L]:
        """The lanes in which something waits."""
        return self._queues.keys()

    def push(self, lane: L, entry: T, *, priority: int = 0) -> None:
        """Add an entry to a lane's queue."""
        queue = self._queues.setdefault(lane, [])
        heapq.heappush(queue, (-priority, next(self._order), entry))
        self._size += 1

    def pop(self, admits: Callable[[L], bool]) -> T | None:
        """Take the next entry of the first lane that lets one go, and send it to the back."""
        for lane in self._queues:
            if admits(lane):
                break
        else:
            return None
        queue = self._queues.pop(lane)
        _, _, entry = heapq.heappop(queue)
        if queue:
            self._queues[lane] = queue
        self._size -= 1
        return entry

    def drop(self, has: Callable[[L], bool]) -> list[T]:
        """Take out all that waits in the lanes that `has` tells."""
        gone = [lane for lane in self._queues if has(lane)]
        entries = [entry for lane in gone for _, _, entry in self._queues.pop(lane)]
        self._size -= len(entries)
        return entries
