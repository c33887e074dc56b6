"""The gRPC server of `scrapy itemgraph frontier`."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, OperationError
from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
from scrapy_itemgraph.tools import gc_tuning, logs
from scrapy_itemgraph.tools.async_tools import cancelled, ignore_signals
from scrapy_itemgraph.urlfrontier import ports
from scrapy_itemgraph.urlfrontier.access import NOBODY_ELSE, Access, AccessTerms
from scrapy_itemgraph.urlfrontier.counts import Counts
from scrapy_itemgraph.urlfrontier.health import LOOK_EVERY, Health
from scrapy_itemgraph.urlfrontier.metrics import Metrics
from scrapy_itemgraph.urlfrontier.ports import Place, Port
from scrapy_itemgraph.urlfrontier.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.urlfrontier.tls import TlsFiles

logger = logs.logger(__name__)

CLOSE_WITHIN = 10.0  # seconds that calls under way have once the server is told to end
ROUND = 1.0  # seconds between two looks at the duties that are due
RESUME_EVERY = 60.0  # seconds between two looks for deletions of servers that are gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Where a server listens, for whom, and what it tells.

    At `v3_port` the path of version 2.6 speaks the shapes of version 3; None: nowhere. A server
    that `may_lack_v3_port` goes without where that is taken.
    `advertised` is where its clients reach it, HOST:PORT; None: where it listens. One that
    `reflects` tells tools such as grpcurl what it speaks. One that `shares_port` listens where
    others that do so listen on this machine, and each connection is one's of them.
    """

    host: str
    port: int
    advertised: str | None = None
    reflects: bool = False
    v3_port: int | None = None
    may_lack_v3_port: bool = False
    access: AccessTerms = NOBODY_ELSE
    tls: TlsFiles | None = None
    shares_port: bool = False
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers: at which addresses, and whether there are tokens."""

    address: str
    advertised: str
    v3_address: str | None
    metrics: str | None  # None: nobody may read them
    has_tokens: bool


def run(settings: Settings, terms: Terms, ready: Callable[[Served], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called as soon as the server answers.

    Raises:
        OperationError: it cannot listen there, or would let in nobody, or anybody.
        ConfigurationError: the files of TLS cannot be used.
        ItemGraphError: the database cannot be used, in one clear line.

    """
    with ExitStack() as ends:
        if settings.run.tune_gc:
            gc_tuning.tune()
            ends.callback(gc_tuning.restore)
        runner = ends.enter_context(asyncio.Runner(loop_factory=asyncio.SelectorEventLoop))
        runner.run(_serve(settings, terms, ready))


async def _serve(settings: Settings, terms: Terms, ready: Callable[[Served], None]) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    # Metadata that is not UTF-8: gRPC logs a traceback of each, and the call is refused.
    logging.getLogger("grpc._cython.cygrpc").addFilter(
        lambda record: not str(record.msg).startswith("Invalid encoding")
    )
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stopping.set)
    async with AsyncExitStack() as ends:
        listening = _listening(terms, ends)
        address = listening[0].address
        advertised = terms.advertised or address
        graph = await FrontierGraph.open(settings, address=advertised)
        ends.push_async_callback(graph.close, "told to end")
        access, counts = Access(graph.keys, terms.access), Counts()
        await access.begin(terms.host)
        streams, health = Streams(graph, counts), Health(graph, ports.SERVICES)
        for port in listening:
            port.answer(graph, access, streams, health, counts)
            if terms.reflects:
                port.reflect()
        metrics = None
        if terms.metrics_port is not None:
            context = None if terms.tls is None else terms.tls.listening_context()
            scraped = Metrics(counts, access).listening(terms.host, terms.metrics_port, context)
            metrics = await ends.enter_async_context(scraped)

        async def look() -> None:
            await health.look()
            await access.look()
            counts.tell_unusable()

        await look()
        if not await graph.controls.is_active(local=False):
            logger.warning("The frontier is paused (SetActive): crawlers get nothing")
        for port in listening:
            await port.server.start()
        ready(
            Served(
                address=address,
                advertised=advertised,
                v3_address=listening[1].address if len(listening) > 1 else None,
                metrics=metrics,
                has_tokens=access.has_tokens,
            )
        )
        beside = [
            asyncio.create_task(_again_and_again(graph.upkeep.do_due, ROUND)),
            asyncio.create_task(_again_and_again(graph.deletions.resume, RESUME_EVERY)),
            asyncio.create_task(_again_and_again(look, LOOK_EVERY)),
        ]
        await stopping.wait()
        await cancelled(beside)
        await health.end()
        streams.stop()
        graph.hurry()
        await asyncio.gather(*(port.server.stop(CLOSE_WITHIN) for port in listening))
        await streams.finish()
        counts.tell_unusable()
        ignore_signals()


def _listening(terms: Terms, ends: AsyncExitStack) -> list[Port]:
    """Listen at the ports, the first of which is that of version 2.6, until the end."""
    found = []
    for port in _ports(terms):
        ends.push_async_callback(port.server.stop, None)
        try:
            port.listen()
        except OperationError as error:
            if not port.is_optional:
                raise
            logger.warning("There is no port for version 3 alone: %s", error)
        else:
            found.append(port)
    return found


def _ports(terms: Terms) -> list[Port]:
    """Return the port of version 2.6, and that of version 3 if it has one."""
    place = Place(host=terms.host, number=terms.port, tls=terms.tls, is_shared=terms.shares_port)
    found = [Port(place, ports.OF_V2)]
    if terms.v3_port is not None:
        there = replace(place, number=terms.v3_port, option="--v3-port")
        found.append(Port(there, ports.OF_V3, is_optional=terms.may_lack_v3_port))
    return found


async def _again_and_again(work: Callable[[], Awaitable[None]], pause: float) -> None:
    """Do something at once, and then after each pause; what fails is tried again."""
    while True:
        try:
            await work()
        except DatabaseUnavailableError as error:
            logger.warning("%s The frontier goes on waiting for it", error)
        except Exception:  # calls must not end for it
            logger.exception("A round of duties failed")
        await asyncio.sleep(pause)
