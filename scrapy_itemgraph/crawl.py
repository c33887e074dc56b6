"""One crawler's parts: its graph, its executions, and what runs beside Scrapy's engine."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph import operations, tasks, translation
from scrapy_itemgraph.committer import Committer
from scrapy_itemgraph.context import Item
from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    ForeignOutputError,
    ItemGraphError,
    OperationError,
)
from scrapy_itemgraph.executions import Execution, Leg, LegState
from scrapy_itemgraph.graph import CrawlGraph
from scrapy_itemgraph.operations import Changeset, CreateItem, Operation
from scrapy_itemgraph.types import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.tasks import Task
    from scrapy_itemgraph.types import Applied, Claim

logger = logging.getLogger(__name__)

ERROR_REASON = "itemgraph_error"
_SEED_CHUNK = 500
_POLL = {"close": 1.0, "wait": 5.0}
_TEND_EVERY = 1.0
_SWEEP_EVERY = 10.0

_MOST_UNKNOWN_TAGS = 20
_OF_CRAWLER = "_itemgraph_crawl"  # on the crawler, to go with it


def of(crawler: Crawler) -> Crawl:
    """Return the crawl of a crawler; the components of one crawler share it."""
    crawl: Crawl | None = getattr(crawler, _OF_CRAWLER, None)
    if crawl is None:
        crawl = Crawl(crawler)
        setattr(crawler, _OF_CRAWLER, crawl)
    return crawl


class Crawl:
    """A running crawl: claims work, starts executions, commits them, and knows the end."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = translation.read_settings(crawler.settings)
        self.judge = translation.Judge(
            crawler.settings, max_retry_after=self.settings.max_retry_after
        )
        self.tasks: Mapping[str, Task] = {}
        self.executions: set[Execution] = set()
        self._working: set[Execution] = set()  # those of claims
        self.unhanded = 0
        self.has_started = False
        self.is_over = False
        self.failure: str | None = None
        self._is_cut_off = False
        self.ended = asyncio.Event()
        self.on_fetched: Callable[[Leg], None] = lambda _: None  # the scheduler's
        self._graph: CrawlGraph | None = None
        self._wake = asyncio.Event()
        self._is_dry = False
        self._is_seeded = False
        self._claimed = 0
        self._has_said_idle = False
        self._known_tags: set[str] = set()
        self._unknown_tags: set[str] = set()
        self._are_more_tags_unknown = False
        self._running: list[asyncio.Task[None]] = []
        self._commits: asyncio.Task[None] | None = None
        self._missed: set[Leg] = set()
        self._limit = crawler.settings.getint("CONCURRENT_REQUESTS") + self.settings.claim_batch
        self.committer = Committer(
            self._commit,
            stats=crawler.stats,
            batch=self.settings.commit_batch,
            interval=self.settings.commit_interval,
            is_quiet=lambda: not self.executions,
            on_commit=self._committed,
        )

    @property
    def spider(self) -> Spider:
        """The crawler's spider."""
        assert self.crawler.spider is not None
        return self.crawler.spider

    @property
    def graph(self) -> CrawlGraph:
        """The open graph."""
        assert self._graph is not None
        return self._graph

    # Opening and closing

    async def open(self) -> None:
        """Open the graph and start claiming; on an error say so, and let the spider not run."""
        try:
            self.tasks = tasks.discover(type(self.spider))
            self._known_tags = {tag for task in self.tasks.values() for tag in task.tags}
            self._graph = await CrawlGraph.open(
                self.settings,
                crawl=translation.crawl_name(self.settings.crawl, self.spider),
                spider=self.spider.name,
                tasks=self.tasks,
                arguments=translation.digests(translation.spider_arguments(self.spider)),
                job=getattr(self.spider, "_job", None),
            )
        except ItemGraphError as error:
            self.fail(str(error))
            return
        self._commits = asyncio.create_task(self._guarded(self.committer.run()))
        for duty in (self._refill(), self._tend()):
            self._running.append(asyncio.create_task(self._guarded(duty)))

    async def close(self, reason: str) -> None:
        """Commit what has ended, release the rest, and give up the graph."""
        await _cancelled(self._running)
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
            if self.failure is None and (self._claimed or not self._has_said_idle):
                await self._log_summary()
        except ItemGraphError as error:
            self.fail(f"at the end of the crawl: {error}")
        finally:
            await self._close_graph(reason)

    async def _close_graph(self, reason: str) -> None:
        graph, self._graph = self.graph, None
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
            self._closing = asyncio.ensure_future(engine.close_spider_async(reason=ERROR_REASON))

    # Executions

    def begin(
        self, *, claim: Claim | None = None, task: Task | None = None, url: str = ""
    ) -> Execution:
        """Start an execution: of a claim, or of a request that belongs to none."""
        if claim is None:
            where = f"spider {self.spider.name}, {url or 'start()'}"
        else:
            where = f"spider {self.spider.name}, task {claim.task}, item {claim.item.id}"
        execution = Execution(where=where, claim=claim, task=task, on_end=self._ended)
        self.executions.add(execution)
        if claim is not None:
            self._working.add(execution)
        self.is_over = False
        return execution

    def error_of(
        self, execution: Execution, error: BaseException, *, kind: str | None = None, url: str = ""
    ) -> dict[str, Any]:
        """Return an error as it is recorded with the execution's attempt."""
        where = {"spider": self.spider.name}
        if execution.claim is not None:
            where |= {"task": execution.claim.task, "item": execution.claim.item.id}
        return translation.describe(error, where, kind=kind, url=url)

    def apply(self, changes: Sequence[Operation], where: str) -> None:
        """Commit operations that belong to no execution."""
        if changes:
            self.is_over = False
            self.committer.add(Changeset(operations=tuple(changes), outcome=Outcome.OK), where)

    def wake(self) -> None:
        """Let the claiming loop look again, if there is something to claim, or the end is near."""
        if self._is_quiet or self._room() > 0:
            self._wake.set()

    def _forget(self, execution: Execution) -> None:
        self.executions.discard(execution)
        self._working.discard(execution)

    def _ended(self, execution: Execution) -> None:
        self._forget(execution)
        if execution.claim is not None or execution.operations:
            self.committer.add(execution.changeset(), execution.where)
        else:
            self.committer.nudge()
        self.wake()

    def _committed(self, _applied: Sequence[Applied]) -> None:
        self._is_dry = False
        self.wake()

    async def _commit(self, changesets: Sequence[Changeset]) -> list[Applied]:
        return await self.graph.commit(changesets)

    # Checking what spiders yield

    def checked(self, operation: Operation, execution: Execution | None, where: str) -> Operation:
        """Return `operation` as it can be stored, or raise an OperationError that says why not."""
        operation = operations.checked(operation, where)
        name = type(operation).__name__
        task = getattr(operation, "task", None)
        if task is not None and task not in self.tasks:
            hint = tasks.closest(task, self.tasks)
            raise OperationError(f"{where}: {name}: task {task!r} is no task of this spider{hint}")
        if execution is None or execution.claim is None:
            _check_names(operation, where)
        for tag in _tags_of(operation):
            self._check_tag(tag, where)
        return operation

    def _check_tag(self, tag: str, where: str) -> None:
        if tag in self._known_tags or tag in self._unknown_tags:
            return
        if len(self._unknown_tags) == _MOST_UNKNOWN_TAGS:
            self._say_once_that_more_tags_are_unknown()
            return
        hint = tasks.closest(tag, self._known_tags)
        self._unknown_tags.add(tag)
        logger.warning(
            "%s: no task of the spider is called for by the tag %r%s",
            where,
            tag,
            hint,
            extra={"action": "unknown_tag", "tag": tag},
        )

    def _say_once_that_more_tags_are_unknown(self) -> None:
        if not self._are_more_tags_unknown:
            self._are_more_tags_unknown = True
            logger.warning(
                "There are more tags than these %d that no task of the spider is called for by; "
                "they are not named",
                _MOST_UNKNOWN_TAGS,
                extra={"action": "unknown_tag"},
            )

    # Seeds

    async def _seed(self) -> None:
        seeds = getattr(self.spider, "seeds", None)
        if callable(seeds):
            chunk: list[Operation] = []
            async for seed in _iterate(seeds()):
                chunk.append(self._checked_seed(seed))
                if len(chunk) == _SEED_CHUNK:
                    await self._apply_seeds(chunk)
                    chunk = []
            await self._apply_seeds(chunk)
        self._is_seeded = True

    async def _apply_seeds(self, chunk: list[Operation]) -> None:
        if chunk:
            await self.graph.seed(chunk)

    def _checked_seed(self, seed: Any) -> Operation:
        where = f"spider {self.spider.name}, seeds"
        if not isinstance(seed, Operation):
            raise ForeignOutputError(
                f"{where}: yielded {type(seed).__name__} {seed!r:.80}; seeds are operations"
            )
        if isinstance(seed, CreateItem) and seed.is_id_drawn:
            raise OperationError(
                f"{where}: CreateItem without an id would be a new item at every start; give it one"
            )
        return self.checked(seed, None, where)

    # Claiming

    async def _refill(self) -> None:
        try:
            await self._seed()
        except ItemGraphError:
            raise
        except Exception as error:
            logger.exception("spider %s: seeds raised an error", self.spider.name)
            raise ItemGraphError(
                f"spider {self.spider.name}: seeds: {type(error).__name__}: {error}"
            ) from None
        while True:
            self._wake.clear()
            if await self._claim():
                continue
            timeout = await self._look_for_end()
            await self._pause(timeout)

    @property
    def _is_quiet(self) -> bool:
        return not self.executions and not self.committer.pending

    def _room(self) -> int:
        batch = self.settings.claim_batch
        if self._is_dry or self.unhanded > batch // 2 or not self.crawler.engine.running:
            return 0
        if any(one.claim is not None and one.claim.is_alone for one in self._working):
            return 0
        held = len(self._working) + self.committer.pending
        return min(batch - self.unhanded, self._limit - held)

    async def _claim(self) -> bool:
        room = self._room()
        if room <= 0:
            return False
        claims = await self.graph.claim(room)
        if not claims and self._is_quiet:
            claims = await self.graph.claim(1, alone=True)
        for claim in claims:
            await self._start(claim)
        self._is_dry = not claims
        return bool(claims)

    async def _start(self, claim: Claim) -> None:
        self._claimed += 1
        self.crawler.stats.inc_value("itemgraph/claimed")
        task = self.tasks[claim.task]
        execution = self.begin(claim=claim, task=task)
        execution.item = Item.claimed(claim, self.graph)
        leg = execution.open_leg(is_own=True)
        try:
            request = translation.build_request(self.spider, task, execution.item)
        except Exception as error:  # noqa: BLE001 - whatever the user's request= raises
            kind = "request" if isinstance(error, ItemGraphError) else None
            execution.fail(self.error_of(execution, error, kind=kind))
            leg.close()
            return
        slot = translation.slot_of(request)
        if slot != claim.slot and not claim.is_refiled:
            self._forget(execution)
            self.crawler.stats.inc_value("itemgraph/refiled")
            await self.graph.refile(claim, slot)
            return
        self._hand(request, leg)

    def _hand(self, request: Request, leg: Leg) -> None:
        leg.is_retryable = not request.meta.get("dont_retry")
        request.meta.update({"dont_retry": True, translation.LEG: leg})
        self.crawler.engine.crawl(request)
        if leg.state is LegState.OFFERED:
            why = ItemGraphError(
                "Scrapy's offsite filter (allowed_domains) or another handler of request_scheduled "
                "refused the request"
            )
            leg.execution.refuse(self.error_of(leg.execution, why, kind="refused", url=request.url))
            leg.close()

    async def _pause(self, longest: float) -> None:
        """Wait until there is something to look at: our own doing, a NOTIFY, or the time."""
        own = asyncio.ensure_future(self._wake.wait())
        others = asyncio.ensure_future(self.graph.wait(longest))
        try:
            await asyncio.wait({own, others}, return_when=asyncio.FIRST_COMPLETED)
            if others.done():
                others.result()
                self._is_dry = False
        finally:
            await _cancelled([own, others])

    async def _look_for_end(self) -> float:
        """Set `ended` when nothing is left to do; return how long to wait before looking again."""
        poll = _POLL[self.settings.idle]
        if not self.has_started or not self._is_quiet or not self._is_dry or self.is_over:
            return poll
        remaining = await self.graph.remaining()
        if not (self._claimed or self._has_said_idle or remaining.has_some):
            self._has_said_idle = True
            await self._say_why_idle()
        if self.settings.idle == "wait" or not self._is_quiet:
            return poll
        if remaining.is_over:
            self.is_over = True
            self.ended.set()
            return poll
        return poll if remaining.next_retry is None else min(poll, max(remaining.next_retry, 0.05))

    async def _say_why_idle(self) -> None:
        """Say that there is nothing to do, why, and what would change that."""
        logger.info("Nothing to do now", extra={"action": "idle"})
        await self._log_summary()
        logger.info(
            "To run what is fresh: scrapy itemgraph expire ID, another version= of its task, or "
            "wait for its ttl; to add work: seeds, or scrapy itemgraph add",
            extra={"action": "idle"},
        )

    async def _log_summary(self) -> None:
        for line in (await self.graph.summary()).lines():
            logger.info("%s", line, extra={"action": "summary"})

    # Tending

    async def _tend(self) -> None:
        swept = time.monotonic()
        while True:
            if await self.graph.tend():
                self._is_dry = False
                self.wake()
                await asyncio.sleep(0)
                continue
            if time.monotonic() - swept > _SWEEP_EVERY:
                swept = time.monotonic()
                self._sweep()
            await asyncio.sleep(_TEND_EVERY)

    def _sweep(self) -> None:
        """Close legs whose request the engine no longer has; twice missed is forgotten."""
        engine = self.crawler.engine
        scraping = engine.scraper.slot
        if scraping is None:
            return
        known = engine.downloader.active | scraping.active | {entry[1] for entry in scraping.queue}
        missed = {
            leg
            for execution in self.executions
            for leg in execution.legs
            if leg.state is LegState.RUNNING and leg.request not in known
        }
        forgotten, self._missed = missed & self._missed, missed
        for leg in forgotten:
            self.crawler.stats.inc_value("itemgraph/legs_forgotten")
            lost = ItemGraphError("Scrapy dropped the request without telling anyone")
            leg.execution.fail(
                self.error_of(leg.execution, lost, kind="forgotten", url=leg.request.url)
            )
            leg.close()


def _check_names(operation: Operation, where: str) -> None:
    for name in operation._ids:  # noqa: SLF001 - what the operation says of itself
        if getattr(operation, name, "") is None:
            raise OperationError(
                f"{where}: {type(operation).__name__}: outside a task's execution {name}= is needed"
            )


def _tags_of(operation: Operation) -> Any:
    if isinstance(operation, CreateItem):
        return operation.tags
    return (operation.tag,) if isinstance(operation, operations.AddTag) else ()


async def _iterate(given: Any) -> AsyncIterator[Any]:
    if hasattr(given, "__await__"):
        given = await given
    if hasattr(given, "__aiter__"):
        async for one in given:
            yield one
    else:
        for one in given or ():
            yield one


async def _cancelled(running: Sequence[asyncio.Future[Any]]) -> None:
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
