"""Gathers the changesets of executions that ended, and commits them a transaction at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.types import Outcome
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scrapy.statscollectors import StatsCollector

    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.types import Applied

logger = logs.logger(__name__)

_STATS = {
    Outcome.OK: "committed",
    Outcome.RETRY: "retried",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
    Outcome.RELEASED: "released",
}


_MOST_WAITING = 1000
_Waiting = tuple["Changeset", str, "Callable[[Applied], Awaitable[None]] | None"]


class Committer:
    """Batches changesets: at once when nothing else is under way, else as they gather."""

    def __init__(
        self,
        commit: Callable[[Sequence[Changeset]], Awaitable[list[Applied]]],
        *,
        stats: StatsCollector,
        batch: int,
        interval: float,
        is_quiet: Callable[[], bool],
        on_commit: Callable[[Sequence[Applied]], None],
    ) -> None:
        self._commit = commit
        self._stats = stats
        self._batch = batch
        self._interval = interval
        self._is_quiet = is_quiet
        self._on_commit = on_commit
        self._waiting: deque[_Waiting] = deque()
        self._committing = 0
        self._added = asyncio.Event()
        self._full = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_stopping = False

    @property
    def pending(self) -> int:
        """How many changesets are not committed yet."""
        return len(self._waiting) + self._committing

    def add(
        self,
        changeset: Changeset,
        where: str,
        then: Callable[[Applied], Awaitable[None]] | None = None,
    ) -> None:
        """Take a changeset; `where` names its work in the log, `then` learns what became of it."""
        self._waiting.append((changeset, where, then))
        self._added.set()
        if len(self._waiting) >= self._batch or self._is_quiet():
            self._full.set()

    async def wait_for_room(self) -> None:
        """Wait while a great many changesets wait, so that their maker does not run ahead."""
        while len(self._waiting) >= _MOST_WAITING and not self._is_stopping:
            self._drained.clear()
            await self._drained.wait()

    def nudge(self) -> None:
        """Commit what is there at once if nothing else is under way any more."""
        if self._waiting and self._is_quiet():
            self._full.set()

    async def run(self) -> None:
        """Commit until told to stop; never stops within a transaction."""
        while not self._is_stopping:
            await self._added.wait()
            if len(self._waiting) < self._batch and not self._is_quiet():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), self._interval)
            self._full.clear()
            await self._commit_next()

    def stop(self) -> None:
        """Make `run` end after the transaction under way."""
        self._is_stopping = True
        self._drained.set()
        self._added.set()
        self._full.set()

    async def flush(self) -> None:
        """Commit everything that is there; `run` must have ended."""
        while self._waiting:
            await self._commit_next()

    async def _commit_next(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
        if not self._waiting:
            self._added.clear()
        if not batch:
            return
        self._committing = len(batch)
        try:
            applied = await self._commit([changeset for changeset, *_ in batch])
        except BaseException:
            self._waiting.extendleft(reversed(batch))
            self._added.set()
            raise
        finally:
            self._committing = 0
            self._drained.set()
        for (changeset, where, then), result in zip(batch, applied, strict=True):
            await self._report_notes(where, result)
            self._report(changeset, where, result)
            if then is not None:
                try:
                    await then(result)
                except Exception:  # a handler of signals, or a user's duplicates filter
                    logger.exception("%s: after the commit", where)
        self._on_commit(applied)

    async def _report_notes(self, where: str, applied: Applied) -> None:
        """Count what each operation did, and log it; the loop turns between many of them."""
        turns = Turns()
        is_logged = logs.is_heard(logger, logging.DEBUG)
        counts: Counter[str] = Counter()
        for note in applied.notes:
            counts[note.operation] += 1
            if is_logged:
                extra = {"action": "operation", "where": where}
                logger.debug("[%s] %s", note.label, note.shown, extra=extra)
            if turns.is_due:
                await turns.give()
        for operation, count in counts.items():
            self._count(f"op/{operation}", count)

    def _report(self, changeset: Changeset, where: str, applied: Applied) -> None:
        if applied.outcome is None:
            self._count("lease_lost")
            logger.warning(
                "%s: the claim was lost, so nothing of it was committed; "
                "whoever has it now does the work",
                where,
                extra={"action": "lease_lost"},
            )
        elif changeset.claim is not None:
            self._count(_STATS.get(applied.outcome, str(applied.outcome)))
            _log_outcome(applied, changeset, where)
        elif applied.error is not None:
            _log_outcome(applied, changeset, where)

    def _count(self, name: str, count: int = 1) -> None:
        self._stats.inc_value(f"itemgraph/{name}", count)


def _log_outcome(applied: Applied, changeset: Changeset, where: str) -> None:
    error: dict[str, Any] = applied.error or changeset.error or {}
    extra = {"action": str(applied.outcome), "where": where, "error": error.get("type")}
    reason = f"{error.get('type', '')}: {error.get('message', '')}".rstrip(": ")
    if applied.outcome is Outcome.FAILED:
        # What went wrong in a plain callback or its download Scrapy has said itself.
        level = logging.INFO if changeset.is_of_callback else logging.ERROR
        logger.log(level, "[failed] %s: %s", where, reason, extra=extra)
    elif applied.outcome is Outcome.REFUSED:
        logger.info("[refused] %s: %s", where, reason, extra=extra)
    elif applied.outcome is Outcome.RETRY:
        seconds = changeset.delay.total_seconds() if changeset.delay else 0
        logger.info("[retry] %s in %.0f s: %s", where, seconds, reason, extra=extra)
    else:
        logger.debug("[%s] %s", applied.outcome, where, extra=extra)
