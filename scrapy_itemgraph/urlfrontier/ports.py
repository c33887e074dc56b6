"""The ports of a server, and which version of the API is spoken there, under which path."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.urlfrontier import calls, descriptors, v2, v3
from scrapy_itemgraph.urlfrontier.calls import Calls
from scrapy_itemgraph.urlfrontier.health import reflect
from scrapy_itemgraph.urlfrontier.sizes import MOST_TAKEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
    from scrapy_itemgraph.urlfrontier.access import Access
    from scrapy_itemgraph.urlfrontier.codec import Codec
    from scrapy_itemgraph.urlfrontier.counts import Counts
    from scrapy_itemgraph.urlfrontier.descriptors import Method
    from scrapy_itemgraph.urlfrontier.health import Health
    from scrapy_itemgraph.urlfrontier.streams import Streams
    from scrapy_itemgraph.urlfrontier.tls import TlsFiles

_ODD_METADATA = "metadata is ASCII, but for names that end with -bin"
_PINGS = 5000  # milliseconds between two pings of a client, at least; those of some come after 10 s

OPTIONS = (
    ("grpc.max_receive_message_length", MOST_TAKEN),
    ("grpc.max_send_message_length", MOST_TAKEN),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PINGS),
)


class Path(NamedTuple):
    """A service as callers name it, and the messages that are spoken there."""

    service: str
    codec: Codec


# The proposal gave its version 3 the package of version 2.6, so that a path of it does not say
# which of them is meant: the port does.
OF_V2 = (Path(v2.API.service, v2.CODEC), Path(v3.API.service, v3.CODEC))
OF_V3 = (Path(v2.API.service, v3.CODEC), Path(v3.API.service, v3.CODEC))
SERVICES = tuple(one.service for one in OF_V2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a port is, and how it is listened to; `option` is how another number is said."""

    host: str
    number: int
    option: str = "--port"
    tls: TlsFiles | None = None
    is_shared: bool = False


class Port:
    """A port: a gRPC server of its own, for these know paths, and no ports."""

    def __init__(self, place: Place, paths: Sequence[Path], *, is_optional: bool = False) -> None:
        """Take where it is; it listens from `listen` on, and answers when its server is started."""
        # Unless it is told, gRPC shares the port with any other server that does.
        options = [*OPTIONS, ("grpc.so_reuseport", int(place.is_shared))]
        self.server = grpc.aio.server(options=options)
        self.address = ""
        self.is_optional = is_optional
        self._place = place
        self._paths = paths

    def listen(self) -> None:
        """Listen.

        Raises:
            OperationError: it cannot listen there.
            ConfigurationError: the files of TLS cannot be used.

        """
        self.address = _listen(self.server, self._place)

    def answer(
        self, graph: FrontierGraph, access: Access, streams: Streams, health: Health, counts: Counts
    ) -> None:
        """Have the calls of each path answered, of those who may make them."""
        handlers = [
            _handler(one, access, Calls(graph, one.codec, counts), streams, counts)
            for one in self._paths
        ]
        self.server.add_generic_rpc_handlers(tuple(handlers))
        health.add_to(self.server)

    def reflect(self) -> None:
        """Tell tools such as grpcurl what is spoken at this port."""
        reflect(self.server, SERVICES, self._described())

    def _described(self) -> Iterator[FileDescriptorProto]:
        for service, codec in self._paths:
            package = service.rpartition(".")[0]
            for file in codec.api.files:
                is_elsewhere = file is codec.api.files[-1] and file.package != package
                yield descriptors.moved(file, package) if is_elsewhere else file


def _listen(server: Any, place: Place) -> str:
    """Have a server listen; return its address."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    credentials = None if place.tls is None else place.tls.credentials()
    try:
        if credentials is None:
            port = server.add_insecure_port(f"{host}:{place.number}")
        else:
            port = server.add_secure_port(f"{host}:{place.number}", credentials)
    except RuntimeError:
        raise OperationError(
            f"cannot listen at {place.host} port {place.number}: {_why_not(place)}; "
            f"{place.option} N takes another, 0 a free one; servers that are all started with "
            "--share-port share one"
        ) from None
    return f"{host}:{port}"


def _why_not(place: Place) -> str:
    """Return why nobody can listen at a place: gRPC does not say it."""
    found = socket.getaddrinfo(place.host, place.number, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
        except OSError as error:
            return error.strerror or str(error)
    return "gRPC refuses it"


def _handler(
    path: Path, access: Access, answers: Calls, streams: Streams, counts: Counts
) -> grpc.GenericRpcHandler:
    """Return what answers the calls of a path."""
    codec = path.codec
    incoming = {"PutURLs": streams.put_urls, "PutDiscovered": streams.put_discovered}
    outgoing: dict[str, Callable[[Any, Any], Awaitable[None]]] = {
        "GetURLs": partial(streams.get_urls, codec),
        "ListURLs": answers.list_urls,
    }
    called: dict[str, Callable[..., Any]] = {
        **{name: calls.unary(access, name, call) for name, call in answers.by_name().items()},
        **{
            name: calls.incoming(access, name, partial(call, codec))
            for name, call in incoming.items()
        },
        **{name: calls.outgoing(access, name, call) for name, call in outgoing.items()},
    }
    handlers = {
        name: _method(codec.api.methods[name], call, counts) for name, call in called.items()
    }
    return grpc.method_handlers_generic_handler(path.service, handlers)


def _method(method: Method, call: Callable[..., Awaitable[Any]], counts: Counts) -> Any:
    """Return how a method is answered; what is malformed is counted, and logs no traceback."""

    def read(given: bytes) -> Any:
        """Read a request; None: it is none."""
        try:
            return method.takes.FromString(given)
        except DecodeError:
            counts.malformed += 1
            return None

    async def answer(asked: Any, context: Any) -> Any:
        if asked is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, calls.MALFORMED)
        if any(
            isinstance(one, str) and not one.isascii() for _, one in context.invocation_metadata()
        ):
            counts.malformed += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _ODD_METADATA)
        return await call(asked, context)

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[method.takes_stream, method.gives_stream](
        answer,
        request_deserializer=read,
        response_serializer=method.gives.SerializeToString,
    )
