"""Takes work from the graph as it is needed, and knows the end of the crawl."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ItemGraphError, RefusedUrlError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import SetTTL
from scrapy_itemgraph.model.work import UNMADE, ClaimBudget
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import either
from scrapy_itemgraph.worker.downloads import request_slots
from scrapy_itemgraph.worker.executions.context import ItemContext
from scrapy_itemgraph.worker.executions.execution import LegState, request_legs
from scrapy_itemgraph.worker.spider import request_builder, validation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.claim_pace import ClaimPace
    from scrapy_itemgraph.worker.downloads.download_gate import Gate
    from scrapy_itemgraph.worker.downloads.downloader_slots import DownloaderSlots
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.session_sync import SessionSync

logger = logs.logger(__name__)

_SOON = 0.005  # seconds at least between two claims
_MOST_HELD_UP = 500  # executions beside the usual at most, while blocked slots hold them up
_BATCH = 25  # ordinary requests after which what must run alone has its turn
_LONGEST_DRAIN = 30.0  # seconds at most that this waits for those under way
_POLL = {"close": 1.0, "wait": 5.0}  # seconds without news, by ITEMGRAPH_IDLE
_LONGEST_POLL = 10.0  # where many workers share the crawl


@dataclass(slots=True, eq=False)
class _Turn:
    """The turn of what must run alone: after each ordinary batch, and no longer than that took."""

    _handed_out: int = 0  # when the last turn ended
    _ended_at: float = field(default_factory=time.monotonic)
    _began_at: float = 0.0
    _waits_since: float = 0.0
    _least: int = _BATCH

    def is_due(self, handed_out: int, is_idle: bool) -> bool:
        """Whether a turn may begin: so many requests were handed out, or nothing else is to do."""
        return is_idle or handed_out - self._handed_out >= self._least

    def begin(self) -> None:
        """Begin a turn, which waits for what is under way."""
        self._began_at = self._waits_since = time.monotonic()

    def goes_on(self) -> None:
        """Take note that a suspect runs: the next one waits for it, however long it takes."""
        self._waits_since = math.inf

    def takes_too_long(self) -> bool:
        """Whether what is under way has been waited for long enough."""
        return time.monotonic() - self._waits_since > _LONGEST_DRAIN

    def is_over(self) -> bool:
        """Whether it has lasted as long as the ordinary work before it."""
        if self._waits_since < math.inf:  # the first one
            return False
        ordinary = max(1.0, self._began_at - self._ended_at)
        return time.monotonic() - self._began_at > ordinary

    def end(self, handed_out: int) -> None:
        self._handed_out, self._ended_at = handed_out, time.monotonic()
        self._least = _BATCH

    def put_off(self, handed_out: int) -> None:
        """End a turn that did not come to anything; the next one is later."""
        self.end(handed_out)
        self._least = 20 * _BATCH


@dataclass(slots=True, eq=False, repr=False)
class Claimer:
    """Keeps the scheduler's buffer of claimed work from running dry."""

    graph: WorkerGraph
    active: ActiveExecutions
    ready: ReadyRequests
    queue: EngineRequests
    crawler: Crawler
    spider: Spider
    outbox: Outbox
    limiters: Limiters
    slots: DownloaderSlots
    gate: Gate
    sessions: SessionSync
    callbacks: CallbackTasks
    tasks: Mapping[str, Task]
    settings: Settings
    limits_lock: asyncio.Lock  # held while limits are taken
    start_ended: asyncio.Event  # `start()` has nothing more
    pace: ClaimPace
    room: asyncio.Event  # an execution ended
    news: asyncio.Event  # there may be work where there was none
    ended: asyncio.Event  # set here: nothing is left to do
    claimed: int = 0
    has_said_idle: bool = False
    _is_dry: bool = False
    _again_at: float = math.inf  # a moment of time.monotonic
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: _Turn = field(default_factory=_Turn)

    def wake(self) -> None:
        """Look again, if there is something to claim, or the end is near."""
        if self.ready.is_holding or self.active.is_quiet or (not self._rest() and self._room() > 0):
            self._wake.set()

    async def listen(self) -> None:
        """Look again whenever there may be work where there was none, until told to stop."""
        while True:
            await self.news.wait()
            self.news.clear()
            self._is_dry = False
            self.wake()

    async def watch_room(self) -> None:
        """Look again whenever an execution ended, until told to stop."""
        while True:
            await self.room.wait()
            self.room.clear()
            self.wake()

    async def run(self) -> None:
        """Claim until told to stop."""
        while True:
            self._wake.clear()
            if await self._claim_suspect() or await self._claim():
                continue
            timeout = await self._look_for_end()
            again_in = max(_SOON, self._again_at - time.monotonic())
            await self._pause(min(timeout, again_in, self._rest() or math.inf))
            if self._again_at <= time.monotonic():
                self._again_at = math.inf

    # Claims

    def _room(self) -> int:
        batch, unhanded = self.pace.batch, len(self.ready)
        if self._is_dry or unhanded > batch // 2 or not self._is_running:
            return 0
        if self.ready.is_holding:
            return 0
        if any(work.claim is not None and work.claim.is_alone for work in self.active.working):
            return 0
        held = len(self.active.working) + self.outbox.excess
        if self.gate.held_up:  # pages in hand may be waiting for something of a blocked slot
            scraping = sum(execution.is_scraping for execution in self.active.working)
            held -= min(scraping, _MOST_HELD_UP)
        most = self.crawler.settings.getint("CONCURRENT_REQUESTS") + batch
        return min(batch - unhanded, most - held)

    def _rest(self) -> float:
        """Return in how many seconds to claim again; 0 for at once."""
        return self.pace.due_in(len(self.ready), time.monotonic())

    @property
    def _is_running(self) -> bool:
        engine = self.crawler.engine
        return engine is not None and engine.running

    async def _claim(self) -> bool:
        room = self._room()
        if room <= 0 or self._rest():
            return False
        self._again_at = math.inf
        claims = await self._take(room)
        self._is_dry = not claims
        ran_dry = not self.ready and len(claims) == room
        await self._start(claims)
        self.pace.claimed(
            len(self.ready),
            self.ready.handed_out,
            time.monotonic(),
            ran_dry=ran_dry,
            crowd=self.graph.upkeep.crowd,
        )
        if not claims and self.active.is_quiet:
            self.graph.upkeep.suspects_wait = True  # if not, it is soon known
            return await self._claim_suspect()
        return bool(claims)

    async def _start(self, claims: Sequence[Claim]) -> None:
        """Begin the executions of new claims."""
        begun = list(filter(None, map(self._begin, claims)))
        self.ready.end_claim()
        begun = [(request, leg) for request, leg in begun if not await self._refile(request, leg)]
        await self.sessions.refresh_cookies([request for request, _ in begun])
        for request, leg in begun:
            self._hand_out(request, leg)
        unbegun = self.active.unbegun()
        if self.limiters.lacks(unbegun):
            self.limiters.wanted.set()
        self._look_again(self.limiters.soonest_room(unbegun))

    # Suspects

    async def _claim_suspect(self) -> bool:
        """Run what must run alone, one piece after another, between ordinary batches.

        Nothing is handed out until what is under way has ended; what is claimed waits in memory.
        """
        ready, turn = self.ready, self._turn
        if not ready.is_holding:
            is_idle = self._is_dry and not self._others()
            if not self.graph.upkeep.suspects_wait or not turn.is_due(ready.handed_out, is_idle):
                return False
            turn.begin()
            ready.hold()
        if self._others() or ready.is_writing or self.outbox.pending:
            if turn.takes_too_long():
                turn.put_off(ready.handed_out)
                ready.go_on()
            return False
        if not turn.is_over() and self._is_running:
            claims = await self._take(1, alone=True)
            await self._start(claims)
            if claims:
                turn.goes_on()
                return True
            self.graph.upkeep.suspects_wait = False
        turn.end(ready.handed_out)
        ready.go_on()
        return False

    def _others(self) -> Collection[Execution]:
        """Return the executions under way, but for those that have not started."""
        return self.active.executions - self.ready.untouched

    async def _take(self, most: int, *, alone: bool = False) -> Sequence[Claim]:
        """Claim what the limits in hand, and those that can be had, let start soon."""
        async with self.limits_lock:
            limiters = self.limiters
            asked_at, unbegun = time.monotonic(), self.active.unbegun()
            # As of now: with the answer a limit may have room that the claim passed over.
            soonest = limiters.soonest_room(unbegun)
            # Beside what runs alone nothing starts, whatever waits.
            budget = ClaimBudget(
                most=most,
                alone=alone,
                rooms=limiters.rooms({} if alone else unbegun),
                shared=limiters.shared,
                slot_terms=self.slots.all_terms(),
                in_flight=self.ready.begin_claim(),
            )
            try:
                result = await self.graph.claims.claim(budget)
            except BaseException:
                self.ready.end_claim()
                raise
            limiters.take(result.grants, asked_at)
        self._look_again(asked_at + soonest - time.monotonic())
        if result.again_in is not None:
            self._look_again(result.again_in)
        return result.claims

    def _look_again(self, seconds: float) -> None:
        """Look again after so many seconds at the latest."""
        self._again_at = min(self._again_at, time.monotonic() + seconds)

    def _begin(self, claim: Claim) -> tuple[Request, Leg] | None:
        """Build the request of a claim; None if its execution is over before it began.

        Whatever the item, its request or the user's code are like, that ends this claim alone.
        """
        self.claimed += 1
        self.crawler.stats.inc_value("itemgraph/claimed")
        task = self.tasks.get(claim.task) or self.callbacks.task_of(claim.task)
        execution = self.active.begin(claim=claim, task=task)
        execution.is_in_flight = claim.is_in_flight
        leg = execution.open_leg(is_own=True)
        try:
            execution.limits = self.graph.limits.of_claim(claim)
            if task.is_callback:
                request = request_builder.stored_request(self.spider, claim)
            else:
                execution.item = ItemContext.claimed(
                    claim, self.graph.reads, keep_logs=self.settings.records.keep_logs
                )
                request = request_builder.build_request(self.spider, task, execution.item)
                request_legs.put(request, leg)  # or the next item might get the same object
            request_slots.slot_of(request)  # which some URLs do not have
        except BaseException as error:  # noqa: BLE001 - a request= may raise SystemExit too
            self._spoil(leg, error, item_names.page_of(claim.item.data)[0] or "")
            return None
        return request, leg

    async def _refile(self, request: Request, leg: Leg) -> bool:
        """Give a claim back whose request turned out to have another slot; whether it had one."""
        claim = leg.execution.claim
        assert claim is not None
        slot = request_slots.slot_of(request)
        if slot == claim.slot or claim.is_refiled:
            return False
        self.active.forget(leg.execution)
        self.crawler.stats.inc_value("itemgraph/refiled")
        await self.graph.claims.refile(claim, slot)
        return True

    def _spoil(self, leg: Leg, error: BaseException, url: str) -> None:
        """Fail a claim whose request cannot be made or handed out."""
        execution = leg.execution
        engine = self.crawler.engine
        if engine is None or engine.spider is None:  # closed meanwhile
            execution.release()
        elif isinstance(error, RefusedUrlError):
            execution.refuse(self.active.error_of(execution, error, kind="refused", url=url))
        else:
            kind = UNMADE if isinstance(error, ItemGraphError) else None
            self.active.fail(execution, error, kind=kind, url=url)
        leg.close()

    def _hand_out(self, request: Request, leg: Leg) -> None:
        try:
            if leg.execution.is_of_task:
                self._hand(request, leg)
            else:
                self._hand_stored(request, leg)
        except Exception as error:  # noqa: BLE001 - a fingerprinter may raise for one URL
            self._spoil(leg, error, request.url)

    def _hand(self, request: Request, leg: Leg) -> None:
        leg.is_retryable = not request.meta.get("dont_retry")
        task = leg.execution.task
        if task is not None and task.autothrottle is False:
            request.meta.setdefault("autothrottle_dont_adjust_delay", True)
        request.meta["dont_retry"] = True
        assert self.crawler.engine is not None
        self.crawler.engine.crawl(request)
        if leg.state is LegState.OFFERED:
            why = ItemGraphError(
                "Scrapy's offsite filter (allowed_domains) or another handler of request_scheduled "
                "refused the request"
            )
            leg.execution.refuse(
                self.active.error_of(leg.execution, why, kind="refused", url=request.url)
            )
            leg.close()

    def _hand_stored(self, request: Request, leg: Leg) -> None:
        """Hand out a request that passed the engine when it was yielded."""
        leg.is_retryable = False
        ttl = request.meta.get(validation.TTL)
        if ttl is not None and not validation.is_of_each_start(request.meta):
            leg.execution.add(SetTTL(ttl))
        self.queue.push_claimed(request, leg)

    async def _pause(self, longest: float) -> None:
        """Wait until there is something to look at: our own doing, a NOTIFY, or the time."""
        others = await either(self._wake, self.graph.news.wait(longest))
        if not others.cancelled():
            others.result()
            self._is_dry = False

    # The end

    async def _look_for_end(self) -> float:
        """Set `ended` when nothing is left to do; return how long to wait before looking again."""
        active = self.active
        poll = min(_POLL[self.settings.run.idle] * self.graph.upkeep.crowd, _LONGEST_POLL)
        has_started = self.start_ended.is_set()
        if not has_started or not active.is_quiet or not self._is_dry or active.is_over:
            return poll
        if await self.graph.callbacks.learn():
            self._is_dry = False
            return 0.0
        remaining = await self.graph.run.remaining()
        if not (self.claimed or self.has_said_idle or remaining.has_some):
            self.has_said_idle = True
            await self._say_why_idle()
        if self.settings.run.idle == "wait" or not active.is_quiet:
            return poll
        if remaining.is_over:
            await self.graph.run.mark_started()
            await self.graph.run.finish()
            active.is_over = True
            self.ended.set()
            self.queue.wake_engine()
            return poll
        return poll if remaining.next_retry is None else min(poll, max(remaining.next_retry, 0.05))

    async def _say_why_idle(self) -> None:
        """Say that there is nothing to do, why, and what would change that."""
        logger.info("Nothing to do now", extra={"action": "idle"})
        await log_summary(self.graph)
        logger.info(
            "To run what is fresh: another version= of its task (of a plain callback in "
            "ITEMGRAPH_CALLBACKS), a ttl, scrapy itemgraph expire ID, or for all of it scrapy "
            "itemgraph restart CRAWL; to add work: seeds, or scrapy itemgraph add",
            extra={"action": "idle"},
        )


async def log_summary(graph: WorkerGraph) -> None:
    """Log what the crawl has and what is left, and why."""
    for line in (await graph.reads.summary()).lines():
        logger.info("%s", line, extra={"action": "summary"})
