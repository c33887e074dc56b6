"""One crawler's parts: its graph, its executions, and what runs beside Scrapy's engine."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.http import Response

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, ItemGraphError
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.serialize import classes
from scrapy_itemgraph.settings import read_project
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled, either
from scrapy_itemgraph.worker import opening, scrapy_internals
from scrapy_itemgraph.worker.claim_pace import ClaimPace
from scrapy_itemgraph.worker.claimer import Claimer, log_summary
from scrapy_itemgraph.worker.committer import Committer
from scrapy_itemgraph.worker.content_writer import ContentWriter
from scrapy_itemgraph.worker.database_memory import DatabaseMemory
from scrapy_itemgraph.worker.downloads.download_events import DownloadEvents
from scrapy_itemgraph.worker.downloads.download_gate import Gate
from scrapy_itemgraph.worker.downloads.downloader_slots import AutoThrottle, DownloaderSlots
from scrapy_itemgraph.worker.downloads.egress import Egress
from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
from scrapy_itemgraph.worker.downloads.lanes import Lanes
from scrapy_itemgraph.worker.downloads.site_feedback import SiteFeedback
from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
from scrapy_itemgraph.worker.executions.outbox import Outbox
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
from scrapy_itemgraph.worker.limit_sync import LimitSync
from scrapy_itemgraph.worker.maintenance import Maintenance
from scrapy_itemgraph.worker.spider import (
    code_versions,
    crawl_names,
    kept_state,
    methods,
    output_tasks,
    seeds,
    start_checks,
)
from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
from scrapy_itemgraph.worker.spider.cookies import Jars, State
from scrapy_itemgraph.worker.spider.descriptors import Descriptors
from scrapy_itemgraph.worker.spider.duplicates import Duplicates
from scrapy_itemgraph.worker.spider.early_links import EarlyLinks
from scrapy_itemgraph.worker.spider.engine_hooks import EngineHooks
from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
from scrapy_itemgraph.worker.spider.failure_policy import FailurePolicy
from scrapy_itemgraph.worker.spider.logins import Logins
from scrapy_itemgraph.worker.spider.redirects import Redirects
from scrapy_itemgraph.worker.spider.request_operations import RequestOperations
from scrapy_itemgraph.worker.spider.session_sync import SessionSync
from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput
from scrapy_itemgraph.worker.spider.validation import Checks
from scrapy_itemgraph.worker.spider.waiting_requests import WaitingRequests
from scrapy_itemgraph.worker.waiting_work import WaitingWork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Note
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds

logger = logs.logger(__name__)

ERROR_REASON = "itemgraph_error"
GONE_REASON = "itemgraph_database_gone"
_OF_CRAWLER = "_itemgraph_worker"  # on the crawler, to go with it
_MAKER = "_itemgraph_worker_maker"  # likewise, where its worker is of another class
_USUAL_BATCH = 25  # requests in hand that have not started, where work goes slowly


def of(crawler: Crawler) -> Worker:
    """Return the worker of a crawler; the components of one crawler share it."""
    worker: Worker | None = getattr(crawler, _OF_CRAWLER, None)
    if worker is None:
        worker = getattr(crawler, _MAKER, Worker)(crawler)
        setattr(crawler, _OF_CRAWLER, worker)
    return worker


def make_with(crawler: Crawler, maker: Callable[[Crawler], Worker]) -> None:
    """Have the worker of a crawler made by `maker`; before the crawl."""
    setattr(crawler, _MAKER, maker)


class WorkerComponent:
    """What Scrapy calls, of a crawler's worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the component of a crawler."""
        return cls(of(crawler))


class Worker:
    """A running crawl process: opens the graph, builds the parts from what they need, runs them."""

    outbox_class: ClassVar[type[Outbox]] = Outbox

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = read_project(crawler.settings)
        self.is_open = False
        self.tasks: Mapping[str, Task] = {}
        self.start_ended = asyncio.Event()  # `start()` has nothing more
        self.ended = asyncio.Event()  # nothing is left to do, or the crawl failed
        self.failure: str | None = None
        self.start_error: str | None = None  # what `start()` raised
        self.jars = Jars(crawler)
        self.start_again = asyncio.Event()  # the database lacks what `start()` gave it
        self.egress = Egress(
            self.settings.safety.allowed_hosts, self.settings.safety.public_only, self.start_ended
        )
        self._news = asyncio.Event()  # there may be work where there was none
        self._room = asyncio.Event()  # an execution ended
        self._graph: WorkerGraph | None = None
        self._slots = DownloaderSlots(crawler)
        self.limiters = Limiters(self._slots.terms, self._slots.delay)
        self.tallies = Tallies()
        self._is_cut_off = False
        self._before_commit: list[Callable[[], Awaitable[None]]] = []
        self._before_closing: list[Callable[[], Awaitable[None]]] = []
        self._duties: list[asyncio.Task[None]] = []
        self._commits: asyncio.Task[None] | None = None

    @property
    def spider(self) -> Spider:
        """The crawler's spider."""
        assert self.crawler.spider is not None
        return self.crawler.spider

    @property
    def graph(self) -> WorkerGraph:
        """The open graph."""
        assert self._graph is not None
        return self._graph

    def before_commit(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Have something awaited before each transaction that commits executions."""
        self._before_commit.append(hook)

    def before_closing(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Have something awaited at the end, when all is committed and the graph still open."""
        self._before_closing.append(hook)

    def response_to(self, request: Request) -> Response:
        """Return the response of a request that is not downloaded."""
        return Response(request.url, request=request)

    # Opening

    async def open(self, identities: RequestIds) -> None:
        """Open the graph and start the parts; on an error say so, and let the spider not run."""
        state = State(self.spider)
        try:
            callbacks = self._read_spider()
            self._graph = graph = await self._open_graph(callbacks)
            opening.say_where(self.settings)
            opening.say_which_run(graph, self.settings, has_tasks=bool(self.tasks))
            await opening.say_what_is_resumed(graph)
            self.sessions = SessionSync(graph, self.jars, state)
            await self.sessions.refresh_state()
        except ItemGraphError as error:
            self.fail(str(error))
            return
        self._build(graph, callbacks, identities)
        assert self.crawler.engine is not None
        self.egress.stand_before(self.crawler.engine.downloader)
        self.gate.stand_before(self.crawler.engine.downloader)
        EngineHooks(self.active, self.spider_output, self.jars).stand_before(self.crawler.engine)
        output_tasks.save_tasks(self.crawler.engine)
        self.is_open = True
        self._commits = self.start_duty(self.committer.run())
        self._duties += [self.start_duty(duty) for duty in self._all_duties()]

    def _all_duties(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what goes on for as long as the crawl does, beside commits."""
        return (
            self._claim(),
            self.claimer.listen(),
            self.claimer.watch_room(),
            self.limit_sync.run(),
            self.maintenance.run(),
            self.redirects.run(),
            self.logins.run(),
            self.committer.feed_starved(),
            self.content_writer.run(),
            self.content_writer.collect(),
            WaitingRequests(self.active).run(),
            self.waiting_work.run(),
        )

    def _read_spider(self) -> CallbackTasks:
        """Take the tasks that the spider declares; return those of its plain callbacks."""
        self.egress.start_at_all(getattr(self.spider, "start_urls", None))
        classes.load_modules(self.settings.safety.allowed_modules)
        self.tasks = tasks.discover(type(self.spider))
        for name, options in self.settings.results.callbacks.items():
            tasks.of_callback(name, options)
        methods.warn_of_no_callbacks(self.settings.results.callbacks, self.spider)
        start_checks.warn_of_options_of_tasks(self.settings, self.tasks)
        start_checks.warn_of_cached_pages(self.crawler.settings, self.settings, self.tasks)
        kept_state.warn_of_kept_state(self.spider)
        return CallbackTasks(self.spider, self.tasks, self.settings.results.callbacks)

    async def _open_graph(self, callbacks: CallbackTasks) -> WorkerGraph:
        return await WorkerGraph.open(self.settings, **self._start(callbacks))

    def _start(self, callbacks: CallbackTasks) -> dict[str, Any]:
        """Return what a start tells the graph."""
        spider = self.spider
        return {
            "crawl": crawl_names.crawl_start(
                self.crawler, spider, self.settings.run.crawl, self.settings.run.ignored_arguments
            ),
            "spider": spider.name,
            "tasks": self.tasks,
            "has_callback": callbacks.has,
            "callback_names": methods.callback_names(type(spider)),
            "job": getattr(spider, "_job", None),
            "code": code_versions.of_spider(type(spider)),
            "source_of": callbacks.source_of,
            "on_replaced": self.limiters.lose,
        }

    def _build(self, graph: WorkerGraph, callbacks: CallbackTasks, identities: RequestIds) -> None:
        """Build the parts in order, each from what it needs."""
        crawler, settings, news, sessions = self.crawler, self.settings, self._news, self.sessions
        self._build_queue(graph)
        graph.recovery.memory = DatabaseMemory(
            self.active,
            self.outbox,
            self.limiters,
            sessions,
            self.start_ended,
            self.start_again,
            news,
        )
        active, ready, queue = self.active, self.ready, self.queue
        duplicates = Duplicates(crawler, identities.dupefilter)
        self.checks = Checks(self.tasks, graph.callbacks.names)
        operations = RequestOperations(
            graph, self.spider, identities, callbacks, settings.results.incremental_callbacks
        )
        self.redirects = Redirects(
            graph, active, queue, self.spider, operations, duplicates, sessions
        )
        self.enqueuer = Enqueuer(
            graph,
            active,
            self.redirects,
            self.spider,
            operations,
            duplicates,
            crawler.stats,
            most_held=settings.worklist.held_requests,
        )
        self.logins = Logins(graph, active, queue, crawler, self.spider, sessions, news)
        self.spider_output = SpiderOutput(
            crawler,
            self.spider,
            active,
            self.gate,
            self.checks,
            FailurePolicy(crawler.settings, max_retry_after=settings.limits.max_retry_after),
            Descriptors(),
            self.enqueuer,
            EarlyLinks(crawler, identities, duplicates, self.enqueuer, has_tasks=bool(self.tasks)),
            self.logins,
            has_tasks=bool(self.tasks),
            callbacks=settings.results.callbacks,
            starts_at=self.egress.starts_at,
            most_of_snippet=settings.records.keep_snippets,
        )
        self.committer = Committer(
            graph,
            self.outbox,
            active,
            ready,
            sessions,
            callbacks,
            self.enqueuer,
            news,
            crawler.stats,
            self.tallies,
            interval=settings.worklist.commit_interval,
            before_commit=self._before_commit,
        )
        self.content_writer = ContentWriter(
            graph, self.outbox, active, self.start_duty, settings.database.patience.total_seconds()
        )
        self._build_upkeep(graph, callbacks)

    def _build_queue(self, graph: WorkerGraph) -> None:
        """Build what holds limits, executions and requests in memory."""
        crawler, settings, limiters = self.crawler, self.settings, self.limiters
        autothrottle = AutoThrottle(crawler.settings)
        self.feedback = SiteFeedback(
            limiters,
            autothrottle,
            agent=crawler.settings["ROBOTSTXT_USER_AGENT"] or crawler.settings["USER_AGENT"],
            longest=settings.limits.max_retry_after,
            longest_delay=settings.limits.max_crawl_delay,
            learns_delays=settings.limits.learn_delays,
        )
        working: set[Execution] = set()
        running: set[Leg] = set()
        hurried = asyncio.Event()  # changesets are not to wait for others
        self.ready = ReadyRequests(
            working,
            running,
            limiters.places,
            concurrency=crawler.settings.getint("CONCURRENT_REQUESTS"),
            most_ahead=settings.worklist.claim_batch,
            wake_engine=lambda: scrapy_internals.wake_engine(crawler),
            ran_out=hurried,
        )
        self.outbox = self.outbox_class(settings.worklist.commit_batch, hurried)
        self.active = ActiveExecutions(
            self.spider.name,
            working,
            running,
            self.ready,
            self.outbox,
            self._room,
            most_operations=settings.worklist.max_operations,
        )
        lanes = Lanes(limiters, graph.limits, first_delay=autothrottle.first)
        self.queue = EngineRequests(crawler, lanes, limiters, self.ready)
        events = DownloadEvents(
            graph,
            self.active,
            self.queue,
            lanes,
            limiters,
            self.feedback,
            crawler.stats,
            self.tallies,
        )
        self.gate = Gate(limiters, self._slots.adopt, events)

    def _build_upkeep(self, graph: WorkerGraph, callbacks: CallbackTasks) -> None:
        """Build what gets work and limits, and keeps the crawl in order beside its work."""
        limits_lock = asyncio.Lock()  # one at a time takes limits and gives them up
        most = self.settings.worklist.claim_batch
        usual = max(_USUAL_BATCH, self.crawler.settings.getint("CONCURRENT_REQUESTS"))
        self.claimer = Claimer(
            graph,
            self.active,
            self.ready,
            self.queue,
            self.crawler,
            self.spider,
            self.outbox,
            self.limiters,
            self._slots,
            self.gate,
            self.sessions,
            callbacks,
            self.tasks,
            self.settings,
            limits_lock,
            start_ended=self.start_ended,
            pace=ClaimPace(least=min(most, usual), most=most),
            room=self._room,
            news=self._news,
            ended=self.ended,
        )
        self.limit_sync = LimitSync(
            graph,
            self.limiters,
            self.active,
            self.queue,
            self.gate,
            self.feedback,
            limits_lock,
            self._news,
        )
        self.waiting_work = WaitingWork(graph)
        self.maintenance = Maintenance(
            graph,
            self.active,
            self.crawler,
            self.sessions,
            self.tallies,
            start_ended=self.start_ended,
            news=self._news,
        )

    async def _claim(self) -> None:
        await self.sow()
        await self.claimer.run()

    async def sow(self) -> None:
        """Apply what the spider's `seeds()` yields."""
        await seeds.sow(self.spider, self._seed, self.checks, self.tallies)

    async def _seed(self, operations: Sequence[Operation]) -> Sequence[Note]:
        """Apply seeds in a transaction of their own; what they attach waits for its store."""
        for seed in operations:
            if isinstance(seed, CreateItem):
                self.egress.starts_at(seed.data.get("url"))
        return await self.content_writer.patiently(partial(self.graph.commits.seed, operations))

    # Closing

    def start_has_ended(self) -> None:
        """Take note that `start()` has nothing more."""
        if not self.start_again.is_set():
            self.start_ended.set()
        self._news.set()

    async def is_over(self) -> bool:
        """Wait for the end of the crawl; False if `start()` has to be run once more before."""
        await either(self.ended, self.start_again.wait())
        if self.ended.is_set():
            return True
        self.start_again.clear()
        logger.info("Running seeds() and start() once more", extra={"action": "start_again"})
        await self._guarded(self.sow())
        self.enqueuer.operations.identities.start_again()
        return False

    def check_start(self) -> None:
        """Have the crawl end as one that failed, if nothing of its start could be stored."""
        if self.is_open and (message := self.committer.of_start.failure) is not None:
            self.fail(message)

    def stopping(self) -> None:
        """Take note that nothing new begins any more; what is under way comes to its end."""
        if self.is_open:
            self.gate.close()
        if self._graph is not None:
            self._graph.hurry()

    async def close(self, reason: str) -> None:
        """Commit what has ended, release the rest, and give up the graph."""
        if self._graph is not None:
            self._graph.hurry()
        await cancelled(self._duties)
        if self._graph is None:
            return
        try:
            if self.is_open:
                await self._finish(self._graph)
        except ItemGraphError as error:
            self.fail(f"at the end of the crawl: {error}")
        finally:
            await self._close_graph(reason)

    async def _finish(self, graph: WorkerGraph) -> None:
        self.active.close()
        if not self._is_cut_off:
            await self.content_writer.finish()
        self.outbox.stop()
        if self._commits is not None:
            await self._commits
        if not self._is_cut_off:
            await self.committer.flush()
            await self.sessions.save()
            for hook in self._before_closing:
                await hook()
            await self.limit_sync.save()
        if self.failure is None and (self.claimer.claimed or not self.claimer.has_said_idle):
            await log_summary(graph)

    async def _close_graph(self, reason: str) -> None:
        graph, self._graph = self.graph, None
        uses = self.limiters.uses({})
        if self.is_open:
            self.gate.abandon()
        try:
            error = self.failure or self.start_error
            await graph.close(reason, uses, self.tallies.take_all(), error=error)
        except ItemGraphError as error:  # what is claimed waits for the lease, or the next run
            self.fail(f"at the end of the crawl: {error}")

    # What ends the crawl

    def fail(self, message: str) -> None:
        """Close the spider because of an error that it cannot go on with."""
        if self.failure is not None:
            return
        self.failure = message
        logger.error("%s", message, extra={"action": "crawl_failed"})
        self.ended.set()

    def start_duty(self, duty: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start what its starter ends; an error in it ends the crawl."""
        return asyncio.create_task(self._guarded(duty))

    async def _guarded(self, duty: Coroutine[Any, Any, None]) -> None:
        try:
            await duty
        except ItemGraphError as error:
            self._is_cut_off = isinstance(error, DatabaseUnavailableError)
            self.fail(str(error))
            self.close_spider()
        except Exception as error:
            logger.exception("itemgraph: the crawl cannot go on")
            self.fail(f"unexpected {type(error).__name__}: {error}")
            self.close_spider()

    def close_spider(self) -> None:
        """Close the spider because of the failure."""
        engine = self.crawler.engine
        # Before the scraper is open Scrapy cannot close; then `process_start` does it.
        if engine is not None and engine.spider is not None and engine.scraper.slot is not None:
            reason = GONE_REASON if self._is_cut_off else ERROR_REASON
            self._closing = asyncio.ensure_future(engine.close_spider_async(reason=reason))
