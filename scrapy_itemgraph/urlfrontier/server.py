"""The gRPC server of `scrapy itemgraph frontier`."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, OperationError
from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled
from scrapy_itemgraph.urlfrontier import calls, v2
from scrapy_itemgraph.urlfrontier.calls import Calls
from scrapy_itemgraph.urlfrontier.health import LOOK_EVERY, Health, reflect
from scrapy_itemgraph.urlfrontier.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.urlfrontier.descriptors import Api, Method

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
    """Where a server listens, and where its clients reach it; HOST:PORT, None: where it listens.

    One that `reflects` tells tools such as grpcurl what it speaks.
    """

    host: str
    port: int
    advertised: str | None = None
    reflects: bool = False


def run(settings: Settings, terms: Terms, ready: Callable[[str, str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    `ready` is called with the address and the advertised one, as soon as the server answers.

    Raises:
        OperationError: it cannot listen there.
        ItemGraphError: the database cannot be used, in one clear line.

    """
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_serve(settings, terms, ready))


async def _serve(settings: Settings, terms: Terms, ready: Callable[[str, str], None]) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stopping.set)
    server = grpc.aio.server(options=OPTIONS)
    try:
        address = _listen(server, terms)
        graph = await FrontierGraph.open(settings, address=terms.advertised or address)
        try:
            streams, health = Streams(graph), Health(graph, v2.API.service)
            server.add_generic_rpc_handlers((_handler(v2.API, Calls(graph), streams),))
            health.add_to(server)
            if terms.reflects:
                reflect(server, v2.API)
            await health.look()
            await server.start()
            ready(address, terms.advertised or address)
            beside = [
                asyncio.create_task(_again_and_again(graph.upkeep.do_due, ROUND)),
                asyncio.create_task(_again_and_again(graph.deletions.resume, RESUME_EVERY)),
                asyncio.create_task(_again_and_again(health.look, LOOK_EVERY)),
            ]
            await stopping.wait()
            await cancelled(beside)
            await health.end()
            streams.stop()
            await server.stop(CLOSE_WITHIN)
            await streams.finish()
        finally:
            await graph.close("told to end")
    finally:
        await server.stop(None)


def _listen(server: Any, terms: Terms) -> str:
    """Have a server listen; return its address."""
    host = f"[{terms.host}]" if ":" in terms.host else terms.host
    try:
        port = server.add_insecure_port(f"{host}:{terms.port}")
    except RuntimeError:
        raise OperationError(
            f"cannot listen at {terms.host} port {terms.port}; --port N takes another, 0 a free one"
        ) from None
    return f"{host}:{port}"


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


def _handler(api: Api, answers: Calls, streams: Streams) -> grpc.GenericRpcHandler:
    """Return what answers the calls of a service."""
    handlers: dict[str, Any] = {
        name: _method(api.methods[name], calls.unary(call))
        for name, call in answers.by_name().items()
    }
    streaming: Mapping[str, Callable[..., Any]] = {
        "PutURLs": streams.put_urls,
        "PutDiscovered": streams.put_discovered,
        "GetURLs": calls.outgoing(streams.get_urls),
        "ListURLs": calls.outgoing(answers.list_urls),
    }
    handlers |= {name: _method(api.methods[name], call) for name, call in streaming.items()}
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
