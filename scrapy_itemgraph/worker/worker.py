"""One crawler's parts: its graph, its executions, and what runs beside Scrapy's engine."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, ItemGraphError
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model import tasks, values
from scrapy_itemgraph.model.limits import MANY
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.types import Outcome
from scrapy_itemgraph.serialize import classes, requests
from scrapy_itemgraph.settings import Settings, project_directory
from scrapy_itemgraph.throttle.download_gate import Gate
from scrapy_itemgraph.throttle.feedback import SHORT_BLOCK, SiteFeedback
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.throttle.local_slots import AutoThrottle, LocalSlots
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker.committer import Committer
from scrapy_itemgraph.worker.executions.executions import Execution, leg_of
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
from scrapy_itemgraph.worker.spider import methods, request_builder
from scrapy_itemgraph.worker.spider.cookies import Jars, State
from scrapy_itemgraph.worker.spider.validation import Checks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from uuid import UUID

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.types import Applied, Claim, Scraped
    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.worker.executions.executions import Leg

logger = logs.logger(__name__)

T = TypeVar("T")

ERROR_REASON = "itemgraph_error"
GONE_REASON = "itemgraph_database_gone"
_OF_CRAWLER = "_itemgraph_worker"  # on the crawler, to go with it


def of(crawler: Crawler) -> Worker:
    """Return the crawl of a crawler; the components of one crawler share it."""
    worker: Worker | None = getattr(crawler, _OF_CRAWLER, None)
    if worker is None:
        worker = Worker(crawler)
        setattr(crawler, _OF_CRAWLER, worker)
    return worker


class Worker:
    """A running crawl: its graph, its executions, and its commits."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = Settings.of_project(crawler.settings)
        self.judge = request_builder.Judge(
            crawler.settings, max_retry_after=self.settings.max_retry_after
        )
        self.tasks: Mapping[str, Task] = {}
        self.executions: set[Execution] = set()
        self.working: set[Execution] = set()  # those of claims
        self.claimed = 0
        self.has_started = False
        self.is_over = False
        self.has_said_idle = False
        self.freed_meanwhile = False  # names of the crawl, during the last commit
        self.failure: str | None = None
        self.ended = asyncio.Event()
        # The scheduler's, the claiming's and the discoveries' ears.
        self.on_fetched: Callable[[Leg], None] = lambda _: None
        self.on_count: Callable[[], int] = lambda: 0  # of the requests that the engine has
        self.on_news: Callable[[], None] = lambda: None
        self.on_applied: Callable[[Execution, Applied], Coroutine[Any, Any, None]] = nothing
        self.on_yielded: Callable[[Request, Leg], None] = lambda *_: None
        self.on_expired: Callable[[Leg, Exception], None] = lambda *_: None
        self.on_blocked: Callable[[Limiter], None] = lambda _: None
        self.on_closing: Callable[[], Coroutine[Any, Any, None]] = nothing
        # The feeds'.
        self.before_commit: Callable[[], Coroutine[Any, Any, None]] = nothing
        self.before_closing: Callable[[], Coroutine[Any, Any, None]] = nothing
        slots = LocalSlots(crawler)
        self.limiters = Limiters(slots.terms, slots.delay)
        self.autothrottle = AutoThrottle(crawler.settings)
        self.feedback = SiteFeedback(
            self.limiters,
            self.autothrottle,
            agent=crawler.settings["ROBOTSTXT_USER_AGENT"] or crawler.settings["USER_AGENT"],
            longest=self.settings.max_retry_after,
            learns_delays=self.settings.learn_delays,
            on_block=self._blocked,
        )
        self.gate = Gate(self.limiters, slots.adopt, self)
        self.handing = ReadyRequests(
            working=lambda: self.working,
            running=lambda: self.on_count(),  # noqa: PLW0108 - set later
            places_of=self._places_of,
            concurrency=crawler.settings.getint("CONCURRENT_REQUESTS"),
            most_ahead=self.settings.claim_batch,
        )
        self.settling = asyncio.Lock()  # one at a time takes limits and gives them up
        self._is_cut_off = False
        self._graph: WorkerGraph | None = None
        self._checks: Checks | None = None
        self.jars = Jars(crawler)
        self._state: State | None = None
        self._unregistered: dict[str, Task] = {}
        self._duties: list[asyncio.Task[None]] = []
        self._commits: asyncio.Task[None] | None = None
        self.committer = Committer(
            self._commit,
            stats=crawler.stats,
            batch=self.settings.commit_batch,
            interval=self.settings.commit_interval,
            is_quiet=lambda: not self.under_way,
            on_commit=lambda _: self.on_news(),
        )

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
    def checks(self) -> Checks:
        """What checks the spider's operations; there once the graph is open."""
        assert self._checks is not None
        return self._checks

    @property
    def under_way(self) -> Collection[Execution]:
        """The executions that may go on now: not those that wait while something runs alone."""
        if self.handing.is_holding:
            return self.executions - self.handing.untouched
        return self.executions

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way in this process."""
        return not self.executions and not self.committer.pending

    # Opening and closing

    async def open(self, *duties: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the graph and start the duties; on an error say so, and let the spider not run."""
        self._state = State(self.spider)
        try:
            classes.load_modules(self.settings.allowed_modules)
            self.tasks = tasks.discover(type(self.spider))
            for name, options in self.settings.callbacks.items():
                tasks.of_callback(name, options)
            request_builder.warn_of_no_callbacks(self.settings.callbacks, self.spider)
            self._graph = await WorkerGraph.open(
                self.settings,
                crawl=request_builder.crawl_name(self.settings.crawl, self.spider),
                spider=self.spider.name,
                tasks=self.tasks,
                of_callback=self.task_of_callback,
                has_callback=self._has_callback,
                callback_names=methods.callback_names(type(self.spider)),
                arguments=request_builder.digests(request_builder.spider_arguments(self.spider)),
                job=getattr(self.spider, "_job", None),
                source_of=self._source_of,
            )
            self._say_where()
            await self._say_what_is_resumed()
            await self.refresh_state()
        except ItemGraphError as error:
            self.fail(str(error))
            return
        self._checks = Checks(self.tasks, self.graph.callbacks)
        self.gate.stand_before(self.crawler.engine.downloader)
        self.graph.on_replaced = self.limiters.lose
        self._commits = asyncio.create_task(self._guarded(self.committer.run()))
        duties = (*duties, self._tell_of_starved)
        self._duties += [asyncio.create_task(self._guarded(duty())) for duty in duties]

    def _say_where(self) -> None:
        """Say where an embedded graph is when no project says it: an egg, or runspider."""
        if self.settings.database_url is None and project_directory() is None:
            logger.info(
                "The item graph is in %s, under the working directory, for there is no scrapy.cfg; "
                "ITEMGRAPH_DATA_DIR puts it elsewhere",
                self.settings.data_dir,
                extra={"action": "data_dir"},
            )

    async def _say_what_is_resumed(self) -> None:
        """Say what an earlier start of a run that is not over has left, and what it has done."""
        if not self.graph.is_resumed:
            return
        line = (await self.graph.summary()).resuming
        if line is not None:
            logger.info("%s", line, extra={"action": "resuming"})

    def stopping(self) -> None:
        """Take note that nothing new begins any more; what is under way comes to its end."""
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
            for execution in list(self.executions):
                execution.release()
                for leg in list(execution.legs):
                    leg.close()
            self.committer.stop()
            if self._commits is not None:
                await self._commits
            if not self._is_cut_off:
                await self.committer.flush()
                await self.save_session()
                await self.before_closing()
                await self.on_closing()
            self.graph.last_uses = self.limiters.final_uses()
            if self.failure is None and (self.claimed or not self.has_said_idle):
                await self.log_summary()
        except ItemGraphError as error:
            self.fail(f"at the end of the crawl: {error}")
        finally:
            await self._close_graph(reason)

    async def _close_graph(self, reason: str) -> None:
        graph, self._graph = self.graph, None
        self.gate.abandon()
        try:
            await graph.close(reason)
        except ItemGraphError as error:  # what is claimed waits for the lease, or the next run
            self.fail(f"at the end of the crawl: {error}")

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

    async def log_summary(self) -> None:
        """Log what the crawl has and what is left, and why."""
        for line in (await self.graph.summary()).lines():
            logger.info("%s", line, extra={"action": "summary"})

    # What the gate asks and tells

    @property
    def is_alive(self) -> bool:
        """Whether this process may let anything start: the database takes it to be alive."""
        return self._graph is not None and self._graph.lives

    leg_of = staticmethod(leg_of)

    def more_may_start(self) -> None:
        """Have the engine ask the scheduler for more requests."""
        self.handing.on_ready()

    def turned_away(self) -> None:
        """Give back all work: what it relies on may have failed for no fault of its own."""
        self._release()

    def starting(self, request: Request) -> None:
        """Take note that a request is at the gate."""
        self.feedback.starting(request)

    def answered(self, request: Request, response: Response, lane: Lane) -> None:
        """Take note of what a site answered."""
        self.feedback.answered(request, response, lane)

    def _blocked(self, limiter: Limiter, seconds: float) -> None:
        self.crawler.stats.inc_value("itemgraph/blocked")
        if seconds > SHORT_BLOCK:
            self.on_blocked(limiter)

    # Limits

    def limits_of(self, leg: Leg | None) -> tuple[int, ...]:
        """Return the numbers of the limits that a request keeps to, beside its slot."""
        if self._graph is None:
            return ()
        limiting = self._graph.limiting
        is_claimed = leg is not None and leg.execution.claim is not None
        numbers = leg.execution.limits if leg is not None and is_claimed else limiting.of_strays
        for number in numbers:
            limit = limiting.declared[number]
            self.limiters.declare(
                number,
                (limit.kind, limit.name),
                limit.terms,
                first_delay=self.autothrottle.first if limit.throttles else None,
            )
        return numbers

    def unbegun(self) -> Counter[Limiter]:
        """Count the requests in hand that have not started, by what they keep to."""
        return Counter(
            one
            for execution in self.executions
            for leg in execution.legs
            if not leg.has_started
            for one in leg.lane
        )

    # Tasks of plain callbacks

    def task_of_callback(self, name: str) -> Task:
        """Return the task of a plain callback."""
        options = self.settings.callbacks.get(name.removeprefix(tasks.SET_ASIDE), {})
        return tasks.of_callback(name, options)

    def _source_of(self, name: str) -> UUID | None:
        """Return a digest of the code of a task or plain callback, as far as there is one."""
        declared = self.tasks.get(name)
        method = declared.method if declared else name.removeprefix(tasks.SET_ASIDE)
        return methods.source_of(self.spider, method)

    def _has_callback(self, name: str) -> bool:
        return requests.has_method(self.spider, name.removeprefix(tasks.SET_ASIDE))

    def meet_callback(self, name: str) -> str:
        """Return the name of a plain callback's task, which will be there at the next commit."""
        aside = tasks.SET_ASIDE + name
        if name in self.tasks or aside in self.graph.callbacks:
            name = aside
        if name not in self.graph.callbacks and name not in self._unregistered:
            self._unregistered[name] = self.task_of_callback(name)
        return name

    # Executions

    def begin(
        self, *, claim: Claim | None = None, task: Task | None = None, url: str = ""
    ) -> Execution:
        """Start an execution: of a claim, or of a request that belongs to none."""
        if claim is None:
            where = f"spider {self.spider.name}, {url or 'start()'}"
        elif task is not None and task.is_callback:
            shown = values.page(*values.page_of(claim.item.data)) or claim.item.id
            where = f"spider {self.spider.name}, callback {claim.task}, {shown}"
        else:
            shown = values.label(claim.item.id, claim.item.data)
            where = f"spider {self.spider.name}, task {claim.task}, item {shown}"
        where = wording.one_line(where)  # it stands in log lines and errors
        execution = Execution(
            where=where,
            claim=claim,
            task=task,
            on_end=self._ended,
            most=self.settings.max_operations,
        )
        self.executions.add(execution)
        if claim is not None:
            self.working.add(execution)
        self.is_over = False
        return execution

    def _release(self) -> None:
        """Give back all work: what it relies on may have failed for no fault of its own."""
        for execution in list(self.working):
            execution.release()

    def start_ended(self) -> None:
        """Take note that `start()` has nothing more."""
        self.has_started = True
        self.on_news()

    def forget(self, execution: Execution) -> None:
        """Have nothing more to do with an execution."""
        self.executions.discard(execution)
        self.working.discard(execution)

    def error_of(
        self, execution: Execution, error: BaseException, *, kind: str | None = None, url: str = ""
    ) -> dict[str, Any]:
        """Return an error as it is recorded with the execution's attempt."""
        where = {"spider": self.spider.name}
        if execution.claim is not None:
            where |= {"task": execution.claim.task, "item": execution.claim.item.id}
        return request_builder.describe(error, where, kind=kind, url=url)

    def apply(
        self, changes: Sequence[Operation], where: str, *, scraped: Sequence[Scraped] = ()
    ) -> None:
        """Commit operations and scraped items that belong to no execution."""
        if changes or scraped:
            self.is_over = False
            changeset = Changeset(
                operations=tuple(changes), outcome=Outcome.OK, scraped=tuple(scraped)
            )
            self.committer.add(changeset, where)

    def _ended(self, execution: Execution) -> None:
        self.forget(execution)
        if execution.claim is not None or execution.has_changes:
            self.committer.add(
                execution.changeset(),
                execution.where,
                lambda applied: self.on_applied(execution, applied),
            )
        else:
            self.committer.nudge()
        self.on_news()

    async def _commit(self, changesets: Sequence[Changeset]) -> list[Applied]:
        if self._unregistered:
            new = dict(self._unregistered)
            await self.graph.register_callbacks(new.values())
            for name in new:
                del self._unregistered[name]
        await self.before_commit()
        cookies, state = self.jars.unsaved(), self.state.changed()
        freed = self.graph.names_freed
        handing = self.handing.next()
        try:
            applied = await self.graph.commit(
                changesets, cookies=cookies, state=state, handing=handing
            )
        finally:
            self.handing.settle(handing)
        self.freed_meanwhile = self.graph.names_freed != freed
        self.jars.saved(cookies)
        self.state.saved(state)
        return applied

    # What the engine gets

    def _places_of(self, slot: str) -> int:
        """Return how many requests of a slot may start, though it was got only just now."""
        limiter = self.limiters.slot(slot)
        if limiter is None:
            return MANY
        if limiter.units:
            return limiter.places(time.monotonic())
        terms = limiter.terms_of()
        return 1 if terms.is_exclusive else terms.concurrency or MANY

    async def _tell_of_starved(self) -> None:
        """Tell the database what starts next where no other transaction did so in time."""
        while True:
            await self.handing.wanted.wait()
            self.handing.wanted.clear()
            handing = self.handing.next(is_starved=True)
            if handing is None:
                continue
            try:
                await self.graph.hand(handing)
            finally:
                self.handing.settle(handing)

    # Sessions

    @property
    def state(self) -> State:
        """What is kept of `spider.state`."""
        assert self._state is not None
        return self._state

    async def save_session(self) -> None:
        """Save cookies and state that no commit has saved yet."""
        cookies, state = self.jars.unsaved(), self.state.changed(is_last=True)
        if cookies or state:
            await self.graph.commit([], cookies=cookies, state=state)
            self.jars.saved(cookies)
            self.state.saved(state)

    async def refresh_cookies(self, requests: Iterable[Request]) -> None:
        """Take over what other processes have saved of the cookies that requests may send."""
        if not self.graph.has_cookies:
            return
        read = self.jars.wanted(requests)
        if read.pairs:
            found, read_at = await self.graph.sessions.load_cookies(read.pairs)
            self.jars.merge(read, found, read_at)

    async def refresh_state(self) -> None:
        """Take over the state that other processes have saved."""
        read = self.state.reading()
        self.state.merge(read, await self.graph.sessions.load_state())


async def nothing(*_: Any) -> None:
    """Do nothing."""


async def either(event: asyncio.Event, other: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Wait until an event is set or something else ends, which is cancelled otherwise.

    It may end as it is cancelled; then its result counts as well.
    """
    own, others = asyncio.ensure_future(event.wait()), asyncio.ensure_future(other)
    try:
        await asyncio.wait({own, others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled([own, others])
    return others


async def cancelled(running: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
