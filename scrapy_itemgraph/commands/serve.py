"""The HTTP door: an API, and pages to look at."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import parsing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.command import Call


@command(
    Argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (127.0.0.1)"),
    Argument("--port", metavar="N", type=parsing.port, default=8808, help="(8808); 0: a free one"),
)
def serve(call: Call) -> None:
    """Serve the item graph over HTTP, until Ctrl-C.

    The API is under /api/v1, pages for people are at /. It takes the extra `web`:
    pip install "scrapy-itemgraph[web]".
    """
    host, port = call.given.host, call.given.port
    try:
        # What only this command needs, and an extra.
        from scrapy_itemgraph.web import graphs, server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'serve needs {error.name}; install it with `pip install "scrapy-itemgraph[web]"`'
        ) from None
    with (
        _listening(host, port) as listening,
        call.graph(connections=graphs.CONNECTIONS, lock_wait=graphs.LOCK_WAIT) as graph,
    ):
        url = _url(host, listening.getsockname()[1])

        def ready() -> None:
            call.write({"url": url}, [f"The item graph is served at {url} (Ctrl-C ends it)"])
            sys.stdout.flush()

        server.serve(graphs.Graphs(graph), listening, ready)


def _listening(host: str, port: int) -> socket.socket:
    """Listen, before anything is started for it."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OperationError(
            f"cannot listen at {host} port {port}: {reason}; --port N takes another, 0 a free one"
        ) from None
    return listening


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
