"""Clients that send bytes as they are, and break off where they like."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.web_servers import Server

PATIENCE = 30.0  # seconds
FORM = "application/x-www-form-urlencoded"


def head(method: str, path: str, *fields: str) -> bytes:
    """Return the line and headers of a request to this machine."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode()


def chunked(body: bytes, size: int = 1) -> bytes:
    """Return a body in chunks, with the last one."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


@contextmanager
def connection(server: Server) -> Iterator[socket.socket]:
    """Yield a connection to a server."""
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port), timeout=PATIENCE) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield one


def cut(server: Server, sent: bytes) -> bytes:
    """Send bytes, break off, and return what is answered."""
    with connection(server) as one:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        return read(one)


def read(one: socket.socket) -> bytes:
    """Return all that comes until the other side ends the connection."""
    came = b""
    with suppress(ConnectionResetError):
        while part := one.recv(1 << 16):
            came += part
    return came
