"""Upkeep of a crawl by one of its workers, beside its own work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.store import tallies
from scrapy_itemgraph.store.registry import dead_processes, duties, runs, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import timers
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.worker_parts import Job, RegisteredTasks, WorkerRun
    from scrapy_itemgraph.graph.worker_rules import WorkerRules
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.work import TakenOver
    from scrapy_itemgraph.store.registry.duties import Duty, Round

logger = logs.logger(__name__)

_FEW = 8  # workers, who each do as if they were alone


class _Step(NamedTuple):
    """A transaction of a round: the duties left to the next one, and what it did.

    In the last one also the names of tasks that a later start declares otherwise, of those of
    which there is newer code, and in how many seconds something falls due.
    """

    left: Sequence[Duty]
    done: Round
    redefined: frozenset[str] = frozenset()
    left_to_newer: frozenset[str] = frozenset()
    next_due: float | None = None


class WorkerUpkeep:
    """Keeps a crawl up, as one of its workers, with the tasks that this one has registered.

    `staged` counts results that fell due, and `is_sweeping` tells that a sweep is open.
    `suspects_wait`: there is work that must run alone. As of the last look for the dead, `workers`
    counts those of the crawl that did not stop, `is_first` tells that this one is the oldest of
    them, and `others_work` that others have claims. `next_due`: in how many seconds something falls
    due, as of the last round of a worker that waits for work.
    """

    round_period = min(duty.period for duty in duties.OF_CRAWL)  # seconds between two rounds

    def __init__(
        self,
        transactions: Transactions,
        own: Identity,
        *,
        tasks: RegisteredTasks,
        run: WorkerRun,
        job: Job,
        rules: WorkerRules,
    ) -> None:
        self.is_sweeping = False
        self.staged = 0
        self.suspects_wait = False
        self.workers = 1
        self.is_first = True
        self.others_work = False
        self.next_due = math.inf
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._own = own
        self._tasks = tasks
        self._run = run
        self._job = job
        self._rules = rules

    async def take_over(self) -> int:
        """Free what the crawl's dead and stalled workers had; return how many claims that were."""
        taken = await self._call(
            dead_processes.take_over, self._crawl_id, self._own.id, hot=True, share=True
        )
        return self._see_taken_over(taken)

    def _see_taken_over(self, taken: TakenOver) -> int:
        self.suspects_wait, self.workers = taken.suspects_wait, taken.workers
        self.is_first, self.others_work = taken.is_first, taken.others_work
        self._job.see(taken.crawl_state)
        self._rules.see(taken.ruleset_id)
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
                self.next_due = math.inf if step.next_due is None else step.next_due
                self._say_what_is_outdated(step.redefined, step.left_to_newer)
        return has_more

    def _round(self, connection: Connection, due: Sequence[Duty], told: Tallies | None) -> _Step:
        """Do duties; in the last transaction of a round also tell what the worker did."""
        done = duties.Round(
            crawl_id=self._crawl_id,
            worker_id=self._own.id,
            run=self._run.number,
            until=self._run.until,
        )
        left = duties.do(connection, due, done)
        if left:
            return _Step(left, done)
        if not self._run.is_closed:
            closed_for = runs.closed_for(connection, self._crawl_id, self._run.number)
            if closed_for is not None:
                self._run.is_closed = True
                self._job.see_closed(closed_for)
        redefined, newer = stored_tasks.outdated(connection, self._own.id, self._tasks.tasks)
        if told is not None and tallies.add(connection, self._crawl_id, told):
            runs.count(connection, self._crawl_id, self._run.number, [told])
            if told.error is not None:
                workers.note_error(connection, self._own.id, told.error)
        waits = self._run.until is None
        next_due = timers.next_due(connection, self._crawl_id) if waits else None
        return _Step(left, done, redefined, newer, next_due)

    def _say_what_is_outdated(self, redefined: Collection[str], left: Collection[str]) -> None:
        for name in sorted(set(left) - self._tasks.left):
            logger.warning(
                "Failures of the task %r were handled with other code than this worker runs; it "
                "takes none of its work any more: restart it",
                name,
                extra={"action": "older_code"},
            )
        self._tasks.left = set(left)
        for name in set(redefined) - self._tasks.outdated:
            logger.warning(
                "A later start declares the task %r otherwise; this worker leaves it to that", name
            )
        self._tasks.outdated.update(redefined)

    @property
    def crowd(self) -> float:
        """How many times as many workers share the crawl as may all look as often as one alone."""
        return max(1.0, self.workers / _FEW)
