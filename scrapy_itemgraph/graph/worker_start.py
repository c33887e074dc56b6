"""What a worker tells the graph as it starts, and the server, connections and stores it gets."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from scrapy_itemgraph.connections.awaited_answers import CRAWL_WAITS
from scrapy_itemgraph.connections.connect import ensure_schema
from scrapy_itemgraph.connections.identity import Identity
from scrapy_itemgraph.connections.process import OwnProcess
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.contents.transfer import WorkerContents
from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.store.registry import workers

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Collection, Mapping
    from datetime import timedelta
    from typing import Self

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess

Contents = TypeVar("Contents", bound=WorkerContents)

_MORE_WHEN_FAR = 1  # connections in the pool


@dataclass(frozen=True, kw_only=True)
class WorkerStart:
    """What a worker tells the graph as it starts.

    `crawl` is the crawl's name, or who starts with which arguments. `has_callback` tells whether
    this worker's code has a plain callback that another one registers later, and `callback_names`
    are those that may become tasks. `source_of` returns the digest of a task's code, by its name.
    `project` is the Scrapy project, whose notices it sends.
    `job` and `code` are what people are told of the process: Scrapyd's job, and its code's version.
    `runners_job` is the number of the job that a runner started this process for.
    Where it `tracks_depth`, pages deeper than `depth_limit` wait; None: none does.
    `on_replaced` is called when this worker was given up for dead, before it begins anew. None of
    these is called within a transaction.
    """

    crawl: str | CrawlStart
    spider: str
    tasks: Mapping[str, Task]
    project: str = ""
    has_callback: Callable[[str], bool] = lambda _: True
    callback_names: Collection[str] = ()
    job: str | None = None
    runners_job: int | None = None
    code: str | None = None
    code_file: str | None = None
    tracks_depth: bool = False
    depth_limit: int | None = None
    source_of: Callable[[str], uuid.UUID | None] = lambda _: None
    on_replaced: Callable[[], None] = lambda: None

    @property
    def of_crawl(self) -> CrawlStart:
        """Who starts the crawl, and with which arguments."""
        if isinstance(self.crawl, CrawlStart):
            return self.crawl
        return CrawlStart(self.spider, name=self.crawl)


class WorkerConnections:
    """The server, the connections and the stores of a worker, until they are closed."""

    def __init__(
        self,
        settings: Settings,
        transactions: Transactions,
        server: EmbeddedServer | None,
        stack: AsyncExitStack,
    ) -> None:
        self.settings = settings
        self.transactions = transactions
        self.identity = Identity()
        self._server = server
        self._stack = stack

    @classmethod
    async def open(cls, settings: Settings, waits: str = CRAWL_WAITS) -> Self:
        """Find the server, or start the embedded one; connect when the first transaction runs."""
        database, server, stack = settings.database, None, AsyncExitStack()
        url = database.database_url
        if url is None:
            server = await asyncio.to_thread(
                EmbeddedServer.start,
                database.data_dir,
                database.postgres_bin,
                patience=database.patience.total_seconds(),
            )
            stack.push_async_callback(asyncio.to_thread, server.close)
            url = server.url
        idle = database.lease.total_seconds() / 2  # the beat gets its row in time
        most = engines.POOL_SIZE + _MORE_WHEN_FAR
        engine = engines.async_engine(url, pool_size=most, longest_idle=idle)
        transactions = Transactions(engine, database.patience, waits, more_when_far=_MORE_WHEN_FAR)
        stack.push_async_callback(transactions.close)
        return cls(settings, transactions, server, stack)

    async def close(self) -> None:
        """Give all up, in the reverse order."""
        await self._stack.aclose()

    async def contents(self, kind: type[Contents]) -> Contents:
        """Open the store of contents.

        Raises:
            ConfigurationError: the package for this kind of store is not installed.

        """
        contents = kind(self.transactions, self.settings.records.blobs)
        self._stack.callback(contents.close)
        await contents.open()
        return contents

    async def ensure_schema(self) -> None:
        """Migrate the database if that is allowed.

        Raises:
            SchemaVersionError: it has another version, and stays as it is.
            OperationError: processes of an older version live.

        """
        is_embedded = self._server is not None
        await self.transactions.when_up(engines.check_version, is_known=is_embedded)
        allowed = self.settings.database.auto_migrate
        automatic = is_embedded if allowed is None else allowed
        alone_since = None if self._server is None else self._server.alone_since
        await self.transactions.call(ensure_schema, auto=automatic, alone_since=alone_since)

    def process(
        self, start: WorkerStart, register: Callable[[Connection], NewProcess]
    ) -> OwnProcess:
        """Return this process, which registers as a worker by that function."""
        database = self.settings.database
        process = OwnProcess(
            self.transactions,
            workers.KIND,
            register,
            identity=self.identity,
            lease=database.lease,
            patience=database.patience,
            session_url=database.session_url if self._server is None else None,
            on_replaced=start.on_replaced,
        )
        self._stack.push_async_callback(process.close)
        return process


def register_worker(
    connection: Connection,
    crawl_id: int,
    start: WorkerStart,
    sources: Mapping[str, uuid.UUID],
    lease: timedelta,
) -> NewProcess:
    """Register this process as a worker of a crawl; `sources` are digests of its code by task."""
    return workers.register(
        connection,
        crawl_id,
        spider=start.spider,
        host=socket.gethostname(),
        process_id=os.getpid(),
        job=start.job,
        code=start.code,
        code_file=start.code_file,
        sources=sources,
        uncounted=start.of_crawl.uncounted,
        lease=lease,
    )


async def begin_to_live(process: OwnProcess) -> None:
    """Take the worker's lock, and listen and renew its lease from now on."""
    await process.begin()
    if not process.session.has_session:
        startup_report.tell_no_session()
