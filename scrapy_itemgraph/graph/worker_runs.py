"""The run that a worker takes part in: how far it is, and what the worker leaves behind in it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import tallies
from scrapy_itemgraph.store.registry import crawl_ends, left_sweeps, runs, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.worker_callbacks import WorkerCallbacks
    from scrapy_itemgraph.graph.worker_job import WorkerJob
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import Outdated
    from scrapy_itemgraph.model.work import Remaining
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.runs import Run


logger = logs.logger(__name__)

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)  # when no result had fallen due
_STEP = 0.01  # seconds between two looks at what another process may be holding


class WorkerRuns:
    """The run of one worker; `is_start_told`: the database knows that `start()` has ended.

    `is_closed`: the spider has closed it, of this process or of another. `has_left`: there are
    pages that were left by such a run, which links free.
    """

    def __init__(
        self,
        transactions: Transactions,
        settings: Settings,
        own: Identity,
        callbacks: WorkerCallbacks,
        run: Run,
        *,
        job: WorkerJob,
    ) -> None:
        self.run = run
        self.is_resumed = run.started_at < own.started_at
        self.is_start_told = False
        self.is_closed = False
        self.has_left = False
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._settings = settings
        self._own = own
        self._callbacks = callbacks
        self._job = job
        self._started_at = own.started_at

    @property
    def is_over(self) -> bool:
        """Whether all of it was over when this worker began."""
        return self.run.is_over

    @property
    def is_continued(self) -> bool:
        """Whether it had come to its end, and work opened it again."""
        return self.run.is_continued

    @property
    def number(self) -> int:
        """The number of the run, from 1."""
        return self.run.number

    @property
    def until(self) -> datetime | None:
        """When results must have fallen due that become work; None: now."""
        if self.run.is_continued:
            return _LONG_AGO
        return self._started_at if self._settings.run.idle == "close" else None

    async def mark_started(self) -> None:
        """Note that `start()` came to its end; until then no worker finishes the run."""
        await self._call(workers.mark_started, self._own.id, hot=True)
        self.is_start_told = True

    async def finish(self) -> bool:
        """Note that the run is over, so that the next start begins another one.

        With it a crawl that people steer comes to its end. False where others commit to that just
        now: look again.
        """
        if not self._job.is_steered:
            await self._call(runs.finish, self._crawl_id, self.number, hot=True)
            return True

        def finish(connection: Connection) -> bool:
            until: datetime = self.until or _now(connection)
            return crawl_ends.finish(
                connection, self._crawl_id, self.number, worker_id=self._own.id, until=until
            )

        return await self._call(finish, hot=True)

    async def close(self, reason: str) -> None:
        """Note that the spider has closed the run: it ends for all, and the next start is new."""
        self.is_closed = True
        await self._call(
            crawl_ends.close,
            self._crawl_id,
            self.number,
            reason,
            worker_id=self._own.id,
            incremental=self._settings.results.incremental_callbacks,
        )

    async def hold_left(self) -> None:
        """Hold pages that earlier runs left when their spider closed them; before any claim.

        A run that work has opened again may have left something itself.
        """
        before = self.number + self.run.is_continued
        with Progress("Holding what the spider left", "steps", _log) as progress:
            while await self._hold_left(before):
                progress.reach(progress.done + 1)
                await asyncio.sleep(_STEP)
        self.has_left = await self._call(left_sweeps.has_left, self._crawl_id, hot=True)

    async def hold_own(self) -> None:
        """Have held what this run has left, if this worker was the last one in it."""
        with Progress("Holding what the spider left", "steps", _log) as progress:
            while await self._hold_left(self.number + 1, alone=True):
                progress.reach(progress.done + 1)

    async def _hold_left(self, before: int, *, alone: bool = False) -> bool:
        def step(connection: Connection) -> bool:
            if alone and connection.scalar(runs.OTHERS_LIVE, {"crawl": self._crawl_id}):
                return False
            return left_sweeps.do_step(connection, self._crawl_id, before=before)

        return await self._call(step, hot=True, share=True)

    async def remaining(self) -> Remaining:
        """Return what is left for this worker's tasks."""

        def remaining(connection: Connection) -> Remaining:
            kinds = stored_claims.open_kinds(
                connection, self._crawl_id, self._own.id, self._callbacks.tasks
            )
            numbers = [kind.id for kind in kinds]
            until = self.until or _now(connection)
            return runs.remaining(connection, self._crawl_id, kinds=numbers, until=until)

        return await self._call(remaining, hot=True)

    def kept(self, outdated: Sequence[Outdated]) -> list[Outdated]:
        """Return what stays as older code made it: not the pages that a new run fetches again."""
        incremental = self._settings.results.incremental_callbacks
        if self.is_resumed or incremental is None:
            return list(outdated)
        return [one for one in outdated if not one.is_callback or one.task in incremental]

    def leave(
        self, connection: Connection, reason: str, told: Sequence[Tallies], error: str | None
    ) -> None:
        """Note why the worker ends, by which error, and what it did and has not told yet."""
        new = [some for some in told if tallies.add(connection, self._crawl_id, some)]
        runs.leave(connection, self._crawl_id, self.number, reason=reason, error=error)
        runs.count(connection, self._crawl_id, self.number, new)
        for last in [some.error for some in new if some.error][-1:]:
            workers.note_error(connection, self._own.id, last)


def _log(line: str) -> None:
    logger.info("%s", line, extra={"action": "progress"})


def _now(connection: Connection) -> datetime:
    now: datetime = connection.execute(engine.NOW).scalar_one()
    return now
