"""Changesets of executions that ended, on their way to the committer."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.executions.execution import Execution

_MOST_WAITING = 1000  # changesets, before whoever makes more of them is to wait
_MOST_OPERATIONS = 10_000  # that a batch of several changesets has
_BYTES = 10_000  # of blobs' contents in memory, that count as one of them


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A changeset to commit; `where` names its work in the log, `execution` has none outside."""

    changeset: Changeset
    where: str
    execution: Execution | None = None

    @property
    def size(self) -> int:
        """How many operations and scraped items it has, with contents in memory counted too."""
        size = len(self.changeset.operations) + len(self.changeset.scraped)
        if self.changeset.attached:
            size += sum(one.content.weight for one in self.changeset.attached) // _BYTES
        return size

    @property
    def is_stored(self) -> bool:
        """Whether all contents that it names are in a store."""
        return all(one.content.number is not None for one in self.changeset.attached)


class Outbox:
    """Changesets that wait for a commit, first come first served.

    `added` is set while some wait; `hurried` when they are not to wait for more of them: a batch is
    there, nothing else is under way, or nothing is left to hand out.

    What has contents to be stored waits apart for the content writer, `unstored` being set then,
    and is put again when they are. Behind what belongs to no execution all else of that kind waits,
    too, so that it is committed in its order.
    """

    def __init__(self, batch: int) -> None:
        """Take how many changesets at most are committed together."""
        self.added = asyncio.Event()
        self.unstored = asyncio.Event()
        self.hurried = asyncio.Event()
        self.is_stopping = False
        self._batch = batch
        self._waiting: deque[Entry] = deque()
        self._taken: list[Entry] = []
        self._size = 0  # operations and scraped items, of those that wait
        self._drained = asyncio.Event()
        self._unstored: deque[Entry] = deque()
        self._storing: set[Entry] = set()

    @property
    def pending(self) -> int:
        """How many changesets are not committed yet."""
        taken = len(self._taken)
        return len(self._waiting) + taken + len(self._unstored) + len(self._storing)

    @property
    def claims(self) -> Iterator[Claim]:
        """The claims that are not ended in the database yet, as far as is known."""
        every = (self._waiting, self._taken, self._unstored, self._storing)
        claims = (entry.changeset.claim for entries in every for entry in entries)
        return (claim for claim in claims if claim is not None)

    @property
    def excess(self) -> int:
        """How many are not committed yet, beyond what is under way and the batch after it."""
        if self._size + self._unstored_size > _MOST_OPERATIONS:
            return self.pending - len(self._taken)
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
        if not entry.is_stored or (entry.execution is None and self._waits_in_order):
            self._unstored.append(entry)
            self.unstored.set()
            return
        self._add(entry, is_last=is_last)

    def _add(self, entry: Entry, *, is_last: bool) -> None:
        self._waiting.append(entry)
        self._size += entry.size
        self.added.set()
        if is_last or self.has_batch:
            self.hurried.set()

    @property
    def _unstored_size(self) -> int:
        if not (self._unstored or self._storing):
            return 0
        return sum(entry.size for entry in (*self._unstored, *self._storing))

    @property
    def _waits_in_order(self) -> bool:
        """Whether something that belongs to no execution waits to be stored."""
        if not (self._unstored or self._storing):
            return False
        return any(entry.execution is None for entry in (*self._unstored, *self._storing))

    def take_unstored(self, most: int, *, are_claimed: bool = False) -> list[Entry]:
        """Take out up to `most` that have contents to be stored, for `put_stored`; or claims'."""
        taken = [
            entry
            for entry in self._unstored
            if entry.changeset.claim is not None or not are_claimed
        ][:most]
        self._storing.update(taken)
        self._unstored = deque(entry for entry in self._unstored if entry not in self._storing)
        if not self._unstored:
            self.unstored.clear()
        return taken

    def put_stored(self, entry: Entry, changeset: Changeset, *, is_last: bool) -> None:
        """Have a changeset committed that was taken to be stored, in the form that it has now."""
        self._storing.discard(entry)
        self._add(replace(entry, changeset=changeset), is_last=is_last)

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
        self._taken = list(batch)
        return batch

    def settle(self, *, back: list[Entry]) -> None:
        """Take note that a batch is committed, or have it `back`, in its place, as it is not."""
        if back:
            self._waiting.extendleft(reversed(back))
            self._size += sum(entry.size for entry in back)
            self.added.set()
        self._taken = []
        self._drained.set()

    async def wait_for_room(self) -> None:
        """Wait while a great many changesets wait, so that their maker does not run ahead."""
        while len(self._waiting) + len(self._unstored) >= _MOST_WAITING and not self.is_stopping:
            self._drained.clear()
            await self._drained.wait()

    def stop(self) -> None:
        """Let nobody wait any more."""
        self.is_stopping = True
        self._drained.set()
        self.added.set()
        self.hurried.set()
