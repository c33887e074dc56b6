"""Logins: when a session has expired one worker runs the spider's `login()` for all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker.executions.execution import request_legs
from scrapy_itemgraph.worker.spider.callbacks import iterate, login_of
from scrapy_itemgraph.worker.spider.validation import foreign

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync

logger = logs.logger(__name__)

_MOST_LOGINS = 3  # that do not help some work before it fails
_POLL = 1.0  # seconds, while another worker logs in


@dataclass(slots=True, eq=False, repr=False)
class Logins:
    """Gives the work of an expired session back, has the spider log in once, and lets it go on."""

    graph: WorkerGraph
    active: ActiveExecutions
    queue: EngineRequests
    crawler: Crawler
    spider: Spider
    sessions: SessionSync
    news: asyncio.Event  # set when work goes on after a login
    _generation: int = 0
    _expired: asyncio.Event = field(default_factory=asyncio.Event)
    _logins: Counter[tuple[int, int]] = field(default_factory=Counter)  # by work that needed them
    is_under_way: bool = False

    def begin(self, leg: Leg) -> None:
        """Note with which login a request goes out; its redirects are the answer to that one."""
        if leg.login is None:
            leg.login = self._generation

    def expired(self, leg: Leg, error: Exception) -> None:
        """Give the work back, and have somebody log in unless that was done meanwhile."""
        execution = leg.execution
        if execution.is_doomed:
            return
        why = self._hopeless(execution, leg)
        if why is not None:
            hopeless = ItemGraphError(f"{type(error).__name__} was raised, but {why}")
            self.active.fail(execution, hopeless, kind="session expired")
            return
        execution.release()
        if self._is_news(leg):
            self.is_under_way = True
            self._expired.set()

    def _hopeless(self, execution: Execution, leg: Leg) -> str | None:
        spider = self.spider
        if login_of(spider) is None:
            return f"the spider {spider.name} has no login(), which would yield Requests"
        claim = execution.claim
        if claim is None:
            return "by a request that belongs to no work, which cannot be given back"
        if self._is_news(leg):
            self._logins[claim.item_id, claim.task_id] += 1
        if self._logins[claim.item_id, claim.task_id] > _MOST_LOGINS:
            return f"{_MOST_LOGINS} logins did not help"
        return None

    def _is_news(self, leg: Leg) -> bool:
        """Tell whether a request that went out with the present login found it expired."""
        return leg.login == self._generation and not self.is_under_way

    async def run(self) -> None:
        """Log in whenever the session has expired, or wait for the one who does."""
        while True:
            await self._expired.wait()
            self._expired.clear()
            if await self._is_renewed():
                self.is_under_way = False
                self.news.set()
                self.queue.wake_engine()
            else:
                await asyncio.sleep(_POLL)
                self._expired.set()

    async def _is_renewed(self) -> bool:
        turn = await self.graph.sessions.begin_login(self._generation)
        if turn.is_mine:
            await self._log_in()
            return True
        is_renewed = turn.generation != self._generation
        if is_renewed:
            self._generation = turn.generation
            self.graph.claims.has_cookies = True
            await self.sessions.refresh_cookies(self.queue)
            await self.sessions.refresh_state()
        return is_renewed

    async def _log_in(self) -> None:
        name = self.spider.name
        logger.info("spider %s: the session has expired; logging in", name)
        error = await self._run_login()
        await self.sessions.save()
        self._generation = await self.graph.sessions.end_login(renewed=error is None)
        if error is not None and not self.active.is_stopping:
            raise ItemGraphError(
                f"spider {name}: login() failed: {error}. "
                "The work was given back; start the crawl again to go on"
            )
        if error is None:
            self.crawler.stats.inc_value("itemgraph/logins")

    async def _run_login(self) -> ErrorRecord | None:
        """Run the spider's login to the end of its last callback; return its error, if any."""
        execution = self.active.begin(url="login()")
        execution.is_login = True
        leg = execution.open_leg()
        try:
            login = login_of(self.spider)
            assert login is not None
            async for output in iterate(login()):
                if not isinstance(output, Request):
                    raise foreign(output, f"{execution.where}, which yields Requests")  # noqa: TRY301
                request_legs.put(output, leg.open_child())
                self.crawler.engine.crawl(output)
        except Exception as error:
            logger.exception("spider %s: login() raised an error", self.spider.name)
            self.active.fail(execution, error)
        leg.close()
        await execution.ended.wait()
        if execution.outcome is Outcome.OK:
            return None
        given_up = ErrorRecord(type=str(execution.outcome), message="it was given up")
        return execution.error or given_up
