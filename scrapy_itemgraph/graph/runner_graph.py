"""The door of a runner: what the daemon asks of the database, awaited on its loop."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_itemgraph.connections.process import OwnProcess
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import duty_log
from scrapy_itemgraph.graph.notice_delivery import NoticeDelivery
from scrapy_itemgraph.graph.worker_start import WorkerConnections
from scrapy_itemgraph.postgres import errors, migrate
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.registry import (
    crawl_ends,
    duties,
    job_ends,
    places,
    runners,
    schedule_starts,
    schedules,
)
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.channels.channel import Channels
    from scrapy_itemgraph.connections.session import News
    from scrapy_itemgraph.model.job_ends import Verdict
    from scrapy_itemgraph.model.jobs import Stop
    from scrapy_itemgraph.model.runners import Assigned, HostState, Look, Terms
    from scrapy_itemgraph.model.schedule_terms import Schedule
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.duties import Duty, Round
    from scrapy_itemgraph.store.registry.processes import NewProcess

logger = logs.logger(__name__)

T = TypeVar("T")

_WAITS = "The runner waits for it: nothing is started meanwhile, and what runs goes on"
_CONNECTIONS = 200  # that the embedded server has
_CONNECTIONS_OF_A_PROCESS = 3
_SPARE = 20  # for commands, servers and the runner itself
MOST_PLACES = (_CONNECTIONS - _SPARE) // _CONNECTIONS_OF_A_PROCESS
"""So many places a runner of the embedded server may have."""


class RunnerGraph:
    """What one runner does with the database; made by `open`.

    Calls wait while the database is away, as long as ITEMGRAPH_PATIENCE says, and then raise a
    DatabaseUnavailableError.
    """

    def __init__(self, connections: WorkerConnections, terms: Terms, channels: Channels) -> None:
        self._connections = connections
        self._transactions = connections.transactions
        self._terms = terms
        self.notices = NoticeDelivery(self._transactions, channels)
        self._host = socket.gethostname()
        self._by = f"runner {terms.name}"
        self.id = 0
        self.refusal: str | None = None  # why this process cannot be the runner any more
        self._running: dict[int, int] = {}  # the job of each place that has one
        self._timetable = duties.Timetable(duties.OF_DATABASE)
        self._may_do_duties = False
        database = connections.settings.database
        self._process = OwnProcess(
            self._transactions,
            runners.KIND,
            self._register,
            identity=connections.identity,
            lease=database.lease,
            patience=database.patience,
            session_url=None if database.database_url is None else database.session_url,
        )

    @classmethod
    async def open(cls, settings: Settings, terms: Terms, channels: Channels) -> RunnerGraph:
        """Find or start the server, migrate if allowed, and register this process as a runner.

        It sends the notices of its project by the channels.

        Raises:
            OperationError: a runner of this name lives, or there are too many places for the
                embedded server's connections.
            ItemGraphError: the database cannot be used, in one clear line.

        """
        if settings.database.database_url is None and terms.places > MOST_PLACES:
            raise OperationError(
                f"the embedded server has connections for {MOST_PLACES} processes, and "
                f"--processes says {terms.places}; use fewer, or a server of your own "
                "(ITEMGRAPH_DATABASE_URL)"
            )
        connections = await WorkerConnections.open(settings, _WAITS)
        try:
            graph = cls(connections, terms, channels)
            with errors.all_translated(connections.transactions.engine.url):
                await graph._begin()
        except BaseException:
            await connections.close()
            raise
        return graph

    async def _begin(self) -> None:
        await self._connections.ensure_schema()
        await self._process.register(self._register)
        await self._process.begin()
        self._may_do_duties = await self._transactions.call(duties.may)

    def _register(self, connection: Connection) -> NewProcess:
        """Register this process, with what it runs, in a transaction that is open."""
        self.refusal = None
        try:
            process, self.id = runners.register(
                connection,
                self._terms,
                host=self._host,
                process_id=os.getpid(),
                lease=self._connections.settings.database.lease,
                running=self._running,
            )
        except OperationError as error:
            self.refusal = str(error)
            raise
        return process

    @property
    def database_url(self) -> str:
        """Where the database is; it may hold a password."""
        return self._transactions.engine.url.render_as_string(hide_password=False)

    @property
    def has_session(self) -> bool:
        """Whether it hears at once of what others do, and not at its next round alone."""
        return self._process.session.has_session

    def runs(self, running: Mapping[int, int]) -> None:
        """Note the jobs that this runner's processes have, by place."""
        self._running = dict(running)

    def own_news(self) -> News:
        """Return where news for this runner alone is told: that a job of its is to stop."""
        return self._process.own_news()

    def news(self) -> News:
        """Return where it is told that there may be something to start."""
        return self._process.session.subscribe(notify.RUNNERS)

    def news_of_log(self, job: int) -> News:
        """Return where it is told that somebody reads the log of a job, until `forget_log`."""
        return self._process.session.subscribe(notify.of_log(job))

    def forget_log(self, job: int) -> None:
        """Tell no more of a job's log."""
        self._process.session.unsubscribe(notify.of_log(job))

    async def look(self, host: HostState | None) -> Look | None:
        """Do a round: note how the host is, if that is given, and see what there is to do.

        None: this process was given up for dead, and registers anew in a moment.
        """

        def within(connection: Connection) -> tuple[Look | None, list[tuple[Duty, Round, float]]]:
            done = self._do_duties(connection)  # first, for they may lock items
            if host is not None:
                runners.report(connection, self.id, self._process.identity.id, host)
            return places.look(connection, self.id, self._process.identity.id), done

        found, rounds = await self._call(within)
        for duty, done, began in rounds:
            self._timetable.did(duty, done, began=began, now=time.monotonic())
        duty_log.tell([done for _, done, _ in rounds])
        return found

    def _do_duties(self, connection: Connection) -> list[tuple[Duty, Round, float]]:
        """Do a step of the first duty that is due; each has a transaction of its own."""
        if not self._may_do_duties:
            return []
        began = time.monotonic()
        for duty in self._timetable.due(began)[:1]:
            done = duties.Round()
            duties.do(connection, [duty], done)
            return [(duty, done, began)]
        return []

    async def bury(self, gone: Sequence[int]) -> list[str]:
        """Take what dead runners had from them; return their names."""
        return await self._call(runners.bury, gone, self.id, self._by)

    async def end_orphans(self, jobs: Sequence[int]) -> int:
        """End jobs whose runner and process are gone; return how many."""
        return await self._call(partial(job_ends.end_orphans, jobs=jobs, by=self._by))

    async def awaken(self) -> int:
        """Awaken crawls that came to their end and have work all the same; return how many."""
        return await self._call(crawl_ends.awaken_missed)

    async def start_due(self) -> int:
        """Start crawls whose schedules are due; return how many, 0 when there are no more."""
        return await self._call(schedule_starts.start_due)

    async def renew_schedules(self) -> list[Schedule]:
        """Compute anew when schedules are due by the clock; return those that had it otherwise."""
        return await self._call(schedules.renew)

    async def assign(self) -> list[Assigned]:
        """Give the free places the crawls that wait; return the processes to be started.

        Raises:
            SchemaVersionError: another version has migrated the database; nothing is assigned.

        """

        def within(connection: Connection) -> list[Assigned]:
            migrate.ensure(connection, auto=False)
            return places.assign(connection, self.id, self._process.identity.id, self._host)

        return await self._call(within)

    async def preempt(self) -> bool:
        """Have a process end whose place is wanted by a better crawl; whether there was one."""
        return await self._call(places.preempt, self.id, self._process.identity.id)

    async def started(self, job: int, process_id: int, log: str) -> None:
        """Note the process of a job, and the file of its log."""
        await self._call(job_ends.started, job, process_id, log)

    async def stop(self, job: int, why: Stop) -> None:
        """Note why a job's process is told to stop, and tell its worker."""
        await self._call(partial(job_ends.stop, job=job, why=why, by=self._by))

    async def keep_output(self, job: int, output: str, lines: int, memory: int) -> None:
        """Keep the end of a job's output, how many lines it has in all, and its most memory."""
        await self._call(job_ends.keep_output, job, output, lines, memory)

    async def end(self, job: int, **seen: Any) -> Verdict | None:
        """End a job as `store.registry.job_ends.end` says."""
        return await self._call(partial(job_ends.end, job=job, by=self._by, **seen))

    async def drain(self) -> None:
        """Have nothing assigned to this runner any more."""
        await self._call(runners.drain_itself, self.id, self._process.identity.id)

    async def close(self) -> None:
        """Note that the runner ended, and give all up; it waits for a database a short time."""
        self._transactions.hurry()
        try:
            self._process.stop()
            await self._call(runners.stop, self.id, self._process.identity.id, self._terms.name)
            await self.notices.end()
        finally:
            await self._process.close()
            await self._connections.close()

    async def _call(self, function: Callable[..., T], *given: Any) -> T:
        with errors.all_translated(self._transactions.engine.url):
            return await self._transactions.call(function, *given)


async def first_news(*news: News, timeout: float) -> None:  # noqa: ASYNC109 - the poll behind it
    """Wait until there is news of one of several topics, `timeout` seconds at most."""
    waits = [asyncio.ensure_future(one.wait(timeout)) for one in news]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
