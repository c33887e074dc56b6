"""The graph of a simulation: one claim, whose commit is undone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.contents.transfer import WorkerContents
from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.graph import simulated_changes
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.work import (
    Applied,
    ClaimResult,
    CommitResult,
    RedirectAnswer,
    Remaining,
)
from scrapy_itemgraph.store.admin import crawl_lists
from scrapy_itemgraph.store.registry import crawl_starts, crawls, runs, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.model.crawl_arguments import CrawlStart
    from scrapy_itemgraph.model.limits import Use
    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.model.simulations import Simulation, SimulationPlan
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim, ClaimBudget, Pair, Redirect

# A crawl that was made for the simulation's worker alone, which goes with it.
DROP_CRAWL = text("""
    DELETE FROM crawls c WHERE c.id = :crawl
        AND NOT EXISTS (SELECT FROM tasks t WHERE t.crawl_id = c.id)
        AND NOT EXISTS (SELECT FROM items i WHERE i.crawl_id = c.id)
        AND NOT EXISTS (SELECT FROM processes p WHERE p.crawl_id = c.id AND p.id <> :worker)
""")


class _SimulatedContents(WorkerContents):
    """Contents of a simulation: they are looked at, and written nowhere."""

    async def store(self, contents: Sequence[Content]) -> None:
        """Find out what is to be known of contents."""
        await self.measure(contents)
        for one in contents:
            one.number = 0  # its row is made in the transaction that is undone


class SimulationGraph(WorkerGraph):
    """What a worker sees that simulates one execution: it has limits like any other, and no claim.

    Limits, what sites answer to them, and the worker's own row are written. All else is undone,
    or not done: `simulation` has what it came to.
    """

    def __init__(self, *args: Any, plan: SimulationPlan, **options: Any) -> None:
        super().__init__(*args, **options)
        self.simulation: Simulation | None = None
        self._plan = plan
        self._claim: Claim | None = None
        self._has_made_crawl = False
        self._met: dict[str, Task] = {}
        self.commit = self._simulate
        self.contents = _SimulatedContents(self._transactions, self.settings.records.blobs)
        self.put_in_flight = self._put_nothing

    async def _register(
        self,
        start: CrawlStart,
        tasks: Mapping[str, Task],
        callback_names: Collection[str],  # noqa: ARG002 - a start's
    ) -> None:
        await self._ensure_schema()
        known, crawl = await self._call(crawl_starts.look, start)
        self._take_crawl(0)
        self._code = simulated_changes.Code(
            crawl=crawl,
            spider=self._spider,
            tasks=tasks,
            default_ttl=self.settings.results.default_ttl,
            of_callback=self._of_callback,
            limits_of=self.limits.of_task,
            of_all=self.limits.of_all,
        )
        if self._plan.given:
            await self._call(simulated_changes.lay, self._plan, self._code)
        prepared = await self._undone(
            partial(simulated_changes.look, plan=self._plan, code=self._code)
        )
        assert isinstance(prepared, simulated_changes.Prepared)
        self._claim = prepared.claim
        self.callbacks = set(prepared.callbacks)
        self._has_made_crawl = known is None
        crawl_id = await self._call(crawls.make_crawl, crawl)
        self._take_crawl(crawl_id)
        await self.limits.number({prepared.claim.task_id: self._code.task(self._plan.task)})
        await self.process.register(self._register_process)
        self._started_at = self.process.identity.started_at
        self.run = runs.Run(1, self._started_at)
        self.is_resumed = False
        await self._call(workers.mark_started, self.worker_id)  # no run waits for it
        await self._begin_to_live()

    async def _undone(self, function: Callable[[Connection], None]) -> Any:
        """Run a function that ends its transaction by an UndoneError, and return what it found."""

        def within(connection: Connection) -> None:
            try:
                function(connection)
            except DBAPIError as error:  # others' transactions would be waited for again
                if getattr(error.orig, "sqlstate", None) != simulated_changes.LOCK_TIMEOUT:
                    raise
                raise DatabaseError(
                    "others have kept what the simulation needs for "
                    f"{simulated_changes.LOCK_MS} ms; try again, and see "
                    "`scrapy itemgraph status` for what runs"
                ) from None

        try:
            await self._transactions.patiently(within)
        except simulated_changes.UndoneError as undone:
            return undone.found
        raise AssertionError("it was to be undone")

    async def claim(
        self,
        budget: ClaimBudget,  # noqa: ARG002 - limits are asked for as those of follow-ups are
    ) -> ClaimResult:
        """Return the one claim, which nobody else sees; then nothing."""
        claim, self._claim = self._claim, None
        if claim is None:
            return ClaimResult()
        self.has_cookies, _, _ = await self._call(
            stored_claims.before_claim, self._crawl_id, self.worker_id
        )
        return ClaimResult(claims=(claim,))

    async def _simulate(
        self,
        changesets: Sequence[Changeset],
        *,
        cookies: Sequence[Cookie] = (),  # noqa: ARG002 - nothing is saved
        state: Mapping[str, str | None] | None = None,  # noqa: ARG002 - likewise
        in_flight: Collection[Pair] | None = None,
    ) -> CommitResult:
        """Find out what the claim's changeset comes to; others change nothing."""
        applied = [
            Applied(outcome=one.outcome) if one.claim is None else await self._applied(one)
            for one in changesets
        ]
        return CommitResult(applied=applied, is_written=in_flight is not None)

    async def _applied(self, changeset: Changeset) -> Applied:
        simulate = partial(
            simulated_changes.simulate,
            plan=self._plan,
            code=self._code,
            changeset=replace(changeset, scraped=()),
            met=list(self._met.values()),
            worker_id=self.worker_id,
        )
        try:
            self.simulation = await self._undone(simulate)
        except DBAPIError as error:
            self.simulation = simulated_changes.refused(changeset, error)
        assert self.simulation is not None
        return self.simulation.applied

    async def _put_nothing(self, pairs: Collection[Pair]) -> None:
        """Write nothing of what starts: there is no claim that somebody could take over."""

    async def register_callbacks(self, callbacks: Iterable[Task]) -> None:
        """Keep plain callbacks that were met, for the transaction that is undone."""
        self._met |= {one.name: one for one in callbacks}

    async def learn_callbacks(self) -> bool:
        """Learn of nothing."""
        return False

    async def redirect(self, gone: Sequence[Redirect]) -> list[RedirectAnswer]:
        """Let all go on."""
        return [RedirectAnswer.ON for _ in gone]

    async def remaining(self) -> Remaining:
        """Return that nothing is left."""
        return Remaining(claimable=False, claimed=False, sweeping=False, next_retry=None)

    async def mark_started(self) -> None:
        """Do nothing: it was done at once."""

    async def finish_run(self) -> None:
        """Do nothing: there is no run."""

    def _stop(
        self,
        connection: Connection,
        reason: str,
        uses: Sequence[Use],
        told: Sequence[Tallies],  # noqa: ARG002 - what was simulated is not counted
        error: str | None,  # noqa: ARG002 - there is no run
    ) -> None:
        self._give_back(connection, reason, uses)
        if self._plan.given:
            while crawl_lists.delete_some(connection, self._crawl_id):
                pass
        elif self._has_made_crawl:
            connection.execute(DROP_CRAWL, {"crawl": self._crawl_id, "worker": self.worker_id})
