"""The run that a worker takes part in: how far it is, and what the worker leaves behind in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import tallies
from scrapy_itemgraph.store.registry import crawl_ends, runs, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

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


class WorkerRuns:
    """The run of one worker; `is_start_told`: the database knows that `start()` has ended."""

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
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._settings = settings
        self._own = own
        self._callbacks = callbacks
        self._job = job
        self._started_at = own.started_at

    @property
    def number(self) -> int:
        """The number of the run, from 1."""
        return self.run.number

    @property
    def until(self) -> datetime | None:
        """When results must have fallen due that become work; None: now."""
        return self._started_at if self._settings.run.idle == "close" else None

    async def mark_started(self) -> None:
        """Note that `start()` came to its end; until then no worker finishes the run."""
        await self._call(workers.mark_started, self._own.id)
        self.is_start_told = True

    async def finish(self) -> bool:
        """Note that the run is over, so that the next start begins another one.

        With it a crawl that people steer comes to its end. False where others commit to that just
        now: look again.
        """
        if not self._job.is_steered:
            await self._call(runs.finish, self._crawl_id, self.number)
            return True

        def finish(connection: Connection) -> bool:
            until: datetime = self.until or _now(connection)
            return crawl_ends.finish(
                connection, self._crawl_id, self.number, worker_id=self._own.id, until=until
            )

        return await self._call(finish, hot=True)

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


def _now(connection: Connection) -> datetime:
    now: datetime = connection.execute(engine.NOW).scalar_one()
    return now
