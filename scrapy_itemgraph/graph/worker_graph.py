"""The door of a running crawl: the same functions as everybody's, awaited on the reactor's loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.contents.transfer import WorkerContents
from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.graph.commits import Commits
from scrapy_itemgraph.graph.notice_delivery import NoticeDelivery
from scrapy_itemgraph.graph.worker_callbacks import WorkerCallbacks
from scrapy_itemgraph.graph.worker_claims import WorkerClaims
from scrapy_itemgraph.graph.worker_depths import WorkerDepths
from scrapy_itemgraph.graph.worker_duties import WorkerDuties
from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
from scrapy_itemgraph.graph.worker_job import WorkerJob, crawl_of
from scrapy_itemgraph.graph.worker_limits import WorkerLimits
from scrapy_itemgraph.graph.worker_news import WorkerNews
from scrapy_itemgraph.graph.worker_reads import WorkerReads
from scrapy_itemgraph.graph.worker_recovery import WorkerRecovery
from scrapy_itemgraph.graph.worker_rules import WorkerRules
from scrapy_itemgraph.graph.worker_runs import WorkerRuns
from scrapy_itemgraph.graph.worker_sessions import WorkerSessions
from scrapy_itemgraph.graph.worker_start import WorkerConnections, WorkerStart, begin_to_live
from scrapy_itemgraph.graph.worker_upkeep import WorkerUpkeep
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import item_sweeps, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.graph.worker_parts import (
        Callbacks,
        Claims,
        Committing,
        Job,
        Recovery,
        WorkerRun,
    )
    from scrapy_itemgraph.model.limits import Use
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess
    from scrapy_itemgraph.store.registry.runs import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkerGraph:
    """What one worker does with its crawl's graph, by subject; made by `open`."""

    crawl: str  # its name
    connections: WorkerConnections
    process: OwnProcess
    callbacks: Callbacks
    claims: Claims
    commits: Committing
    contents: WorkerContents
    depths: WorkerDepths
    duties: WorkerDuties
    feeds: WorkerFeeds
    job: Job
    limits: WorkerLimits
    news: WorkerNews
    notices: NoticeDelivery
    reads: WorkerReads
    recovery: Recovery
    rules: WorkerRules
    run: WorkerRun
    sessions: WorkerSessions
    upkeep: WorkerUpkeep

    @staticmethod
    async def open(settings: Settings, **start: Any) -> WorkerGraph:
        """Find or start the server, migrate if allowed, register crawl, tasks and worker.

        `start` are the fields of a `WorkerStart`.

        Raises:
            ItemGraphError: with one clear line.

        """
        begun = WorkerStart(**start)
        channels = Channels.of(settings.notices, begun.project)
        connections = await WorkerConnections.open(settings)
        try:
            with errors.all_translated(connections.transactions.engine.url):
                return await _opened(connections, begun, channels)
        except BaseException:
            await connections.close()
            raise

    @property
    def crawl_id(self) -> int:
        """The number of the crawl."""
        return self.connections.transactions.crawl_id

    @property
    def worker_id(self) -> int:
        """The number of this worker, as of its last registration."""
        return self.process.identity.id

    def hurry(self) -> None:
        """Wait for a server that is gone a short time only, for the crawl ends."""
        self.connections.transactions.hurry()

    async def close(
        self,
        reason: str,
        uses: Sequence[Use] = (),
        told: Sequence[Tallies] = (),
        *,
        error: str | None = None,
        last: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Give back what is still claimed, and be gone; `uses` tell how limits were used last.

        What the worker did and may not have told yet is `told`; `error` is what it ended by. When
        the worker has left, `last` is awaited, before the connections are closed.
        """

        def leave(connection: Connection) -> None:
            stored_claims.release_all(connection, self.worker_id)
            holdings.release_all(connection, self.worker_id, uses)
            workers.stop(connection, self.worker_id, reason)
            self.job.leave(connection, reason)
            self.run.leave(connection, reason, told, error)

        self.hurry()
        try:
            self.process.stop()
            await self.connections.transactions.call(leave, hot=True, share=True)
            if last is not None:
                await last()
            await self.notices.end()
        finally:
            await self.connections.close()


async def _opened(
    connections: WorkerConnections, start: WorkerStart, channels: Channels
) -> WorkerGraph:
    """Return the graph of a worker that is registered and lives."""
    settings, transactions, own = (
        connections.settings,
        connections.transactions,
        connections.identity,
    )
    contents = await connections.contents(WorkerContents)
    await connections.ensure_schema()
    renamed = await transactions.call(item_sweeps.rename_tags, settings.results.tag_renames)
    started, of_runner = await transactions.call(crawl_of, start)
    transactions.crawl_id = started.crawl_id
    job = WorkerJob(
        transactions, own, scrapyd_job=start.job, of_runner=of_runner, state=started.state
    )

    limits = WorkerLimits(transactions, settings, own, spider=start.spider)
    callbacks = WorkerCallbacks(transactions, settings, start, own, limits, job=job)
    vanished = await callbacks.register_tasks()
    process = connections.process(start, callbacks.register_process)
    commits = Commits(
        transactions,
        contents,
        own,
        spider=start.spider,
        incremental=settings.results.incremental_callbacks,
    )
    joined = await _joined(process, callbacks)
    run = WorkerRuns(transactions, settings, own, callbacks, joined, job=job)
    feeds = WorkerFeeds(transactions, process)
    recovery = WorkerRecovery(
        transactions, commits, process, callbacks=callbacks, runs=run, feeds=feeds
    )
    recovery.begin(started.name)
    await begin_to_live(process)
    depths = WorkerDepths(transactions)
    if start.tracks_depth:
        await depths.begin(start.depth_limit)
    rules = WorkerRules(transactions, process)
    upkeep = WorkerUpkeep(transactions, own, tasks=callbacks, run=run, job=job, rules=rules)
    graph = WorkerGraph(
        crawl=started.name,
        connections=connections,
        process=process,
        callbacks=callbacks,
        claims=WorkerClaims(
            transactions,
            own,
            callbacks=callbacks,
            job=job,
            limits=limits,
            commits=commits,
            recovery=recovery,
            rules=rules,
            depths=depths,
        ),
        commits=commits,
        contents=contents,
        depths=depths,
        duties=WorkerDuties(transactions, settings),
        feeds=feeds,
        job=job,
        limits=limits,
        news=WorkerNews(process, transactions.crawl_id, upkeep),
        notices=NoticeDelivery(transactions, channels, transactions.crawl_id),
        reads=WorkerReads(transactions),
        recovery=recovery,
        rules=rules,
        run=run,
        sessions=WorkerSessions(transactions, own),
        upkeep=upkeep,
    )
    startup_report.tell(
        start.tasks,
        renamed=renamed,
        of_crawl=started.warnings,
        vanished=vanished,
        stray_groups=await limits.stray_groups({*start.tasks, *start.callback_names}),
        outdated=run.kept(await callbacks.note_code()),
    )
    return graph


async def _joined(process: OwnProcess, callbacks: WorkerCallbacks) -> Run:
    """Register the worker in the crawl's run, and return that."""
    runs: list[Run] = []

    def register(connection: Connection) -> NewProcess:
        run, worker = callbacks.register_in_run(connection)
        runs.append(run)
        return worker

    await process.register(register)
    return runs[-1]
