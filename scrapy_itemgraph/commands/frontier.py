"""The gRPC door: a URL frontier for other crawlers."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import socket
import sys
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

_FORMAT = "%(asctime)s %(levelname)s: %(message)s"
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\s]+):\d+")


@command(
    Argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (127.0.0.1)"),
    Argument("--port", metavar="N", type=parsing.port, default=7071, help="(7071); 0: a free one"),
    Argument(
        "--advertise",
        metavar="HOST:PORT",
        help="where crawlers reach it, as ListNodes says (where it listens)",
    ),
    Argument(
        "--reflection",
        action="store_true",
        help="tell tools such as grpcurl what it speaks",
    ),
    Argument(
        "--open-to-all",
        action="store_true",
        help="listen beyond this machine: whoever reaches the port may do everything",
    ),
)
def frontier(call: Call) -> None:
    """Serve other crawlers as a URLFrontier over gRPC, until Ctrl-C.

    It speaks the API 2.6 of crawler-commons' URLFrontier. Several servers may share a database.
    It takes the extra `frontier`: pip install "scrapy-itemgraph[frontier]".
    """
    try:
        # What only this command needs, and an extra.
        from scrapy_itemgraph.urlfrontier import server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"frontier needs {error.name}; install it with "
            '`pip install "scrapy-itemgraph[frontier]"`'
        ) from None
    given = call.given
    if given.advertise is not None and not _ADDRESS.fullmatch(given.advertise):
        raise UsageError(f"--advertise takes HOST:PORT, not {given.advertise!r:.80}")
    is_near = _is_near(given.host, given.port)
    if not (is_near or given.open_to_all):
        raise OperationError(
            f"{given.host} is reached by others, and whoever reaches the port may do everything; "
            "if that is meant, as in a network of containers, say so: --open-to-all"
        )

    def ready(address: str, advertised: str) -> None:
        whom = "this machine" if is_near else "whoever reaches the port, without tokens"
        told = json.dumps({"address": address, "advertised": advertised})
        shown = f"The frontier answers at {address} to {whom} (Ctrl-C ends it)"
        printing.write(sys.stdout, told if call.as_json else shown)
        sys.stdout.flush()

    logging.basicConfig(level=logging.INFO, format=_FORMAT, datefmt="%Y-%m-%d %H:%M:%S")
    if not is_near:
        logging.getLogger(__name__).warning(
            "The frontier is open to all who reach %s, and they may do everything", given.host
        )
    terms = server.Terms(
        host=given.host,
        port=given.port,
        advertised=given.advertise,
        reflects=given.reflection,
    )
    server.run(call.settings, terms, ready)


def _is_near(host: str, port: int) -> bool:
    """Tell whether this machine alone reaches an address.

    Raises:
        OperationError: there is no such address.

    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OperationError(f"cannot listen at {host} port {port}: {reason}") from None
    return all(
        ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found
    )
