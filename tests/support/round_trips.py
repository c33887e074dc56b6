"""Counts round trips to PostgreSQL by what passes on the wire, and not by the time that it takes.

A `Wire` stands between an event loop's connections and the server. It passes an answer on only when
the loop has nothing else to do: then what was sent so far is one trip, however fast the server is.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_SYNC, _QUERY, _PARSE, _READY = b"S", b"Q", b"P", b"Z"


class _Link:
    """A connection through a wire: the client's end, the server's, and what awaits an answer."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_begun = False
        self.unanswered = 1  # the start of the connection is answered like a statement
        self._sent = b""
        self._answered = b""

    def pass_on(self) -> list[str] | None:
        """Pass on what the client sent; return the statements in it, None for nothing."""
        data = _read(self.client)
        if not data:
            return None
        self.server.sendall(data)
        statements = []
        self._sent += data
        if not self.is_begun:
            (length,) = struct.unpack("!i", self._sent[:4])
            self._sent, self.is_begun = self._sent[length:], True
        messages, self._sent = _messages(self._sent)
        for kind, body in messages:
            self.unanswered += kind in {_SYNC, _QUERY}
            if kind == _QUERY:
                statements.append(body.rstrip(b"\0").decode())
            elif kind == _PARSE:
                statements.append(body.split(b"\0")[1].decode())
            elif kind == b"B":
                statements.append(f"bind {body.split(bytes(1))[1].decode()}")
        return statements

    def answer(self) -> None:
        """Pass on the answers to all that was sent."""
        while self.unanswered:
            data = self.server.recv(1 << 16)
            if not data:
                self.unanswered = 0
            self._answered += data
            messages, self._answered = _messages(self._answered)
            self.unanswered -= sum(kind == _READY for kind, _ in messages)
            self.client.sendall(data)


class Wire(selectors.DefaultSelector):
    """The selector of an event loop whose connections to `port` pass through it.

    `trips` has the statements of each round trip; clear it when you like.
    """

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__()
        self.trips: list[list[str]] = []
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._links: list[_Link] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events; have the server's answers passed on first, where there are no others."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        self._accept()
        if self._take_trip():
            return super().select(0)
        return super().select(timeout)

    def close(self) -> None:
        """Close all of it."""
        super().close()
        for link in self._links:
            link.client.close()
            link.server.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        host, port = self._upstream
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
        else:
            server = socket.create_connection(self._upstream)
        client.setblocking(False)
        self._links.append(_Link(client, server))

    def _take_trip(self) -> bool:
        sent: list[str] = []
        any_sent = False
        for link in self._links:
            statements = link.pass_on()
            if statements is not None:
                any_sent = True
                sent += statements
            link.answer()
        if any_sent:
            self.trips.append(sent)
        return any_sent


def _read(end: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            part = end.recv(1 << 16)
        except BlockingIOError:
            return b"".join(parts)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _messages(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Split whole messages of the protocol off; return their kinds and bodies, and the rest."""
    found = []
    while len(data) >= 5:
        (length,) = struct.unpack("!i", data[1:5])
        if len(data) <= length:
            break
        found.append((data[:1], data[5 : length + 1]))
        data = data[length + 1 :]
    return found, data


def run(database: str, main: Callable[[str, Wire], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function that is given a URL of the database, and the wire on its way."""
    engine = sa.create_engine(database)
    with engine.connect() as probe:
        info = probe.connection.driver_connection.info
        upstream, user, password = (info.host, info.port), info.user, info.password
    engine.dispose()
    with closing(Wire(upstream)) as wire:
        url = sa.URL.create(
            "postgresql",
            user,
            password or None,
            "127.0.0.1",
            wire.port,
            engine.url.database,
            query={"sslmode": "disable", "gssencmode": "disable"},
        )
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(wire)) as runner:
            return runner.run(main(url.render_as_string(hide_password=False), wire))
