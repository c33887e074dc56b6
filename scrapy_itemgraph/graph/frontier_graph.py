"""The door of a server of the URL frontier: what it asks of the database, awaited on its loop."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.connections.process import OwnProcess
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.graph.frontier_deletions import FrontierDeletions
from scrapy_itemgraph.graph.frontier_handouts import FrontierHandouts
from scrapy_itemgraph.graph.frontier_listings import FrontierListings
from scrapy_itemgraph.graph.frontier_puts import FrontierPuts
from scrapy_itemgraph.graph.frontier_upkeep import FrontierUpkeep
from scrapy_itemgraph.graph.worker_start import WorkerConnections
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import errors
from scrapy_itemgraph.store.admin import access_tokens
from scrapy_itemgraph.store.frontier import nodes
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.model.access_tokens import Keys
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess

_WAITS = "The frontier waits for it: URLs are acked and handed out when it is back"
_CALLS_WAIT = timedelta(seconds=10)  # for a database that is away; then the client is told
_PUTS_WAIT = timedelta(seconds=30)  # StormCrawler gives up after 60
_OF_CRAWLS = 6  # calls at once that may wait for whoever changes a crawl, and keep up nobody else


@dataclass(frozen=True, kw_only=True, eq=False)
class FrontierGraph:
    """What one server does with the URL frontier, by subject; made by `open`.

    Calls wait while the database is away, those of `puts` for 30 seconds, others for 10, and then
    raise a DatabaseUnavailableError.
    """

    connections: WorkerConnections
    process: OwnProcess
    puts: FrontierPuts
    handouts: FrontierHandouts
    controls: FrontierControls
    listings: FrontierListings
    deletions: FrontierDeletions
    upkeep: FrontierUpkeep
    calls: Transactions  # that wait for nobody: lists, numbers, tokens
    crawl_calls: Transactions  # of what is handed out, set and deleted
    put_calls: Transactions

    @staticmethod
    async def open(settings: Settings, *, address: str) -> FrontierGraph:
        """Find or start the server, migrate if allowed, and register this process.

        `address` is where its clients reach it, HOST:PORT.

        Raises:
            ItemGraphError: the database cannot be used, in one clear line.

        """
        connections = await WorkerConnections.open(settings, _WAITS)
        try:
            with errors.all_translated(connections.transactions.engine.url):
                return await _opened(connections, address)
        except BaseException:
            await connections.close()
            raise

    async def check(self) -> None:
        """See whether the database answers.

        Raises:
            DatabaseUnavailableError: it has been away for longer than calls wait.

        """
        await self.calls.call(_nothing)

    async def keys(self) -> Keys:
        """Return the digests of tokens, and when the last one was made."""
        return await self.calls.call(access_tokens.keys)

    def hurry(self) -> None:
        """Wait a short time only for a database that is away, for the server ends."""
        for one in (self.connections.transactions, self.calls, self.crawl_calls, self.put_calls):
            one.hurry()

    async def close(self, reason: str) -> None:
        """Note that the server ended; it waits for a database a short time."""
        own = self.connections.transactions
        self.hurry()
        try:
            self.process.stop()
            await own.call(processes.stop, self.process.identity.id, reason)
        finally:
            for one in (self.put_calls, self.crawl_calls, self.calls):
                await one.close()
            await self.process.close()
            await self.connections.close()


def _nothing(_: Connection) -> None:
    """Do nothing: that the transaction was begun is enough."""


async def _opened(connections: WorkerConnections, address: str) -> FrontierGraph:
    """Return the graph of a server that is registered and lives."""
    database, identity = connections.settings.database, connections.identity

    def register(connection: Connection) -> NewProcess:
        return nodes.register(
            connection,
            address,
            host=socket.gethostname(),
            process_id=os.getpid(),
            lease=database.lease,
            before=identity.id,
        )

    process = OwnProcess(
        connections.transactions,
        nodes.KIND,
        register,
        identity=identity,
        lease=database.lease,
        patience=database.patience,
        session_url=None if database.database_url is None else database.session_url,
    )
    await connections.ensure_schema()
    await process.register(register)
    await process.begin()
    if not process.session.has_session:
        startup_report.tell_no_session()
    calls = _transactions(connections, _CALLS_WAIT)
    crawl_calls = _transactions(connections, _CALLS_WAIT, _OF_CRAWLS)
    put_calls = _transactions(connections, _PUTS_WAIT)
    return FrontierGraph(
        connections=connections,
        process=process,
        puts=FrontierPuts(put_calls),
        handouts=FrontierHandouts(crawl_calls, identity),
        controls=FrontierControls(crawl_calls, identity),
        listings=FrontierListings(calls),
        deletions=FrontierDeletions(crawl_calls, identity),
        upkeep=FrontierUpkeep(connections.transactions),
        calls=calls,
        crawl_calls=crawl_calls,
        put_calls=put_calls,
    )


def _transactions(
    connections: WorkerConnections, patience: timedelta, at_once: int = engines.POOL_SIZE
) -> Transactions:
    """Return transactions on connections of their own, so that none waits for another kind."""
    database = connections.settings.database
    idle = database.lease.total_seconds() / 2
    url = connections.transactions.engine.url
    engine = engines.async_engine(url, pool_size=at_once, longest_idle=idle)
    return Transactions(engine, min(patience, database.patience), _WAITS, at_once=at_once)
