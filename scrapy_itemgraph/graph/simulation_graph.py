"""The graph of a simulation: one claim, whose commit is undone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.graph import simulated_changes, simulated_pages
from scrapy_itemgraph.graph.notice_delivery import NoticeDelivery
from scrapy_itemgraph.graph.simulation_parts import (
    NoJob,
    NoRecovery,
    SimulatedCallbacks,
    SimulatedClaims,
    SimulatedCommits,
    SimulatedContents,
    SimulatedRun,
    undone,
)
from scrapy_itemgraph.graph.worker_depths import WorkerDepths
from scrapy_itemgraph.graph.worker_duties import WorkerDuties
from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.graph.worker_limits import WorkerLimits
from scrapy_itemgraph.graph.worker_news import WorkerNews
from scrapy_itemgraph.graph.worker_reads import WorkerReads
from scrapy_itemgraph.graph.worker_rules import WorkerRules
from scrapy_itemgraph.graph.worker_sessions import WorkerSessions
from scrapy_itemgraph.graph.worker_start import (
    WorkerConnections,
    WorkerStart,
    begin_to_live,
    register_worker,
)
from scrapy_itemgraph.graph.worker_upkeep import WorkerUpkeep
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.model.tasks import of_named_callback
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.store.registry import crawl_starts, crawls, workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.model.limits import Use
    from scrapy_itemgraph.model.simulations import Simulation, WantedPage
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationGraph(WorkerGraph):
    """What a worker sees that simulates one execution: it has limits like any other, and no claim.

    Limits, what sites answer to them, and the worker's own row are written. All else is undone,
    or not done.
    """

    commits: SimulatedCommits

    async def close(
        self,
        reason: str,  # noqa: ARG002 - of a crawl that ends; this is none
        uses: Sequence[Use] = (),
        told: Sequence[Tallies] = (),
        *,
        error: str | None = None,
        last: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """End as `WorkerGraph.close` does; that it was a simulation is kept as its reason."""
        await super().close(workers.SIMULATED, uses, told, error=error, last=last)

    @property
    def simulation(self) -> Simulation | None:
        """What the execution came to; None as long as it has not ended."""
        return self.commits.simulation

    @staticmethod
    async def prepare(
        settings: Settings, *, wanted: SimulationPlan | WantedPage, **start: Any
    ) -> SimulationGraph:
        """Find or start the server, and prepare the one claim.

        `start` are the fields of a `WorkerStart`. A page that is wanted says what its plan is.

        Raises:
            ItemGraphError: with one clear line.

        """
        connections = await WorkerConnections.open(settings)
        try:
            with errors.all_translated(connections.transactions.engine.url):
                return await _opened(connections, WorkerStart(**start), wanted)
        except BaseException:
            await connections.close()
            raise


async def _opened(
    connections: WorkerConnections, start: WorkerStart, wanted: SimulationPlan | WantedPage
) -> SimulationGraph:
    """Return the graph of a worker that is registered, with the one claim."""
    settings, transactions, own = (
        connections.settings,
        connections.transactions,
        connections.identity,
    )
    contents = await connections.contents(SimulatedContents)
    await connections.ensure_schema()
    known, crawl = await transactions.call(crawl_starts.look, start.of_crawl)
    limits = WorkerLimits(transactions, settings, own, spider=start.spider)
    code = simulated_changes.Code(
        crawl=crawl,
        spider=start.spider,
        tasks=start.tasks,
        default_ttl=settings.results.default_ttl,
        of_callback=partial(of_named_callback, callbacks=settings.results.callbacks),
        limits_of=limits.of_task,
        of_all=limits.of_all,
    )
    if isinstance(wanted, SimulationPlan):
        plan = wanted
    else:
        plan = wanted.plan(await transactions.call(simulated_pages.find, known, wanted))
    if plan.given:
        await transactions.call(simulated_changes.lay, plan, code)
    prepared = await undone(transactions, partial(simulated_changes.look, plan=plan, code=code))
    assert isinstance(prepared, simulated_changes.Prepared)
    transactions.crawl_id = await transactions.call(crawls.make_crawl, crawl)
    await limits.number({prepared.claim.task_id: code.task(plan.task)})
    process = await _registered(connections, start)
    callbacks = SimulatedCallbacks(prepared.callbacks)
    commits = SimulatedCommits(transactions, own, callbacks, plan, code)
    run = SimulatedRun(own, transactions.crawl_id, plan, has_made_crawl=known is None)
    job = NoJob()
    rules = WorkerRules(transactions, process)
    await rules.make_ready(prepared.claim.ruleset_id)
    upkeep = WorkerUpkeep(transactions, own, tasks=callbacks, run=run, job=job, rules=rules)
    return SimulationGraph(
        crawl=crawl,
        connections=connections,
        process=process,
        callbacks=callbacks,
        claims=SimulatedClaims(transactions, own, commits, prepared.claim),
        commits=commits,
        contents=contents,
        depths=WorkerDepths(transactions),
        duties=WorkerDuties(transactions, settings),
        feeds=WorkerFeeds(transactions, process),
        job=job,
        limits=limits,
        news=WorkerNews(process, transactions.crawl_id, upkeep),
        notices=NoticeDelivery(transactions, Channels(project=start.project)),
        reads=WorkerReads(transactions),
        recovery=NoRecovery(),
        rules=rules,
        run=run,
        sessions=WorkerSessions(transactions, own),
        upkeep=upkeep,
    )


async def _registered(connections: WorkerConnections, start: WorkerStart) -> OwnProcess:
    """Register this process as a worker, and have it live."""
    crawl_id, lease = connections.transactions.crawl_id, connections.settings.database.lease

    def register(connection: Connection) -> NewProcess:
        return register_worker(connection, crawl_id, start, {}, lease)

    process = connections.process(start, register)
    await process.register(register)
    await connections.transactions.call(workers.mark_started, process.identity.id)
    await begin_to_live(process)
    return process
