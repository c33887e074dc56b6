"""Hands out claimed work: makes its requests, and gives them to the engine."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ItemGraphError, RefusedUrlError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import SetTTL
from scrapy_itemgraph.model.try_again import TryAgain
from scrapy_itemgraph.model.work import UNMADE
from scrapy_itemgraph.worker.downloads import request_slots
from scrapy_itemgraph.worker.executions.context import ItemContext
from scrapy_itemgraph.worker.executions.execution import LegState, request_legs
from scrapy_itemgraph.worker.spider import request_builder, validation

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.link_depths import LinkDepths
    from scrapy_itemgraph.worker.spider.page_rules import PageRules
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class HandOut:
    """Begins the executions of claims; `begun` counts them, `keep_logs` is ITEMGRAPH_KEEP_LOGS.

    `making` are the asyncio tasks that await coroutines of `request=`.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    ready: ReadyRequests
    queue: EngineRequests
    crawler: Crawler
    spider: Spider
    sessions: SessionSync
    callbacks: CallbackTasks
    page_rules: PageRules
    tasks: Mapping[str, Task]
    depths: LinkDepths
    keep_logs: int
    begun: int = 0
    making: set[asyncio.Task[None]] = field(default_factory=set)
    _made: list[tuple[Request, Leg]] = field(default_factory=list)
    _has_made: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, claims: Sequence[Claim]) -> None:
        """Begin the executions of new claims, and queue their requests for the engine."""
        begun = list(filter(None, map(self._begin, claims)))
        self.ready.end_claim()
        await self._queue(begun)

    async def run(self) -> None:
        """Queue the requests that coroutines have made, until told to stop."""
        while True:
            await self._has_made.wait()
            self._has_made.clear()
            made, self._made = self._made, []
            await self._queue(made)

    async def _queue(self, begun: Sequence[tuple[Request, Leg]]) -> None:
        begun = [(request, leg) for request, leg in begun if not await self._refile(request, leg)]
        await self.sessions.refresh_cookies([request for request, _ in begun])
        for request, leg in begun:
            self._hand_out(request, leg)

    def _begin(self, claim: Claim) -> tuple[Request, Leg] | None:
        """Build the request of a claim; None if its execution is over before it began.

        Whatever the item, its request or the user's code are like, that ends this claim alone.
        """
        self.begun += 1
        self.crawler.stats.inc_value("itemgraph/claimed")
        task = self.tasks.get(claim.task) or self.callbacks.task_of(claim.task)
        execution = self.active.begin(claim=claim, task=task)
        execution.is_in_flight = claim.is_in_flight
        execution.rules = self.graph.rules.of(claim)
        if task.keeps_validators:
            execution.code = f"{self.callbacks.code_of(task)} {claim.ruleset_id or ''}".rstrip()
        leg = execution.open_leg(is_own=True)
        try:
            execution.limits = self.graph.limits.of_claim(claim)
            if task.is_callback:
                request = request_builder.stored_request(self.spider, claim, self.callbacks.rules)
                execution.moves = self.callbacks.moves_of(
                    request, claim, self.graph.callbacks.names
                )
            else:
                execution.item = ItemContext.claimed(
                    claim, self.graph.reads, keep_logs=self.keep_logs
                )
                asked = request_builder.ask(self.spider, task, execution.item)
                if inspect.iscoroutine(asked):
                    self._await(asked, leg, claim.slot)
                    return None
                request = request_builder.complete(asked, self.spider, task, execution.item)
            return self._prepared(request, leg, task, claim)
        except BaseException as error:  # noqa: BLE001 - a request= may raise SystemExit too
            self._spoil(leg, error, item_names.page_of(claim.item.data)[0] or "")
            return None

    def _await(self, asked: Coroutine[Any, Any, Any], leg: Leg, slot: str) -> None:
        """Have a coroutine make a request, while other work goes on."""
        self.queue.expect(leg, slot)
        leg.making = asyncio.create_task(self._make(asked, leg))
        self.making.add(leg.making)

        def end(making: asyncio.Task[None]) -> None:
            self.making.discard(making)
            asked.close()  # which has not begun if its work was given back at once

        leg.making.add_done_callback(end)

    async def _make(self, asked: Coroutine[Any, Any, Any], leg: Leg) -> None:
        execution = leg.execution
        task, claim = execution.task, execution.claim
        assert task is not None
        assert claim is not None
        made = None
        try:
            request = await asked
            if leg.is_open:
                request = request_builder.complete(request, self.spider, task, execution.item)
                leg.state = LegState.OFFERED
                made = self._prepared(request, leg, task, claim)
        except BaseException as error:  # noqa: BLE001 - as of a method that is no coroutine
            if leg.is_open:
                self._spoil(leg, error, item_names.page_of(claim.item.data)[0] or "")
        if made is not None:
            self._made.append(made)
            self._has_made.set()

    def _prepared(
        self, request: Request, leg: Leg, task: Task, claim: Claim
    ) -> tuple[Request, Leg] | None:
        """Prepare the request of a claim to be queued; None if its page is set aside."""
        execution = leg.execution
        if execution.rules is not None:
            if self._is_skipped(request, execution, task):
                execution.skip()
                leg.close()
                return None
            self.page_rules.prepare(request, execution)
        if not task.is_callback:
            request_legs.put(request, leg)  # or the next item might get the same object
        if claim.depth is not None:
            self.depths.stamp(request, claim.depth)
        if claim.is_saved:
            request.meta[request_slots.NO_DOWNLOAD] = True
        request_slots.slot_of(request)  # which some URLs do not have
        return request, leg

    def _is_skipped(self, request: Request, execution: Execution, task: Task) -> bool:
        """Tell whether the rules set a page aside: by its URL, or its request's where it has none.

        Work that downloads nothing is no page, nor is one asked for that is at hand.
        """
        rules, claim = execution.rules, execution.claim
        assert rules is not None
        assert claim is not None
        if rules.skips_none or claim.is_saved or not task.download:
            return False
        return rules.skips(item_names.page_of(claim.item.data)[0] or request.url)

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
        elif isinstance(error, TryAgain):
            self.active.try_again(execution, error, url=url)
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
        claim = leg.execution.claim
        leg.is_retryable = claim is not None and claim.attempts_left is not None
        ttl = request.meta.get(validation.TTL)
        if ttl is not None and not validation.is_of_each_start(request.meta):
            leg.execution.add(SetTTL(ttl))
        self.queue.push_claimed(request, leg)
