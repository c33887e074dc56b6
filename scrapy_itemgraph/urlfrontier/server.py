"""The gRPC server of `scrapy itemgraph frontier`."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, OperationError
from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled
from scrapy_itemgraph.urlfrontier import calls, v2
from scrapy_itemgraph.urlfrontier.access import NOBODY_ELSE, Access, AccessTerms
from scrapy_itemgraph.urlfrontier.calls import Calls
from scrapy_itemgraph.urlfrontier.counts import Counts
from scrapy_itemgraph.urlfrontier.health import LOOK_EVERY, Health, reflect
from scrapy_itemgraph.urlfrontier.metrics import Metrics
from scrapy_itemgraph.urlfrontier.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.urlfrontier.descriptors import Api, Method
    from scrapy_itemgraph.urlfrontier.tls import TlsFiles

logger = logs.logger(__name__)

MESSAGE = 16 * 2**20  # bytes
CLOSE_WITHIN = 10.0  # seconds that calls under way have once the server is told to end
ROUND = 1.0  # seconds between two looks at the duties that are due
RESUME_EVERY = 60.0  # seconds between two looks for deletions of servers that are gone
_PINGS = 5000  # milliseconds between two pings of a client, at least; those of some come after 10 s

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE),
    ("grpc.max_send_message_length", MESSAGE),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PINGS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Where a server listens, for whom, and what it tells.

    `advertised` is where its clients reach it, HOST:PORT; None: where it listens. One that
    `reflects` tells tools such as grpcurl what it speaks. One that `shares_port` listens where
    others that do so listen on this machine, and each connection is one's of them.
    """

    host: str
    port: int
    advertised: str | None = None
    reflects: bool = False
    access: AccessTerms = NOBODY_ELSE
    tls: TlsFiles | None = None
    shares_port: bool = False
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers: at which addresses, and whether there are tokens."""

    address: str
    advertised: str
    metrics: str | None  # None: nobody may read them
    has_tokens: bool


def run(settings: Settings, terms: Terms, ready: Callable[[Served], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called as soon as the server answers.

    Raises:
        OperationError: it cannot listen there, or would let in nobody, or anybody.
        ConfigurationError: the files of TLS cannot be used.
        ItemGraphError: the database cannot be used, in one clear line.

    """
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_serve(settings, terms, ready))


async def _serve(settings: Settings, terms: Terms, ready: Callable[[Served], None]) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stopping.set)
    async with AsyncExitStack() as ends:
        # Unless it is told, gRPC shares the port with any other server that does.
        options = [*OPTIONS, ("grpc.so_reuseport", int(terms.shares_port))]
        server = grpc.aio.server(options=options)
        ends.push_async_callback(server.stop, None)
        address = _listen(server, terms)
        advertised = terms.advertised or address
        graph = await FrontierGraph.open(settings, address=advertised)
        ends.push_async_callback(graph.close, "told to end")
        access, counts = Access(graph.keys, terms.access), Counts()
        await access.begin(terms.host)
        streams, health = Streams(graph, counts), Health(graph, v2.API.service)
        server.add_generic_rpc_handlers((_handler(v2.API, access, Calls(graph), streams),))
        health.add_to(server)
        if terms.reflects:
            reflect(server, v2.API)
        metrics = None
        if terms.metrics_port is not None:
            context = None if terms.tls is None else terms.tls.context()
            listening = Metrics(counts, access).listening(terms.host, terms.metrics_port, context)
            metrics = await ends.enter_async_context(listening)

        async def look() -> None:
            await health.look()
            await access.look()

        await look()
        await server.start()
        ready(
            Served(
                address=address,
                advertised=advertised,
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
        await server.stop(CLOSE_WITHIN)
        await streams.finish()


def _listen(server: Any, terms: Terms) -> str:
    """Have a server listen; return its address."""
    host = f"[{terms.host}]" if ":" in terms.host else terms.host
    credentials = None if terms.tls is None else terms.tls.credentials()
    try:
        if credentials is None:
            port = server.add_insecure_port(f"{host}:{terms.port}")
        else:
            port = server.add_secure_port(f"{host}:{terms.port}", credentials)
    except RuntimeError:
        raise OperationError(
            f"cannot listen at {terms.host} port {terms.port}: {_why_not(terms)}; --port N takes "
            "another, 0 a free one; servers that are all started with --share-port share one"
        ) from None
    return f"{host}:{port}"


def _why_not(terms: Terms) -> str:
    """Return why nobody can listen at a place: gRPC does not say it."""
    places = socket.getaddrinfo(terms.host, terms.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
        except OSError as error:
            return error.strerror or str(error)
    return "gRPC refuses it"


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


def _handler(api: Api, access: Access, answers: Calls, streams: Streams) -> grpc.GenericRpcHandler:
    """Return what answers the calls of a service, of those who may make them."""
    incoming = {"PutURLs": streams.put_urls, "PutDiscovered": streams.put_discovered}
    outgoing = {"GetURLs": streams.get_urls, "ListURLs": answers.list_urls}
    called: dict[str, Callable[..., Any]] = {
        **{name: calls.unary(access, name, call) for name, call in answers.by_name().items()},
        **{name: calls.incoming(access, name, call) for name, call in incoming.items()},
        **{name: calls.outgoing(access, name, call) for name, call in outgoing.items()},
    }
    handlers = {name: _method(api.methods[name], call) for name, call in called.items()}
    return grpc.method_handlers_generic_handler(api.service, handlers)


def _method(method: Method, call: Callable[..., Any]) -> Any:
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[method.takes_stream, method.gives_stream](
        call,
        request_deserializer=method.takes.FromString,
        response_serializer=method.gives.SerializeToString,
    )
