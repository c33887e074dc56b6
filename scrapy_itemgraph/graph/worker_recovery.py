"""What a worker does when its database is on another server, or on one that was started again.

Its names are forgotten, and claims that it does not have in hand are given back: where a standby
was promoted that was behind, or a backup restored, commits are missing that this worker saw
acknowledged. Their claims may be there: it thinks them done, and would never do them again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.store.registry import crawls, restored_database
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.commits import Commits
    from scrapy_itemgraph.graph.worker_callbacks import WorkerCallbacks
    from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
    from scrapy_itemgraph.graph.worker_runs import WorkerRuns
    from scrapy_itemgraph.model.tasks import RegisteredTask
    from scrapy_itemgraph.store.registry.processes import NewProcess

logger = logs.logger(__name__)


class Memory(Protocol):
    """What a worker has in memory of its database."""

    def in_hand(self) -> set[UUID]:
        """Return the tokens of all claims that are under way or wait for their commit."""

    def limits(self) -> Collection[tuple[str, str]]:
        """Return the limits that are known by their number, by kind and name."""

    def renumber(self, numbers: Mapping[tuple[str, str], int]) -> None:
        """Take note of the numbers that limits have now; those left out have none."""

    def went_back(self, *, has_start: bool) -> None:
        """Take note that the database went back; `has_start`: it has what `start()` yielded."""


@dataclass(kw_only=True)
class _Found:
    """What a look at the database found; `is_back`: it lacks what this worker saw committed."""

    is_back: bool = False
    has_worker: bool = True
    has_start: bool = True


class WorkerRecovery:
    """Looks at what became of the database of one worker."""

    def __init__(
        self,
        transactions: Transactions,
        commits: Commits,
        process: OwnProcess,
        *,
        callbacks: WorkerCallbacks,
        runs: WorkerRuns,
        feeds: WorkerFeeds,
    ) -> None:
        self.memory: Memory | None = None
        self._moving: set[UUID] = set()  # tokens of claims that are made or given back just now
        self._transactions = transactions
        self._commits = commits
        self._process = process
        self._callbacks = callbacks
        self._runs = runs
        self._feeds = feeds
        self._crawl = ""
        self._found = _Found()

    def begin(self, crawl: str) -> None:
        """Look at the database from now on whenever that is on another server; by its name."""
        self._crawl = crawl
        self._transactions.recover = self.run

    @contextmanager
    def kept(self, tokens: Collection[UUID]) -> Iterator[None]:
        """Have claims that are made or given back meanwhile taken for claims in hand."""
        self._moving.update(tokens)
        try:
            yield
        finally:
            self._moving.difference_update(tokens)

    async def run(self) -> None:
        """Look at it; nothing else is asked of the database meanwhile.

        Raises:
            DatabaseError: the crawl is not there any more.

        """
        found, run = self._found, self._transactions.unchecked
        self._commits.forget_names()
        in_hand = self._in_hand()
        await run(lambda connection: self._look(connection, in_hand), hot=True)
        if not found.has_worker:
            found.is_back, found.has_start = True, False
            self._process.take(await run(self.register_anew))
        await self._callbacks.take_anew(await run(self._register_missing), run)
        if self.memory is not None:
            known = self.memory.limits()
            self.memory.renumber(
                await run(lambda c: restored_database.numbers_of_limits(c, known), hot=True)
            )
        self._commits.forget_names()  # what was under way on the server before may have learned
        self._found = _Found()
        self._say(found)

    def register_anew(self, connection: Connection) -> NewProcess:
        """Register tasks and worker in a database that knows neither."""
        self._callbacks.register_tasks_anew(connection)
        self._runs.run, worker = self._callbacks.register_in_run(connection)
        return worker

    def _register_missing(self, connection: Connection) -> Mapping[int, RegisteredTask]:
        """Register plain callbacks and feeds that the database lacks."""
        self._feeds.register_anew(connection)
        return self._callbacks.register_callbacks_anew(connection)

    def _in_hand(self) -> set[UUID] | None:
        """Return the tokens of all claims that somebody works on; None before any was made."""
        return None if self.memory is None else self.memory.in_hand() | self._moving

    def _look(self, connection: Connection, in_hand: Collection[UUID] | None) -> None:
        """Give back claims that nobody works on, and find out whether commits are missing."""
        found, worker_id = self._found, self._process.identity.id
        crawl_id = self._transactions.crawl_id
        if not restored_database.is_crawl(connection, crawl_id, self._crawl):
            raise DatabaseError(
                f"The database went back to before the crawl {self._crawl} was there. Start the "
                "crawl again"
            )
        crawls.share_crawl(connection, crawl_id)
        witness = self._commits.witness
        if witness is not None and not restored_database.has_ended(connection, witness, crawl_id):
            found.is_back = True
        since = self._process.identity.started_at
        own = restored_database.hold_own_worker(connection, worker_id, since)
        found.has_worker = own is not None
        if own is None or not own.lives:
            return
        if self._runs.is_start_told and not own.has_started:
            found.is_back, found.has_start = True, False
        if in_hand is not None:
            found.is_back |= restored_database.release_others(connection, worker_id, in_hand) > 0

    def _say(self, found: _Found) -> None:
        if not found.is_back:
            logger.info(
                "The database is another one, or its server was started again; nothing that this "
                "worker saw committed is missing",
                extra={"action": "server_changed"},
            )
            return
        self._commits.witness = None
        self._runs.is_start_told &= found.has_start
        logger.warning(
            "The database went back: it lacks commits that this worker saw done. A standby that "
            "was behind was promoted, or a backup restored. The crawl goes on with what is there "
            "and fetches again what is missing; scraped items may be in feeds twice. What people "
            "and programs have changed since is missing, too: do it again. A crawl that had ended "
            "must be started again",
            extra={"action": "database_went_back"},
        )
        if self.memory is not None:
            self.memory.went_back(has_start=found.has_start)
