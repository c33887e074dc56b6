"""Has the contents of blobs stored before the changesets that name them are committed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from scrapy_itemgraph.exceptions import BlobStoreError, OperationError
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.outbox import Entry, Outbox

logger = logs.logger(__name__)
T = TypeVar("T")

_MOST = 25  # changesets whose contents are announced together
_GROUPS = 4  # of them that are under way at once: a slow one holds up no others
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds, while the store cannot be written
_LOOK = 0.2  # seconds
_COLLECT_EVERY = 600.0  # seconds
_MOST_HELD = 100  # changesets that wait in the process meanwhile
_MOST_HELD_BYTES = 64_000_000  # of their contents in memory
_LEAST_DELAY, _LONGEST_DELAY = 30.0, 600.0  # seconds, of work that is given back meanwhile


@dataclass(slots=True, eq=False, repr=False)
class ContentWriter:
    """Takes changesets with contents from the outbox, and puts them back when these are stored.

    A store that cannot be written is waited for, up to `patience` seconds, by some of them; work
    beyond these is tried again later, so that all else goes on. What belongs to no work cannot be:
    if the store stays away for longer, the crawl ends. `start_task` starts a coroutine whose error
    ends the crawl.
    """

    graph: WorkerGraph
    outbox: Outbox
    active: ActiveExecutions
    start_task: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    patience: float
    _groups: set[asyncio.Task[None]] = field(default_factory=set)
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _held: set[Entry] = field(default_factory=set)
    _away_since: float | None = None  # time.monotonic() of when the store was found away

    async def run(self) -> None:
        """Have contents stored, until cancelled; groups under way go on then."""
        while True:
            await self.outbox.unstored.wait()
            if len(self._groups) < _GROUPS or (self._is_away and self._has_room):
                self._start()
                continue
            if self._is_away:
                self._postpone(self.outbox.take_unstored(_MOST, are_claimed=True))
            await asyncio.wait(self._groups, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)

    async def patiently(self, store: Callable[[], Awaitable[T]]) -> T:
        """Return what a function returns; again while it says that the store cannot be written.

        Raises:
            BlobStoreError: the store has been away for longer than the patience.

        """
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                result = await store()
            except BlobStoreError as error:
                if time.monotonic() - began >= self.patience:
                    raise self._too_long(error) from None
                self._say_once_that_we_wait(error)
                await asyncio.sleep(min(pause, self.patience))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._say_that_it_is_back()
                return result

    async def collect(self) -> None:
        """Delete what nobody has named for a day, now and then."""
        while True:
            has_more = await self.graph.contents.collect()
            await asyncio.sleep(0 if has_more else _COLLECT_EVERY)

    async def finish(self) -> None:
        """Have stored what is left; give back what cannot be."""
        self._closing.set()
        while self._groups or self.outbox.unstored.is_set():
            while self.outbox.unstored.is_set() and len(self._groups) < _GROUPS:
                self._start()
            await asyncio.wait(self._groups, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _is_away(self) -> bool:
        return self._away_since is not None

    @property
    def _has_room(self) -> bool:
        """Whether more may wait in the process for a store that is away."""
        if len(self._held) >= _MOST_HELD:
            return False
        attached = [one for entry in self._held for one in entry.changeset.attached]
        held: int = sum(one.content.weight for one in attached)
        return held < _MOST_HELD_BYTES

    def _start(self) -> None:
        taken = self.outbox.take_unstored(_MOST)
        claimed = [one for one in taken if one.changeset.claim is not None]
        others = [one for one in taken if one.changeset.claim is None]
        for entries, store in ((claimed, self._store), (others, self._store_in_order)):
            if entries:
                group = self.start_task(store(entries))
                self._groups.add(group)
                self._held.update(entries)
                group.add_done_callback(self._groups.discard)

    async def _store_in_order(self, entries: Sequence[Entry]) -> None:
        """Store what belongs to no execution, one group after the other."""
        async with self._in_order:
            for number, entry in enumerate(entries):
                try:
                    await self._store([entry])
                except BlobStoreError:
                    for later in entries[number:]:
                        self._lose(later)
                    raise

    async def _store(self, entries: Sequence[Entry]) -> None:
        """Store the contents of some changesets, and put these back.

        Raises:
            BlobStoreError: the store was away for too long for what belongs to no execution.

        """
        readable = [entry for entry in entries if await self._is_readable(entry)]
        began, pause = time.monotonic(), _FIRST_PAUSE
        while readable:
            try:
                await self._try(readable)
            except BlobStoreError as error:
                for entry in readable:
                    if entry.is_stored and entry in self._held:
                        self._put(entry, entry.changeset)
                self._say_once_that_we_wait(error)
                is_over = time.monotonic() - began > self.patience
                readable = self._given_up(readable, error, is_over=is_over)
                if readable and is_over:
                    raise BlobStoreError(f"{readable[0].where}: {self._too_long(error)}") from None
                if not readable:
                    return
                await happens(self._closing, pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._say_that_it_is_back()
                return

    async def _is_readable(self, entry: Entry) -> bool:
        """Measure the contents of a changeset, which fails if one of them cannot be had."""
        try:
            await self.graph.contents.measure([one.content for one in entry.changeset.attached])
        except OperationError as error:
            self._fail(entry, error)
            return False
        return True

    async def _try(self, entries: Sequence[Entry]) -> None:
        contents = [one.content for entry in entries for one in entry.changeset.attached]
        try:
            await self.graph.contents.store(contents)
        except OperationError as error:  # a file was changed, or is gone
            if len(entries) > 1:
                for entry in entries:
                    await self._try([entry])
                return
            self._fail(entries[0], error)
            return
        for entry in entries:
            self._put(entry, entry.changeset)

    def _given_up(
        self, entries: Sequence[Entry], error: BlobStoreError, *, is_over: bool
    ) -> list[Entry]:
        """Give back what is not waited for any longer; return what is."""
        # What an attempt that failed for another one put back is not ours any more.
        left = [entry for entry in entries if entry in self._held]
        if self._closing.is_set():
            for entry in left:
                if entry.changeset.claim is None:
                    logger.error("%s: %s; it is lost", entry.where, error)
                self._lose(entry)
            return []
        if is_over:
            self._postpone([one for one in left if one.changeset.claim is not None], error)
            return [one for one in left if one.changeset.claim is None]
        return left

    def _postpone(self, entries: Sequence[Entry], error: BlobStoreError | None = None) -> None:
        """Have work tried again later."""
        if not entries:
            return
        error = error or BlobStoreError("the blob store cannot be written for now")
        away = time.monotonic() - (self._away_since or time.monotonic())
        delay = timedelta(seconds=min(max(away, _LEAST_DELAY), _LONGEST_DELAY))
        for entry in entries:
            record = ErrorRecord.of(error)
            self._put(entry, _without(entry.changeset, Outcome.RETRY, record, delay))

    def _fail(self, entry: Entry, error: OperationError) -> None:
        """Let a changeset fail whose content cannot be had."""
        if entry.changeset.claim is None:
            logger.error("%s: %s", entry.where, error, extra={"action": "failed"})
        record = ErrorRecord(type=type(error).__name__, message=f"AttachBlob: {error}")
        self._put(entry, _without(entry.changeset, Outcome.FAILED, record))

    def _lose(self, entry: Entry) -> None:
        """Commit nothing of a changeset; work is given back."""
        self._put(entry, _without(entry.changeset, Outcome.RELEASED))

    def _too_long(self, error: BlobStoreError) -> BlobStoreError:
        waited = wording.format_period(self.patience)
        return BlobStoreError(f"{error}. It was waited for {waited} (ITEMGRAPH_PATIENCE)")

    def _put(self, entry: Entry, changeset: Changeset) -> None:
        self._held.discard(entry)
        is_last = not self.active.under_way
        self.outbox.put_stored(entry, changeset, is_last=is_last)

    def _say_once_that_we_wait(self, error: BlobStoreError) -> None:
        if not self._is_away:
            self._away_since = time.monotonic()
            patience = wording.format_period(self.patience)
            logger.warning(
                "%s. What attaches blobs waits for it up to %s (ITEMGRAPH_PATIENCE), or is tried "
                "again later; all else goes on",
                error,
                patience,
                extra={"action": "blob_store_gone"},
            )

    def _say_that_it_is_back(self) -> None:
        if self._is_away:
            self._away_since = None
            logger.info("The blob store is back", extra={"action": "blob_store_back"})


def _without(
    changeset: Changeset,
    outcome: Outcome,
    error: ErrorRecord | None = None,
    delay: timedelta | None = None,
) -> Changeset:
    """Return a changeset that ends otherwise, and changes nothing."""
    return replace(
        changeset,
        operations=(),
        outcome=outcome if changeset.claim is not None else Outcome.OK,
        error=error,
        delay=delay,
        allow_failure=False,
        scraped=(),
        attached=(),
    )
