"""Builds the parts of a worker, each from what it needs: what stands before a graph, and beside it.

No part knows the worker, and none is told of another one later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.claims.claim_pace import ClaimPace
from scrapy_itemgraph.worker.claims.claimer import Claimer, WorkNews
from scrapy_itemgraph.worker.claims.hand_out import HandOut
from scrapy_itemgraph.worker.claims.no_work_left import NoWorkLeft
from scrapy_itemgraph.worker.claims.suspects import Suspects
from scrapy_itemgraph.worker.committer import Committer
from scrapy_itemgraph.worker.content_writer import ContentWriter
from scrapy_itemgraph.worker.crawl_end import CrawlEnd
from scrapy_itemgraph.worker.database_memory import DatabaseMemory
from scrapy_itemgraph.worker.downloads.delay_gate import Gate
from scrapy_itemgraph.worker.downloads.download_events import DownloadEvents
from scrapy_itemgraph.worker.downloads.downloader_slots import AutoThrottle, DownloaderSlots
from scrapy_itemgraph.worker.downloads.egress import Egress
from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
from scrapy_itemgraph.worker.downloads.lanes import Lanes
from scrapy_itemgraph.worker.downloads.site_feedback import SiteFeedback
from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
from scrapy_itemgraph.worker.limit_sync import LimitSync
from scrapy_itemgraph.worker.maintenance import Maintenance
from scrapy_itemgraph.worker.rule_changes import RuleChanges
from scrapy_itemgraph.worker.spider import start_checks
from scrapy_itemgraph.worker.spider.cookies import Jars
from scrapy_itemgraph.worker.spider.descriptors import Descriptors
from scrapy_itemgraph.worker.spider.duplicates import Duplicates
from scrapy_itemgraph.worker.spider.early_links import EarlyLinks
from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
from scrapy_itemgraph.worker.spider.link_depths import LinkDepths
from scrapy_itemgraph.worker.spider.logins import Logins
from scrapy_itemgraph.worker.spider.redirects import Redirects
from scrapy_itemgraph.worker.spider.request_operations import RequestOperations
from scrapy_itemgraph.worker.spider.retry_or_failure import RetryPolicy
from scrapy_itemgraph.worker.spider.validation import Checks
from scrapy_itemgraph.worker.spider.waiting_requests import WaitingRequests
from scrapy_itemgraph.worker.spider_closing import SpiderClosing
from scrapy_itemgraph.worker.spider_start import SpiderStart
from scrapy_itemgraph.worker.stop_orders import StopOrders
from scrapy_itemgraph.worker.waiting_work import WaitingWork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.page_rules import PageRules
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync
    from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput

_USUAL_BATCH = 25  # requests in hand that have not started, where work goes slowly


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a worker has before its graph is open, and what others may set.

    `news` says that there may be work where there was none; the claimer alone clears it.
    """

    start: SpiderStart
    end: CrawlEnd
    egress: Egress
    jars: Jars
    slots: DownloaderSlots
    limiters: Limiters
    tallies: Tallies = field(default_factory=Tallies)
    news: WorkNews = field(default_factory=WorkNews)

    @classmethod
    def of(cls, crawler: Crawler, settings: Settings) -> Base:
        """Return that of a crawler."""
        start, slots = SpiderStart(), DownloaderSlots(crawler)
        safety = settings.safety
        return cls(
            start=start,
            end=CrawlEnd(crawler),
            egress=Egress(safety.allowed_hosts, safety.public_only, start.ended),
            jars=Jars(crawler),
            slots=slots,
            limiters=Limiters(slots.terms, slots.delay),
        )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the parts of a worker are built from; `before_commit` may still get more."""

    base: Base
    crawler: Crawler
    spider: Spider
    settings: Settings
    graph: WorkerGraph
    tasks: Mapping[str, Task]
    callbacks: CallbackTasks
    identities: RequestIds
    sessions: SessionSync
    outbox: Outbox
    output_class: Callable[..., SpiderOutput]
    page_rules: PageRules
    before_commit: Sequence[Callable[[], Awaitable[None]]]


@dataclass(frozen=True, kw_only=True)
class _Queues:
    """What holds limits, executions and requests in memory."""

    ready: ReadyRequests
    active: ActiveExecutions
    queue: EngineRequests
    feedback: SiteFeedback
    gate: Gate


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """What takes in what a spider yields, and where its requests lead."""

    checks: Checks
    redirects: Redirects
    enqueuer: Enqueuer
    logins: Logins
    spider_output: SpiderOutput


@dataclass(frozen=True, kw_only=True)
class Parts(_Queues, _Outputs):
    """The parts of a worker whose graph is open."""

    sessions: SessionSync
    outbox: Outbox
    committer: Committer
    content_writer: ContentWriter
    claimer: Claimer
    limit_sync: LimitSync
    maintenance: Maintenance
    rule_changes: RuleChanges
    stop_orders: StopOrders
    closing: SpiderClosing
    waiting_work: WaitingWork
    waiting_requests: WaitingRequests
    memory: DatabaseMemory


def build(given: Inputs) -> Parts:
    """Build the parts, each of what stands before it."""
    queues = _queues(given)
    outputs = _outputs(given, queues)
    base, graph, settings = given.base, given.graph, given.settings
    return Parts(
        **vars(queues),
        **vars(outputs),
        sessions=given.sessions,
        outbox=given.outbox,
        committer=_committer(given, queues, outputs),
        content_writer=ContentWriter(
            graph=graph,
            outbox=given.outbox,
            active=queues.active,
            start_task=base.end.start_task,
            patience=settings.database.patience.total_seconds(),
        ),
        claimer=_claimer(given, queues, outputs.enqueuer.depths),
        limit_sync=LimitSync(
            graph=graph,
            limiters=base.limiters,
            active=queues.active,
            queue=queues.queue,
            gate=queues.gate,
            feedback=queues.feedback,
            news=base.news,
        ),
        maintenance=Maintenance(
            graph=graph,
            active=queues.active,
            crawler=given.crawler,
            sessions=given.sessions,
            tallies=base.tallies,
            start=base.start,
            news=base.news,
            waits=settings.run.idle == "wait",
        ),
        rule_changes=RuleChanges(graph=graph, active=queues.active, news=base.news),
        stop_orders=StopOrders(graph=graph, active=queues.active, gate=queues.gate, end=base.end),
        closing=SpiderClosing(
            crawler=given.crawler,
            graph=graph,
            gate=queues.gate,
            end=base.end,
            waits=settings.run.idle == "wait",
        ),
        waiting_work=WaitingWork(graph),
        waiting_requests=WaitingRequests(queues.active),
        memory=DatabaseMemory(
            active=queues.active,
            outbox=given.outbox,
            limiters=base.limiters,
            sessions=given.sessions,
            start=base.start,
            news=base.news,
        ),
    )


def _queues(given: Inputs) -> _Queues:
    crawler, settings, limiters = given.crawler, given.settings, given.base.limiters
    autothrottle = AutoThrottle(crawler.settings)
    feedback = SiteFeedback(
        limiters=limiters,
        formula=autothrottle,
        agent=crawler.settings["ROBOTSTXT_USER_AGENT"] or crawler.settings["USER_AGENT"],
        longest=settings.limits.max_retry_after,
        longest_delay=settings.limits.max_crawl_delay,
        learns_delays=settings.limits.learn_delays,
    )
    working: set[Execution] = set()
    running: set[Leg] = set()
    ready = ReadyRequests(
        working=working,
        running=running,
        places=limiters.places,
        concurrency=crawler.settings.getint("CONCURRENT_REQUESTS"),
        most_ahead=settings.worklist.claim_batch,
        wake_engine=lambda: scrapy_internals.wake_engine(crawler),
        ran_out=given.outbox.hurried,
    )
    active = ActiveExecutions(
        spider=given.spider.name,
        working=working,
        running=running,
        ready=ready,
        outbox=given.outbox,
        most_operations=settings.worklist.max_operations,
        keeps_pages=settings.records.keep_pages,
    )
    lanes = Lanes(limiters, given.graph.limits, first_delay=autothrottle.first)
    queue = EngineRequests(crawler=crawler, lanes=lanes, limiters=limiters, ready=ready)
    events = DownloadEvents(
        graph=given.graph,
        active=active,
        queue=queue,
        lanes=lanes,
        limiters=limiters,
        feedback=feedback,
        stats=crawler.stats,
        tallies=given.base.tallies,
        keeps_pages=settings.records.keep_pages,
    )
    gate = Gate(limiters, given.base.slots.adopt, events)
    return _Queues(ready=ready, active=active, queue=queue, feedback=feedback, gate=gate)


def _outputs(given: Inputs, queues: _Queues) -> _Outputs:
    checks = Checks(given.tasks, given.graph.callbacks.names)
    redirects = _redirects(given, queues)
    enqueuer = _enqueuer(given, queues, redirects)
    logins = _logins(given, queues)
    return _Outputs(
        checks=checks,
        redirects=redirects,
        enqueuer=enqueuer,
        logins=logins,
        spider_output=_spider_output(given, queues, checks, enqueuer, logins),
    )


def _redirects(given: Inputs, queues: _Queues) -> Redirects:
    results = given.settings.results
    return Redirects(
        graph=given.graph,
        active=queues.active,
        queue=queues.queue,
        spider=given.spider,
        operations=RequestOperations(
            given.graph,
            given.spider,
            given.identities,
            given.callbacks,
            results.incremental_callbacks,
            frees_gone=results.has_answers,
        ),
        duplicates=Duplicates(given.crawler, given.identities.dupefilter),
        sessions=given.sessions,
    )


def _enqueuer(given: Inputs, queues: _Queues, redirects: Redirects) -> Enqueuer:
    """Build what stores requests, those that lead elsewhere as any."""
    return Enqueuer(
        graph=given.graph,
        active=queues.active,
        redirects=redirects,
        spider=given.spider,
        operations=redirects.operations,
        duplicates=redirects.duplicates,
        page_rules=given.page_rules,
        stats=given.crawler.stats,
        depths=LinkDepths(given.crawler),
        most_held=given.settings.worklist.held_requests,
        most_unstarted=given.crawler.settings.getint("CONCURRENT_REQUESTS"),
    )


def _logins(given: Inputs, queues: _Queues) -> Logins:
    return Logins(
        graph=given.graph,
        active=queues.active,
        queue=queues.queue,
        crawler=given.crawler,
        spider=given.spider,
        sessions=given.sessions,
        news=given.base.news,
    )


def _spider_output(
    given: Inputs, queues: _Queues, checks: Checks, enqueuer: Enqueuer, logins: Logins
) -> SpiderOutput:
    crawler, settings, has_tasks = given.crawler, given.settings, bool(given.tasks)
    return given.output_class(
        crawler=crawler,
        spider=given.spider,
        active=queues.active,
        gate=queues.gate,
        checks=checks,
        failures=RetryPolicy(
            crawler.settings,
            max_retry_after=settings.limits.max_retry_after,
            answers=settings.results.answers,
        ),
        sockets=Descriptors(),
        enqueuer=enqueuer,
        early_links=EarlyLinks(
            crawler,
            given.identities,
            enqueuer.duplicates,
            enqueuer,
            given.page_rules,
            has_tasks=has_tasks,
        ),
        logins=logins,
        page_rules=given.page_rules,
        has_tasks=has_tasks,
        callbacks=settings.results.callbacks,
        starts_at=given.base.egress.starts_at,
        most_of_snippet=settings.records.keep_snippets,
    )


def _committer(given: Inputs, queues: _Queues, outputs: _Outputs) -> Committer:
    return Committer(
        graph=given.graph,
        outbox=given.outbox,
        active=queues.active,
        ready=queues.ready,
        sessions=given.sessions,
        callbacks=given.callbacks,
        enqueuer=outputs.enqueuer,
        news=given.base.news,
        stats=given.crawler.stats,
        tallies=given.base.tallies,
        interval=given.settings.worklist.commit_interval,
        before_commit=given.before_commit,
    )


def _claimer(given: Inputs, queues: _Queues, depths: LinkDepths) -> Claimer:
    base, graph, settings = given.base, given.graph, given.settings
    active, ready, queue = queues.active, queues.ready, queues.queue
    most = settings.worklist.claim_batch
    usual = max(_USUAL_BATCH, given.crawler.settings.getint("CONCURRENT_REQUESTS"))
    return Claimer(
        graph=graph,
        active=active,
        ready=ready,
        outbox=given.outbox,
        limiters=base.limiters,
        slots=base.slots,
        gate=queues.gate,
        crawler=given.crawler,
        pace=ClaimPace(least=min(most, usual), most=most),
        suspects=Suspects(graph=graph, active=active, ready=ready, outbox=given.outbox),
        hand_out=HandOut(
            graph=graph,
            active=active,
            ready=ready,
            queue=queue,
            crawler=given.crawler,
            spider=given.spider,
            sessions=given.sessions,
            callbacks=given.callbacks,
            page_rules=given.page_rules,
            tasks=given.tasks,
            depths=depths,
            keep_logs=settings.records.keep_logs,
        ),
        no_work_left=NoWorkLeft(
            graph=graph,
            active=active,
            queue=queue,
            start=base.start,
            over=base.end.over,
            idle=settings.run.idle,
            warn_of_empty_start=partial(
                start_checks.warn_of_empty_start, given.spider, given.tasks
            ),
        ),
        news=base.news,
    )
