"""A worker's job, and what people want of its crawl: it is told to stop here, or goes on."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.jobs import StopOrder
from scrapy_itemgraph.store import crawl_events
from scrapy_itemgraph.store.registry import crawl_starts, jobs
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.worker_start import WorkerStart
    from scrapy_itemgraph.store.registry.crawl_starts import Started
    from scrapy_itemgraph.store.registry.jobs import RunnersJob


class WorkerJob:
    """The job of one worker; of a crawl that nobody steers it asks and writes nothing.

    `number` is that of its job; None where it has none, or none yet. `is_of_runner`: a runner made
    it, and started this process.
    """

    def __init__(
        self,
        transactions: Transactions,
        own: Identity,
        *,
        scrapyd_job: str | None,
        of_runner: RunnersJob | None = None,
        state: str | None,
    ) -> None:
        """Take the crawl's state as the start found it, and the job that a runner made, if any."""
        self.number = None if of_runner is None else of_runner.id
        self._call = transactions.call
        self._own = own
        self._scrapyd_job = scrapyd_job
        self.is_of_runner = of_runner is not None
        self._is_superseded = of_runner is not None and of_runner.has_ended
        self._state = state
        self._is_crawl_over = False  # it was, as this process began
        self._closed_for: str | None = None
        self._news = asyncio.Event()

    @property
    def is_steered(self) -> bool:
        """Whether people steer the crawl, as far as is known: it has a state."""
        return self._state is not None

    # In the transaction that registers the worker

    def lock(self, connection: Connection) -> None:
        """Lock the queue, if a job is made: before the crawl's row is locked."""
        if self.is_steered and not self.is_of_runner:
            crawl_events.lock_queue(connection)

    def join(self, connection: Connection, worker_id: int) -> None:
        """Have the worker run its job, which is made where no runner has made it."""
        if not self.is_steered:
            return
        if not self.is_of_runner:
            self.number = self._make(connection, worker_id)
        elif self.number is not None and not jobs.join(connection, self.number, worker_id):
            self._is_superseded = True

    def see_end(self) -> None:
        """Take note that the crawl had come to its end before this process began."""
        self._is_crawl_over = True

    # While it works

    def hear(self) -> None:
        """Take note that something that concerns this worker has changed."""
        if self.is_steered:
            self._news.set()

    def see(self, state: str | None) -> None:
        """Take note of the crawl's state, as a transaction has read it beside other things."""
        if state != self._state:
            self._state = state
            self._news.set()

    def see_closed(self, reason: str) -> None:
        """Take note why the spider of another process has closed the run."""
        self._closed_for = reason
        self._news.set()

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news, `timeout` seconds at most; of a crawl that nobody steers for any."""
        await happens(self._news, timeout)
        self._news.clear()

    async def look(self) -> StopOrder | None:
        """Return why this worker is to stop; None where it goes on.

        A worker that started before somebody steered its crawl gets a job now.
        """
        if self._closed_for is not None:
            return StopOrder.of_closed_run(self._closed_for)
        if not self.is_steered:
            return None
        order = await self._call(self.order)
        if self.number is None:
            self.number = await self._call(self._make)
        return order

    def send(self, connection: Connection) -> CursorResult[*tuple[Any, ...]] | None:
        """Ask for what `order` needs; None where nobody steers the crawl, as far as is known."""
        return jobs.send_wishes(connection, self._own.id) if self.is_steered else None

    def order(
        self, connection: Connection, sent: CursorResult[*tuple[Any, ...]] | None = None
    ) -> StopOrder | None:
        """Return the same in a transaction that is open, and make no job; `sent` is of `send`."""
        answer = sent or self.send(connection)
        wishes = None if answer is None else jobs.wishes(answer)
        if wishes is None:
            return None
        is_superseded = self.is_of_runner and wishes.job is None
        order = StopOrder.of(
            wishes,
            is_superseded=is_superseded or self._is_superseded,
            is_over=self._is_crawl_over,
        )
        if order is not None:
            self._news.set()
        return order

    def _make(self, connection: Connection, worker_id: int | None = None) -> int | None:
        own = self._own.id if worker_id is None else worker_id
        return jobs.make(connection, own, scrapyd_job=self._scrapyd_job)

    def leave(self, connection: Connection, reason: str) -> None:
        """End the job, unless that is its runner's to end."""
        if self.number is not None and not self.is_of_runner:
            jobs.leave(connection, self._own.id, reason)


def crawl_of(connection: Connection, start: WorkerStart) -> tuple[Started, RunnersJob | None]:
    """Return a start's crawl, that of the job that a runner has started this process for, if any.

    Raises:
        ConfigurationError: it would join work of other arguments.
        InvalidIdError: its name cannot be a new crawl's.

    """
    if start.runners_job is None:
        return crawl_starts.find_or_make(connection, start.of_crawl), None
    host, process_id = socket.gethostname(), os.getpid()
    job = jobs.of_runner(
        connection, start.runners_job, spider=start.spider, host=host, process_id=process_id
    )
    if job is not None:
        return crawl_starts.of_job(connection, job, start.of_crawl), job
    started = crawl_starts.find_or_make(connection, start.of_crawl)
    return started._replace(warnings=(*started.warnings, _others(start.runners_job))), None


def _others(number: int) -> str:
    return (
        f"ITEMGRAPH_JOB names the job {number}, which is none of this process: it was inherited "
        "from a process of a runner, or has been set by hand. This start is one by hand; unset it"
    )
