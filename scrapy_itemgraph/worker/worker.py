"""One crawler's parts: its graph, its executions, and what runs beside Scrapy's engine."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request
from scrapy.http import Response

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.serialize import classes
from scrapy_itemgraph.settings import read_project
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import Turns, cancelled
from scrapy_itemgraph.worker import closing_caller, opening, wiring
from scrapy_itemgraph.worker.claims.no_work_left import log_summary, warn_of_fresh_lists
from scrapy_itemgraph.worker.closing_caller import ClosingCaller
from scrapy_itemgraph.worker.executions import error_records
from scrapy_itemgraph.worker.executions.outbox import Outbox
from scrapy_itemgraph.worker.last_error import LastError
from scrapy_itemgraph.worker.spider import (
    code_versions,
    crawl_names,
    kept_state,
    long_links,
    methods,
    output_tasks,
    seeds,
    start_checks,
    yield_lines,
)
from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
from scrapy_itemgraph.worker.spider.cookies import State
from scrapy_itemgraph.worker.spider.crawl_rules import CrawlRules
from scrapy_itemgraph.worker.spider.engine_hooks import EngineHooks
from scrapy_itemgraph.worker.spider.page_rules import PageRules, loaded_hooks
from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync
from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput
from scrapy_itemgraph.worker.wiring import Base, Inputs

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Mapping,
        Sequence,
    )
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Note
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds
    from scrapy_itemgraph.worker.wiring import Parts

logger = logs.logger(__name__)

_LOOK_AGAIN = 0.02  # seconds
_LOOKS_IN_VAIN = 3  # in a row, after which what has not started is no work that may start
_OF_CRAWLER = "_itemgraph_worker"  # on the crawler, to go with it
_MAKER = "_itemgraph_worker_maker"  # likewise, where its worker is of another class


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
    """A running crawl process: opens the graph, has the parts built, runs them and ends them."""

    outbox_class: ClassVar[type[Outbox]] = Outbox
    output_class: ClassVar[type[SpiderOutput]] = SpiderOutput

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = read_project(crawler.settings)
        self.base = Base.of(crawler, self.settings)
        self.tasks: Mapping[str, Task] = {}
        self._graph: WorkerGraph | None = None
        self._parts: Parts | None = None
        self._before_commit: list[Callable[[], Awaitable[None]]] = []
        self._before_closing: list[Callable[[], Awaitable[None]]] = []
        self._duties: list[asyncio.Task[None]] = []
        self._commits: asyncio.Task[None] | None = None
        self._last_error: LastError | None = None
        self._closing: ClosingCaller | None = None

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

    @property
    def is_open(self) -> bool:
        """Whether its graph is open and its parts are built."""
        return self._parts is not None

    @property
    def ends_early(self) -> bool:
        """Whether it ends before the crawl's work does: it failed, or was told to stop."""
        return self.base.end.is_early

    @property
    def is_closing(self) -> bool:
        """Whether it ends, whoever ends it: what `start()` still has is not asked for."""
        return self.ends_early or self.base.end.is_closing

    @property
    def is_continued(self) -> bool:
        """Whether it goes on with a run that had come to its end: without `start()`, or seeds.

        So it is also where nothing of that run is left.
        """
        run = None if self._graph is None else self._graph.run
        return run is not None and (run.is_continued or run.is_over)

    @property
    def parts(self) -> Parts:
        """The parts of a worker that is open."""
        assert self._parts is not None
        return self._parts

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
            hooks = loaded_hooks(self.settings.safety.hooks)
            self._graph = graph = await self._open_graph(callbacks)
            opening.say_where(self.settings)
            opening.say_which_run(graph, self.settings, has_tasks=bool(self.tasks))
            await opening.say_what_is_resumed(graph)
            await graph.run.hold_left()
            sessions = SessionSync(graph, self.base.jars, state)
            await sessions.refresh_state()
        except ItemGraphError as error:
            self.fail(str(error))
            return
        parts = wiring.build(
            Inputs(
                base=self.base,
                crawler=self.crawler,
                spider=self.spider,
                settings=self.settings,
                graph=graph,
                tasks=self.tasks,
                callbacks=callbacks,
                identities=identities,
                sessions=sessions,
                outbox=self.outbox_class(self.settings.worklist.commit_batch),
                output_class=self.output_class,
                page_rules=PageRules(self.spider, self.crawler.stats, hooks),
                before_commit=self._before_commit,
            )
        )
        graph.recovery.memory = parts.memory
        self._last_error = LastError(self.spider, self.base.tallies)
        self._last_error.begin()
        self._stand_before(parts)
        self._parts = parts
        start = self.base.end.start_task
        self._commits = start(parts.committer.run())
        await self.base.end.guard(self._stop_if_told(parts))
        self._duties += [start(duty) for duty in self._all_duties(parts)]

    async def _stop_if_told(self, parts: Parts) -> None:
        """Stop before anything begins, where the crawl is paused, say, or nothing is to go on."""
        if self.settings.run.continue_ and self.graph.run.is_over:
            opening.say_nothing_goes_on(self.graph)
            self.base.end.stop("finished")
            return
        await parts.stop_orders.look()

    def _stand_before(self, parts: Parts) -> None:
        """Take the places of methods of Scrapy's engine."""
        engine = self.crawler.engine
        assert engine is not None
        self.base.egress.stand_before(engine.downloader)
        parts.gate.stand_before(engine.downloader)
        EngineHooks(parts.active, parts.spider_output, self.base.jars).stand_before(engine)
        parts.closing.stand_before(engine)
        output_tasks.save_tasks(engine)
        long_links.count(self.crawler, self.base.tallies)
        self._closing = ClosingCaller(
            graph=self.graph,
            spider=self.spider,
            start=self.base.start,
            end=self.base.end,
            ends_run=self.settings.run.close_ends_run,
        )
        self._closing.stand_before(engine)

    def _all_duties(self, parts: Parts) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what goes on for as long as the crawl does, beside commits."""
        return (
            self._claim(parts),
            parts.claimer.listen(),
            parts.claimer.hear(),
            parts.claimer.watch_room(),
            parts.claimer.hand_out.run(),
            parts.stop_orders.run(),
            parts.rule_changes.run(),
            parts.limit_sync.run(),
            parts.maintenance.run(),
            parts.redirects.run(),
            parts.logins.run(),
            parts.committer.feed_starved(),
            parts.content_writer.run(),
            parts.content_writer.collect(),
            parts.waiting_requests.run(),
            parts.waiting_work.run(),
            self._start_again(parts),
        )

    def _read_spider(self) -> CallbackTasks:
        """Take the tasks that the spider declares; return those of its plain callbacks."""
        error_records.keep_source_lines()
        self.base.egress.start_at_all(getattr(self.spider, "start_urls", None))
        classes.load_modules(self.settings.safety.allowed_modules)
        self.tasks = tasks.discover(type(self.spider))
        for name, options in self.settings.results.callbacks.items():
            tasks.check_unchanged_if(type(self.spider), tasks.of_callback(name, options))
        rules = CrawlRules(self.spider)
        methods.warn_of_no_callbacks(self.settings.results.callbacks, self.spider, rules.names)
        self.settings = rules.with_options(self.settings)
        start_checks.warn_of_start_requests(self.spider)
        start_checks.warn_of_options_of_tasks(self.settings, self.tasks)
        start_checks.warn_of_cached_pages(self.crawler.settings, self.settings, self.tasks)
        kept_state.warn_of_kept_state(self.spider)
        kept_state.warn_of_given_up_retries(self.spider)
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
            "project": self.settings.run.project or str(self.crawler.settings["BOT_NAME"]),
            "tasks": self.tasks,
            "has_callback": callbacks.has,
            "callback_names": [*methods.callback_names(type(spider)), *callbacks.rules.names],
            "job": getattr(spider, "_job", None),
            "runners_job": opening.runners_job(),
            "code": code_versions.of_spider(type(spider)),
            "code_file": code_versions.file_of(type(spider)),
            "tracks_depth": self.settings.scope.least_depth,
            "depth_limit": self.crawler.settings.getint("DEPTH_LIMIT") or None,
            "source_of": callbacks.source_of,
            "on_replaced": self.base.limiters.lose,
        }

    async def _claim(self, parts: Parts) -> None:
        if not self.ends_early:
            await self._sow(parts)
        await parts.claimer.run()

    async def _sow(self, parts: Parts) -> None:
        """Apply what the spider's `seeds()` yields, unless work has opened the run again."""
        if self.is_continued:
            return
        await seeds.sow(self.spider, self._seed, parts.checks, self.base.tallies)

    async def _seed(self, operations: Sequence[Operation]) -> Sequence[Note]:
        """Apply seeds in a transaction of their own; what they attach waits for its store."""
        for seed in operations:
            if isinstance(seed, CreateItem):
                self.base.egress.starts_at(seed.data.get("url"))
        return await self.parts.content_writer.patiently(
            partial(self.graph.commits.seed, operations)
        )

    # Closing

    # The spider's `start()`

    async def from_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on what `start()` yields, but for operations, until told to stop."""
        turns = Turns()
        if self.ends_early or self.is_continued:
            return
        async for output in start:
            self.base.start.has_yielded = True
            try:
                kept = self.parts.spider_output.from_start(output)
            except ItemGraphError as wrong:
                yield_lines.show(wrong, start)
                raise
            if kept is not None:
                yield kept
            await self.parts.outbox.wait_for_room()
            if turns.is_due:
                await turns.give()
            if self.is_closing:
                return

    def start_failed(self, error: Exception) -> None:
        """Take note that `start()` raised an error, which others log."""
        self.base.start.error = f"start() raised {type(error).__name__}: {error}"
        logger.warning(
            "start() raised %s: %s; the crawl goes on with the work of the graph, and the next "
            "start goes on with this run",
            type(error).__name__,
            error,
            extra={"action": "start_failed"},
        )

    async def until_started(self) -> None:
        """Wait until the engine has what `start()` yielded last, or has no room for it.

        Scrapy alone starts each request before it asks `start()` for the next one.
        """
        parts, engine = self.parts, self.crawler.engine
        ready, unstarted = parts.active.ready, parts.enqueuer.unstarted
        assert engine is not None
        last = ready.handed_out + ready.room
        looks_in_vain = 0
        while unstarted and ready.handed_out < last and looks_in_vain < _LOOKS_IN_VAIN:
            if self.ends_early or not engine.running:
                return
            is_waiting = parts.queue or parts.outbox.pending or not parts.claimer.is_dry
            looks_in_vain = 0 if is_waiting else looks_in_vain + 1
            await asyncio.sleep(_LOOK_AGAIN)

    async def until_nothing_is_left(self) -> None:
        """Take note that `start()` has nothing more, and wait for the end of all work."""
        if not self.ends_early:
            self._start_has_ended()
            await self.base.end.over.wait()
            if self.settings.run.idle == "close":
                self._check_start()
        if self.ends_early:
            self.close_spider()

    def _start_has_ended(self) -> None:
        self.base.start.end()
        self.base.news.set()

    def _check_start(self) -> None:
        """Have the crawl end as one that failed, if nothing of its start could be stored."""
        if self.is_open and (message := self.parts.committer.of_start.failure) is not None:
            self.fail(message)

    async def _start_again(self, parts: Parts) -> None:
        """Run `seeds()` and `start()` once more whenever the database lacks what they gave it."""
        start, engine = self.base.start, self.crawler.engine
        assert engine is not None
        while True:
            await start.is_wanted_again.wait()
            await start.has_run.wait()
            start.begin_again()
            logger.info("Running seeds() and start() once more", extra={"action": "start_again"})
            await self._sow(parts)
            parts.enqueuer.operations.identities.start_again()
            try:
                async for output in self.from_start(self.spider.start()):
                    if isinstance(output, Request):
                        engine.crawl(output)
                    else:
                        await engine.scraper.start_itemproc_async(output, response=None)
            except Exception as error:
                self.start_failed(error)
                logger.exception("start(), run once more")
            self._start_has_ended()

    # Closing

    async def close(self, reason: str) -> None:
        """Commit what has ended, release the rest, and give up the graph."""
        if self._graph is not None:
            self._graph.hurry()
        if self._closing is not None:
            await self._closing.settled()
        await cancelled(self._duties)
        if self._graph is None:
            return
        try:
            if self._parts is not None:
                await self._finish(self._graph, self._parts)
        except ItemGraphError as error:
            self.fail(f"at the end of the crawl: {error}")
        finally:
            await self._close_graph(reason)

    async def _finish(self, graph: WorkerGraph, parts: Parts) -> None:
        is_run_over = parts.active.is_over and parts.closing.is_idle_end and not self.ends_early
        has_started = self.base.start.error is None  # else the next start goes on with the run
        parts.active.close()
        if parts.claimer.hand_out.making:  # their work is given back, and they are cancelled
            await asyncio.wait(parts.claimer.hand_out.making)
        if not self.base.end.is_cut_off:
            await parts.content_writer.finish()
        parts.outbox.stop()
        if self._commits is not None:
            await self._commits
        if not self.base.end.is_cut_off:
            await parts.committer.flush()
            await parts.sessions.save()
            if is_run_over and has_started:
                await parts.claimer.no_work_left.end_run()
            for hook in self._before_closing:
                await hook()
            await parts.limit_sync.save()
        claimer = parts.claimer
        has_news = claimer.hand_out.begun or not claimer.no_work_left.has_said_idle
        if self.failure is None and has_news and not graph.run.is_closed:
            await log_summary(graph)
        if self.base.end.over.is_set() and not self.ends_early:
            await warn_of_fresh_lists(graph, self.settings.results.incremental_callbacks)

    async def _close_graph(self, reason: str) -> None:
        graph, self._graph = self.graph, None
        if self._last_error is not None:
            self._last_error.end()
        uses = self.base.limiters.uses({})
        if self._parts is not None:
            self._parts.gate.abandon()
        try:
            error = self.failure or self.base.start.error
            if self.base.start.error is not None and reason == "finished":
                reason = "start_error"  # as Scrapy 2.19 says; older ones do not
            told = self.base.tallies.take_all()
            await graph.close(
                reason, uses, told, error=error, last=partial(self._say_end, graph, reason)
            )
        except ItemGraphError as error:  # what is claimed waits for the lease, or the next run
            self.fail(f"at the end of the crawl: {error}")

    async def _say_end(self, graph: WorkerGraph, reason: str) -> None:
        """Say what becomes of a run that its spider has closed; the worker has left it."""
        if graph.run.is_closed:
            await graph.run.hold_own()
            if self.failure is None:
                await log_summary(graph)
        by_spider = self._closing is not None and self._closing.is_by_spider
        if self.failure is None and (graph.run.is_closed or by_spider):
            closing_caller.say_end(graph.run, reason)

    # What ends the crawl

    def fail(self, message: str) -> None:
        """Close the spider because of an error that it cannot go on with."""
        self.base.end.fail(message)

    @property
    def failure(self) -> str | None:
        """The message of the error that ended the crawl."""
        return self.base.end.failure

    def close_spider(self) -> None:
        """Close the spider because of the failure, or because it was told to stop."""
        self.base.end.close_spider()
