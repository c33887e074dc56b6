"""The gRPC door: a URL frontier for other crawlers."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    import argparse

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.urlfrontier.access import AccessTerms
    from scrapy_itemgraph.urlfrontier.server import Served

logger = logs.logger(__name__)

V3_PORT = 7072
_FORMAT = "%(asctime)s %(levelname)s: %(message)s"
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\s]+):\d+")


@command(
    Argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (127.0.0.1)"),
    Argument("--port", metavar="N", type=parsing.port, default=7071, help="(7071); 0: a free one"),
    Argument(
        "--v3-port",
        metavar="N",
        type=parsing.port,
        help="where the proposed version 3 has the path of 2.6 (7072; a free one with --port 0)",
    ),
    Argument("--no-v3", action="store_true", help="listen at no port for version 3"),
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
        "--share-port",
        action="store_true",
        help="listen beside other servers on this machine that are told so, at the same port",
    ),
    Argument(
        "--metrics-port",
        metavar="N",
        type=parsing.port,
        help="tell Prometheus numbers at this port of --host; 0: a free one",
    ),
    Argument("--tls-cert", metavar="FILE", type=Path, help="its certificate and chain, in PEM"),
    Argument("--tls-key", metavar="FILE", type=Path, help="the key of that certificate, in PEM"),
    Argument(
        "--tls-client-ca",
        metavar="FILE",
        type=Path,
        help="each client shows a certificate that one of these CAs signed, and may do everything",
    ),
    Argument(
        "--no-tokens",
        action="store_true",
        help="serve this machine without tokens again, after the last one was removed",
    ),
    Argument(
        "--open-to-all",
        action="store_true",
        help="ask for no tokens: whoever reaches the port may do everything",
    ),
)
def frontier(call: Call) -> None:
    """Serve other crawlers as a URLFrontier over gRPC, until Ctrl-C.

    It speaks the API 2.6 of crawler-commons' URLFrontier, and what was proposed for version 3.
    Several servers may share a database. Without tokens only this machine is served.
    It takes the extra `frontier`: pip install "scrapy-itemgraph[frontier]".
    """
    try:
        # What only this command needs, and an extra.
        from scrapy_itemgraph.urlfrontier import server  # noqa: PLC0415
        from scrapy_itemgraph.urlfrontier.access import AccessTerms  # noqa: PLC0415
        from scrapy_itemgraph.urlfrontier.tls import TlsFiles  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"frontier needs {error.name}; install it with "
            '`pip install "scrapy-itemgraph[frontier]"`'
        ) from None
    given = call.given
    if given.advertise is not None and not _ADDRESS.fullmatch(given.advertise):
        raise UsageError(f"--advertise takes HOST:PORT, not {given.advertise!r:.80}")
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    if given.tls_client_ca is not None and given.tls_cert is None:
        raise UsageError("--tls-client-ca goes with --tls-cert and --tls-key")
    tls = given.tls_cert and TlsFiles(given.tls_cert, given.tls_key, given.tls_client_ca)
    access = AccessTerms(
        is_open=given.open_to_all,
        has_client_ca=given.tls_client_ca is not None,
        is_public=not _is_near(given.host, given.port),
        without_tokens=given.no_tokens,
    )

    def ready(served: server.Served) -> None:
        told = {
            "address": served.address,
            "advertised": served.advertised,
            "v3_address": served.v3_address,
            "metrics": served.metrics,
            "has_tokens": served.has_tokens,
        }
        whom = _whom(access, has_tokens=served.has_tokens)
        shown = f"The frontier answers at {_where(served)} to {whom} (Ctrl-C ends it)"
        printing.write(sys.stdout, json.dumps(told) if call.as_json else shown)
        sys.stdout.flush()

    logging.basicConfig(level=logging.INFO, format=_FORMAT, datefmt="%Y-%m-%d %H:%M:%S")
    _warn(access, given.host, has_tls=tls is not None)
    terms = server.Terms(
        host=given.host,
        port=given.port,
        advertised=given.advertise,
        reflects=given.reflection,
        v3_port=_v3_port(given),
        may_lack_v3_port=given.v3_port is None,
        access=access,
        tls=tls,
        shares_port=given.share_port,
        metrics_port=given.metrics_port,
    )
    server.run(call.settings, terms, ready)


def _v3_port(given: argparse.Namespace) -> int | None:
    """Return the port of version 3; None: it has none."""
    if given.no_v3:
        if given.v3_port is not None:
            raise UsageError("--no-v3 and --v3-port exclude each other")
        return None
    if given.v3_port is not None:
        return int(given.v3_port)
    return V3_PORT if given.port else 0


def _where(served: Served) -> str:
    """Say at which addresses a server answers what."""
    parts = [served.address]
    if served.v3_address is not None:
        parts.append(f"version 3 at {served.v3_address}")
    if served.metrics is not None:
        parts.append(f"Prometheus at {served.metrics}")
    return ", ".join(parts)


def _whom(access: AccessTerms, *, has_tokens: bool) -> str:
    """Say whom a server answers."""
    if access.is_open:
        return "whoever reaches the port, without tokens"
    if access.has_client_ca:
        return "those who have a certificate"
    return "those who have a token" if has_tokens else "this machine alone: no tokens"


def _warn(access: AccessTerms, host: str, *, has_tls: bool) -> None:
    """Warn of a server to which others may do what they should not."""
    if access.is_open:
        logger.warning("The frontier is open to all who reach %s, and they may do everything", host)
    elif access.is_public and not has_tls:
        logger.warning(
            "Tokens and URLs are sent to %s in clear; --tls-cert and --tls-key encrypt them", host
        )


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
