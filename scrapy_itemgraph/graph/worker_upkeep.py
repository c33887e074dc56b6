"""What a worker does for its crawl beside its own work: upkeep, and how far the run is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.graph.worker_reads import WorkerReads
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import tallies
from scrapy_itemgraph.store.registry import duties, runs, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.work import Remaining, TakenOver
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.duties import Duty, Round
    from scrapy_itemgraph.store.registry.runs import Run

logger = logs.logger(__name__)

_FEW = 8  # workers, who each do as if they were alone


class _Step(NamedTuple):
    """A transaction of a round: the duties left to the next one, and what it did.

    In the last one also the names of tasks that a later start declares otherwise, and of those of
    which there is newer code.
    """

    left: Sequence[Duty]
    done: Round
    redefined: frozenset[str] = frozenset()
    left_to_newer: frozenset[str] = frozenset()


class WorkerUpkeep(WorkerReads):
    """Keeps a crawl up, as one of its workers, with the tasks that this one has registered."""

    round_period = min(duty.period for duty in duties.OF_CRAWL)  # seconds between two rounds
    _started_at: datetime  # by the clock of the database
    run: Run
    process: OwnProcess

    def __init__(self, transactions: Transactions, settings: Settings) -> None:
        super().__init__(transactions)
        self.settings = settings
        self.is_start_told = False  # that the database was told of the end of `start()`
        self.is_sweeping = False
        self.staged = 0  # results that fell due
        self.suspects_wait = False  # there is work that must run alone
        self.workers = 1  # of the crawl that did not stop, as of the last look for the dead
        self._registration = stored_tasks.Registration(tasks={})
        self._outdated: set[str] = set()
        self._left: set[str] = set()  # tasks of which there is newer code

    @property
    def worker_id(self) -> int:
        """The number of this worker, as of its last registration."""
        return self.process.identity.id

    async def mark_started(self) -> None:
        """Note that `start()` came to its end; until then no worker finishes the run."""
        await self._call(workers.mark_started, self.worker_id)
        self.is_start_told = True

    async def finish_run(self) -> None:
        """Note that the run is over, so that the next start begins another one."""
        await self._call(runs.finish, self._crawl_id, self.run.number)

    async def remaining(self) -> Remaining:
        """Return what is left for this worker's tasks."""
        until = await self._due_until()

        def remaining(connection: Connection) -> Remaining:
            kinds = stored_claims.open_kinds(
                connection, self._crawl_id, self.worker_id, self._registration.tasks
            )
            numbers = [kind.id for kind in kinds]
            return runs.remaining(connection, self._crawl_id, kinds=numbers, until=until)

        return await self._call(remaining, hot=True)

    async def take_over(self) -> int:
        """Free what the crawl's dead and stalled workers had; return how many claims that were."""
        taken = await self._call(
            workers.take_over, self._crawl_id, self.worker_id, hot=True, share=True
        )
        return self._see_taken_over(taken)

    def _see_taken_over(self, taken: TakenOver) -> int:
        self.suspects_wait, self.workers = taken.suspects_wait, taken.workers
        startup_report.tell_given_up(taken.given_up)
        return taken.claims

    async def keep_up(self, told: Tallies | None = None) -> bool:
        """Do a round of the crawl's duties; tell whether there may be more work now.

        What the worker did since the last round is `told`, in the last of its transactions.
        """
        left: Sequence[Duty] = duties.OF_CRAWL
        has_more, is_done = False, False
        while not is_done:
            step = await self._call(self._round, left, told, hot=True, share=True)
            left, done = step.left, step.done
            has_more = has_more or bool(done.timers or done.due or done.is_sweeping)
            self.staged += done.due
            self.is_sweeping = done.is_sweeping
            if done.taken_over is not None:
                self._see_taken_over(done.taken_over)
            is_done = not left
            if is_done:
                self._say_what_is_outdated(step.redefined, step.left_to_newer)
        return has_more

    def _round(self, connection: Connection, due: Sequence[Duty], told: Tallies | None) -> _Step:
        """Do duties; in the last transaction of a round also tell what the worker did."""
        until = self._started_at if self.settings.run.idle == "close" else None
        done = duties.Round(crawl_id=self._crawl_id, worker_id=self.worker_id, until=until)
        left = duties.do(connection, due, done)
        if left:
            return _Step(left, done)
        redefined, newer = stored_tasks.outdated(
            connection, self.worker_id, self._registration.tasks
        )
        if told is not None and tallies.add(connection, self._crawl_id, told):
            runs.count(connection, self._crawl_id, self.run.number, [told])
        return _Step(left, done, redefined, newer)

    def _say_what_is_outdated(self, redefined: Collection[str], left: Collection[str]) -> None:
        for name in sorted(set(left) - self._left):
            logger.warning(
                "Failures of the task %r were handled with other code than this worker runs; it "
                "takes none of its work any more: restart it",
                name,
                extra={"action": "older_code"},
            )
        self._left = set(left)
        for name in set(redefined) - self._outdated:
            logger.warning(
                "A later start declares the task %r otherwise; this worker leaves it to that", name
            )
        self._outdated.update(redefined)

    async def _due_until(self) -> datetime:
        if self.settings.run.idle == "close":
            return self._started_at
        return await self._call(lambda connection: connection.scalar(engine.NOW))

    @property
    def crowd(self) -> float:
        """How many times as many workers share the crawl as may all look as often as one alone."""
        return max(1.0, self.workers / _FEW)
