"""Redirects: where a claimed request is taken, noted in the graph before it goes on there."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import UnstorableError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateAlias
from scrapy_itemgraph.model.work import ErrorRecord, Outcome, Redirect, RedirectAnswer
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.worker.executions.execution import LegState
from scrapy_itemgraph.worker.spider import callbacks
from scrapy_itemgraph.worker.spider.led_pages import LedPages
from scrapy_itemgraph.worker.spider.page_rules import refuses_target, without_rules

if TYPE_CHECKING:
    from scrapy import Request, Spider

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.spider.duplicates import Duplicates
    from scrapy_itemgraph.worker.spider.request_operations import RequestOperations
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync


@dataclass(slots=True, eq=False, repr=False)
class Redirects:
    """Notes redirects and retries, many in a transaction, and lets them go on."""

    graph: WorkerGraph
    active: ActiveExecutions
    queue: EngineRequests
    spider: Spider
    operations: RequestOperations
    duplicates: Duplicates
    sessions: SessionSync
    led_pages: LedPages = field(default_factory=LedPages)
    _waiting: list[tuple[Request, Leg, Redirect]] = field(default_factory=list)
    _added: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, request: Request, leg: Leg) -> bool:
        """Note where a redirect or a retry takes a request; False if it does not go there.

        A redirect back to a URL of its own chain goes on: a site that sets a cookie may lead away
        and back. Scrapy's REDIRECT_MAX_TIMES ends a loop.
        """
        claim = leg.execution.claim
        assert claim is not None
        # It may lead to a login page, which is nobody's, and not where to go on.
        if callbacks.login_of(self.spider) is not None and request.url != leg.request.url:
            self.queue.push_follow_up(request, leg)
            return True
        if leg.is_own and refuses_target(request, leg.execution):
            self._skip(request, leg)
            return False
        name = self.operations.identities.of_target(request)
        if name is not None and name not in leg.chain:
            if not leg.is_own and (name == claim.item.id or name in leg.execution.discovered):
                self.duplicates.filtered(request)
                leg.close()
                return False
            leg.execution.discovered[name] = request
            leg.chain = (*leg.chain, name)
        stored = self._stored(without_rules(request, leg.execution)) if leg.is_own else None
        self._add(request, leg, Redirect(claim=claim, name=name, request=stored))
        return True

    def carry(self, request: Request, leg: Leg, name: str | None) -> None:
        """Let a request that cannot be stored go on unless it was fetched already.

        Its name is committed with its execution, so that it is free if that dies.
        """
        claim = leg.execution.claim
        if name is None or claim is None:
            self.queue.push_follow_up(request, leg)
            return
        leg.chain = (name,)
        leg.execution.add(CreateAlias(name))
        self._add(request, leg, Redirect(claim=claim, name=name, request=None, takes_name=False))

    async def run(self) -> None:
        """Note what gathers until told to stop."""
        while True:
            await self._added.wait()
            self._added.clear()
            batch, self._waiting = self._waiting, []
            answers = await self.graph.claims.redirect([move for *_, move in batch])
            await self.sessions.refresh_cookies([request for request, *_ in batch])
            for (request, leg, move), answer in zip(batch, answers, strict=True):
                try:
                    self._go_on(request, leg, answer, move.name)
                except Exception as error:  # noqa: BLE001 - a slot or a filter of the user's
                    self.active.fail(leg.execution, error, url=request.url)
                    leg.close()
            self.queue.wake_engine()

    def _leave(self, request: Request, leg: Leg) -> None:
        """Leave a page to the item that has its name; in this run it may not have been fetched."""
        operation = self.operations.of_taken(request, leg.execution)
        if operation is None:
            self.duplicates.dropped(request)
        else:
            leg.execution.discovered[operation.id] = operation
            leg.execution.add(operation)

    def _skip(self, request: Request, leg: Leg) -> None:
        """Set a page aside whose redirect led to where its rules would not have it."""
        where = f"it led to {request.url}, which the crawl's rules refuse"
        leg.execution.skip(ErrorRecord(type=str(Outcome.SKIPPED), message=where, url=request.url))
        leg.close()

    def _end_as_known(self, request: Request, execution: Execution, name: str) -> None:
        """End a page whose redirect led to another one."""
        assert execution.claim is not None
        where = f"it led to {request.url}, which the crawl has"
        execution.known(name, ErrorRecord(type=str(Outcome.KNOWN), message=where, url=request.url))
        self.led_pages.led(execution.claim.slot, name, request.url)

    def _add(self, request: Request, leg: Leg, move: Redirect) -> None:
        leg.state = LegState.QUEUED
        self._waiting.append((request, leg, move))
        self._added.set()

    def _stored(self, request: Request) -> str | None:
        try:
            return json.dumps(requests.dump(request, self.spider))
        except UnstorableError:  # after a crash it begins where it was yielded
            return None

    def _go_on(self, request: Request, leg: Leg, answer: RedirectAnswer, name: str | None) -> None:
        if not leg.is_open:
            return
        if answer is RedirectAnswer.ON:
            self.queue.push_follow_up(request, leg)
        elif answer is RedirectAnswer.TAKEN:
            if leg.execution.links is not None and name is not None:
                leg.execution.links.add(item_names.hex_key(name))
            self._leave(request, leg)
            if leg.is_own and name is not None:
                self._end_as_known(request, leg.execution, name)
            leg.close()
        else:
            leg.execution.release()
            leg.close()
