"""Gathers the changesets of executions that ended, and commits them a transaction at a time."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import error_fingerprints
from scrapy_itemgraph.model.tallies import NO_TASK
from scrapy_itemgraph.model.work import NEW, UNMADE, Outcome
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import Turns, clear_gradually, happens

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from scrapy.statscollectors import StatsCollector

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.work import Applied
    from scrapy_itemgraph.tools.async_tools import Emptied
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.outbox import Entry, Outbox
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync

logger = logs.logger(__name__)

_LONGEST = 0.5  # seconds that one of many workers waits for a batch to fill

_STATS = {
    Outcome.OK: "committed",
    Outcome.RETRY: "retried",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
    Outcome.GONE: "gone",
    Outcome.KNOWN: "known",
    Outcome.UNCHANGED: "unchanged",
    Outcome.RELEASED: "released",
    Outcome.SKIPPED: "skipped",
    None: "lease_lost",
}

_FAILURES = {Outcome.FAILED, Outcome.REFUSED}


class StartTally:
    """Counts what became of what `start()` yielded, each of which is committed by itself."""

    def __init__(self) -> None:
        self._failed = 0
        self._last = ""
        self._is_any_stored = False

    def add(self, changeset: Changeset, applied: Applied) -> None:
        """Take note of a changeset's end, unless it is of a claim."""
        if changeset.claim is not None:
            return
        if applied.error is None:
            self._is_any_stored = True
            return
        self._failed += 1
        self._last = str(applied.error)

    @property
    def failure(self) -> str | None:
        """What to say where all of it was refused; None where something was stored."""
        if self._is_any_stored or not self._failed:
            return None
        return (
            f"Nothing of what start() yielded could be stored ({self._failed} failed, see above; "
            f"the last: {self._last})"
        )


@dataclass(slots=True, eq=False, repr=False)
class Committer:
    """Commits in batches: at once when nothing is left to hand out, else as they gather.

    While requests wait for the engine, changesets wait for others, up to `interval` seconds, and
    longer where many workers share the crawl, so that all together commit no more often.
    `before_commit` are awaited before each transaction, and `news` is set after it.
    """

    graph: WorkerGraph
    outbox: Outbox
    active: ActiveExecutions
    ready: ReadyRequests
    sessions: SessionSync
    callbacks: CallbackTasks
    enqueuer: Enqueuer
    news: asyncio.Event
    stats: StatsCollector
    tallies: Tallies
    interval: float
    before_commit: Sequence[Callable[[], Awaitable[None]]] = ()
    of_start: StartTally = field(default_factory=StartTally)

    async def run(self) -> None:
        """Commit until the outbox is stopped; never stops within a transaction."""
        outbox = self.outbox
        while not outbox.is_stopping:
            await outbox.added.wait()
            if not outbox.has_batch and self.active.under_way and self.ready:
                await happens(outbox.hurried, self.longest_wait)
            outbox.hurried.clear()
            await self._commit_next()

    @property
    def longest_wait(self) -> float:
        """How long to wait for a batch to fill, in seconds."""
        return min(self.interval * self.graph.upkeep.crowd, max(self.interval, _LONGEST))

    async def flush(self) -> None:
        """Commit everything that is there; `run` must have ended."""
        while self.outbox:
            await self._commit_next()

    async def feed_starved(self) -> None:
        """Put in flight what starts next where no other transaction did so in time."""
        while True:
            await self.ready.starved.wait()
            self.ready.starved.clear()
            in_flight = self.ready.begin_writing(is_starved=True)
            if in_flight is None:
                continue
            is_written = False
            try:
                await self.graph.commits.put_in_flight(in_flight)
                is_written = True
            finally:
                self.ready.end_writing(is_written=is_written)

    async def _commit_next(self) -> None:
        batch = self.outbox.take()
        if not batch:
            return
        back = batch
        try:
            applied, freed = await self._commit([entry.changeset for entry in batch])
            back = []
        finally:
            self.outbox.settle(back=back)
        counts: Counter[str] = Counter()
        gone: list[Emptied] = []
        for entry, result in zip(batch, applied, strict=True):
            made = await self._report_notes(entry.where, result, counts)
            self._tally(entry, result, made)
            self.of_start.add(entry.changeset, result)
            counts.update(_report(entry.changeset, entry.where, result))
            if entry.execution is not None:
                has_freed = self.graph.commits.names_freed != freed
                try:
                    await self.enqueuer.applied(entry.execution, result, has_freed=has_freed)
                except Exception:  # a handler of signals, or a user's duplicates filter
                    logger.exception("%s: after the commit", entry.where)
                gone += entry.execution.committed()
            gone += [list(entry.changeset.operations), list(result.notes)]
        for name, count in counts.items():
            self.stats.inc_value(f"itemgraph/{name}", count)
        self.news.set()
        turns = Turns()
        del entry
        batch.clear()
        if turns.is_due:
            await turns.give()
        del result, applied
        await clear_gradually(*gone)

    def _tally(self, entry: Entry, applied: Applied, made: int) -> None:
        claim, execution = entry.changeset.claim, entry.execution
        self.tallies.ended(
            NO_TASK if claim is None else claim.task_id,
            applied.outcome,
            seconds=0.0 if execution is None else execution.seconds,
            items=made,
        )
        error = applied.error or entry.changeset.error
        if claim is not None and error is not None and applied.outcome in _FAILURES:
            self.tallies.failures[error_fingerprints.of_error(claim.task_id, error)] += 1
        is_applied = applied.outcome is not None and applied.error is None
        if is_applied and execution is not None and not execution.is_doomed:
            self.tallies.long_links += execution.long_links

    async def _commit(
        self, changesets: Sequence[Changeset]
    ) -> tuple[Sequence[Applied], tuple[int, int]]:
        """Commit in one transaction; return what came of each, and `names_freed` before that."""
        new = self.callbacks.unregistered()
        if new:
            await self.graph.callbacks.register(new)
            self.callbacks.registered(new)
        for prepare in self.before_commit:
            await prepare()
        cookies, state = self.sessions.unsaved()
        freed = self.graph.commits.names_freed
        in_flight = self.ready.begin_writing()
        is_written = False
        try:
            result = await self.graph.commits.commit(
                changesets, cookies=cookies, state=state, in_flight=in_flight
            )
            is_written = result.is_written
        finally:
            if in_flight is not None:
                self.ready.end_writing(is_written=is_written)
        self.sessions.saved(cookies, state)
        return result.applied, freed

    async def _report_notes(self, where: str, applied: Applied, counts: Counter[str]) -> int:
        """Count what each operation did, and log it; the loop turns between many of them.

        Return how many items were made.
        """
        turns = Turns()
        made = 0
        is_logged = logs.is_heard(logger, logging.DEBUG)
        for note in applied.notes:
            counts[f"op/{note.operation}"] += 1
            made += note.label == NEW
            if is_logged:
                extra = {"action": "operation", "where": where}
                logger.debug("[%s] %s", note.label, note.shown, extra=extra)
            if turns.is_due:
                await turns.give()
        return made


def _report(changeset: Changeset, where: str, applied: Applied) -> Sequence[str]:
    """Log what became of a changeset, and return what is to be counted of it."""
    if applied.outcome is None:
        logger.warning(
            "%s: the claim was lost, so nothing of it was committed; "
            "whoever has it now does the work",
            where,
            extra={"action": "lease_lost"},
        )
        return [_STATS[None]]
    if changeset.claim is not None:
        _log_outcome(applied, changeset, where)
        return [_STATS.get(applied.outcome, str(applied.outcome))]
    if applied.error is not None:
        _log_outcome(applied, changeset, where)
    return []


def _log_outcome(applied: Applied, changeset: Changeset, where: str) -> None:
    is_quiet = applied.outcome not in {Outcome.FAILED, Outcome.REFUSED, Outcome.RETRY}
    if is_quiet and not logs.is_heard(logger, logging.DEBUG):
        return
    error = applied.error or changeset.error
    extra = {"action": str(applied.outcome), "where": where, "error": error and error.type}
    reason = str(error or "").rstrip(": ")
    if applied.outcome is Outcome.FAILED:
        # What went wrong in a plain callback or its download Scrapy has said itself, but not that a
        # stored request could not be made again: nothing of it came to Scrapy.
        is_said = changeset.is_of_callback and (error is None or error.type != UNMADE)
        level = logging.INFO if is_said else logging.ERROR
        logger.log(level, "[failed] %s: %s", where, reason, extra=extra)
    elif applied.outcome is Outcome.REFUSED:
        logger.info("[refused] %s: %s", where, reason, extra=extra)
    elif applied.outcome is Outcome.RETRY:
        seconds = changeset.delay.total_seconds() if changeset.delay else 0
        logger.info("[retry] %s in %.0f s: %s", where, seconds, reason, extra=extra)
    else:
        logger.debug("[%s] %s", applied.outcome, where, extra=extra)
