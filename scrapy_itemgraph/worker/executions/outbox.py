"""Changesets of executions that ended, on their way to the committer."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.worker.executions.execution import Execution

_MOST_WAITING = 1000  # changesets, before whoever makes more of them is to wait
_MOST_OPERATIONS = 10_000  # that a batch of several changesets has


@dataclass(frozen=True, slots=True)
class Entry:
    """A changeset to commit; `where` names its work in the log, `execution` has none outside."""

    changeset: Changeset
    where: str
    execution: Execution | None = None

    @property
    def size(self) -> int:
        """How many operations and scraped items it has."""
        return len(self.changeset.operations) + len(self.changeset.scraped)


class Outbox:
    """Changesets that wait for a commit, first come first served.

    `added` is set while some wait; `hurried` when they are not to wait for more of them: a batch is
    there, nothing else is under way, or nothing is left to hand out.
    """

    def __init__(self, batch: int, hurried: asyncio.Event) -> None:
        """Take how many changesets at most are committed together."""
        self.added = asyncio.Event()
        self.hurried = hurried
        self.is_stopping = False
        self._batch = batch
        self._waiting: deque[Entry] = deque()
        self._taken = 0
        self._size = 0  # operations and scraped items, of those that wait
        self._drained = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many changesets are not committed yet."""
        return len(self._waiting) + self._taken

    @property
    def excess(self) -> int:
        """How many are not committed yet, beyond what is under way and the batch after it."""
        if self._size > _MOST_OPERATIONS:
            return len(self._waiting)
        return max(0, self.pending - 2 * self._batch)

    @property
    def has_batch(self) -> bool:
        """Whether as many wait as are committed together."""
        return len(self._waiting) >= self._batch or self._size >= _MOST_OPERATIONS

    def __bool__(self) -> bool:
        """Whether some wait that nobody has taken."""
        return bool(self._waiting)

    def put(self, entry: Entry, *, is_last: bool) -> None:
        """Add a changeset; after the last one nothing is under way that could bring others."""
        self._waiting.append(entry)
        self._size += entry.size
        self.added.set()
        if is_last or self.has_batch:
            self.hurried.set()

    def hurry(self) -> None:
        """Have what waits committed at once."""
        if self._waiting:
            self.hurried.set()

    def take(self) -> list[Entry]:
        """Take out the next batch; `settle` is to be called once it is known what became of it."""
        batch: list[Entry] = []
        size = 0
        while self._waiting and len(batch) < self._batch:
            more = self._waiting[0].size
            if batch and size + more > _MOST_OPERATIONS:
                break
            batch.append(self._waiting.popleft())
            size += more
        self._size -= size
        if not self._waiting:
            self.added.clear()
        self._taken = len(batch)
        return batch

    def settle(self, *, back: list[Entry]) -> None:
        """Take note that a batch is committed, or have it `back`, in its place, as it is not."""
        if back:
            self._waiting.extendleft(reversed(back))
            self._size += sum(entry.size for entry in back)
            self.added.set()
        self._taken = 0
        self._drained.set()

    async def wait_for_room(self) -> None:
        """Wait while a great many changesets wait, so that their maker does not run ahead."""
        while len(self._waiting) >= _MOST_WAITING and not self.is_stopping:
            self._drained.clear()
            await self._drained.wait()

    def stop(self) -> None:
        """Let nobody wait any more."""
        self.is_stopping = True
        self._drained.set()
        self.added.set()
        self.hurried.set()
