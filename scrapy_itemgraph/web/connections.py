"""Connections: how many there may be, and how long each may keep the server waiting.

uvicorn alone has no limit by address, and waits for ever: for the rest of a head, for whoever does
not read an answer, and for the rest of a body that nobody reads. This is its protocol with limits.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.web import problems
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem
from scrapy_itemgraph.web.protection import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST, MOST_BY_ADDRESS = 500, 100  # connections
BACKLOG = 128  # connections that wait to be taken; as many are taken at a time
HEAD_WITHIN = 10.0  # seconds for a head, from the connection's start or the answer before
ANSWER_WITHIN = 60.0  # seconds in which some of an answer that waits has to be taken
LINGERS = 2.0  # seconds in which the rest of a body is dropped, so that its sender sees the answer
SAID_EVERY = 60.0  # seconds between two lines about files
_EVERY = 1.0  # seconds between two looks at all connections
_OTHER_FILES = 128  # what the database, pages and processes may have open
_FEWEST = 16
_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
logger = logs.logger(__name__)


class Door(ServerState):
    """Who is connected: turns away what is too many, and ends what takes too long."""

    def __init__(self, most: int = MOST, most_by_address: int = MOST_BY_ADDRESS) -> None:
        super().__init__()
        self._most = affordable(most)
        self._most_by_address = most_by_address
        self._looking: asyncio.TimerHandle | None = None
        self._said_at = -SAID_EVERY

    def enter(self, newcomer: Connection) -> None:
        """Let a connection in; at a limit, in place of the one that has waited longest.

        One that waits has not sent a head yet, or has its answer. Where none waits, the newcomer is
        refused. Connections from this machine, such as a proxy's, count in all and not by address.
        """
        if self._looking is None:
            self._looking = newcomer.loop.call_later(_EVERY, self._look, newcomer.loop)
        others = [one for one in self._all() if one is not newcomer]
        near = [one for one in others if one.origin == newcomer.origin]
        if newcomer.origin is not None and len(near) >= self._most_by_address:
            _make_room(near, newcomer, f"from this address are {len(near):,} connections already")
        elif len(others) >= self._most:
            _make_room(others, newcomer, f"there are {len(others):,} connections already")

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: that no file is left is said once a minute."""
        error = context.get("exception")
        is_of_accept = "socket" in context and isinstance(error, OSError) and error.errno in _LACKS
        if not is_of_accept:
            loop.default_exception_handler(context)
        elif loop.time() - self._said_at >= SAID_EVERY:
            self._said_at = loop.time()
            logger.error(
                "New connections wait, for the server has no file left for them (%s); let it have "
                "more (`ulimit -n`, LimitNOFILE), or fewer connections (--connections)",
                getattr(error, "strerror", error),
            )

    def _all(self) -> Iterable[Connection]:
        return cast("set[Connection]", self.connections)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = loop.call_later(_EVERY, self._look, loop) if self.connections else None
        now = loop.time()
        for one in list(self._all()):
            one.end_if_late(now)


class Connection(H11Protocol):
    """A connection that does not keep the server waiting."""

    origin: str | None  # what counts as one address
    waits_since: float | None  # for a head, or for the end of a body that is dropped

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._unread, self._read_at = 0, 0.0
        self._socket = cast("asyncio.Transport", transport)
        self.waits_since = self.loop.time()
        super().connection_made(cast("asyncio.Transport", _Transport(self._socket, self)))
        self.origin = origin(self.client[0]) if self.client else None
        cast("Door", self.server_state).enter(self)

    def data_received(self, data: bytes) -> None:
        """Read; what comes after a last answer is dropped."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE and not self.transport.is_closing():
            self.waits_since = None

    def on_response_complete(self) -> None:
        """Wait for the next head; but not for the rest of a body whose answer is given."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        elif self.conn.their_state is h11.IDLE:
            self.waits_since = self.loop.time()

    def close(self) -> None:
        """Close when the answer is sent; while a body comes, say so, and linger.

        To close with bytes unread is to reset the connection, by which an answer may get lost.
        """
        is_unread = self.conn.their_state in {h11.SEND_BODY, h11.ERROR}
        if not is_unread or not self._socket.can_write_eof():
            self._socket.close()
            return
        self.waits_since = self.loop.time()
        self._socket.resume_reading()
        self._socket.write_eof()

    def end_if_late(self, now: float) -> None:
        """End if a head, the reading of an answer or the rest of a body takes too long."""
        unread = self._socket.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._read_at = unread, now
        waits = 0.0 if self.waits_since is None else now - self.waits_since
        if now - self._read_at >= ANSWER_WITHIN:
            self._socket.abort()
        elif self.transport.is_closing():
            if waits >= LINGERS and not unread:
                self._socket.abort()
        elif waits >= HEAD_WITHIN:
            if self.conn.trailing_data[0]:
                self.refuse(Problem(408, f"the head was not here in {HEAD_WITHIN:.0f} seconds"))
            else:
                self._socket.close()

    def refuse(self, problem: Problem) -> None:
        """Answer without a request, and close."""
        answer = problems.answer(problem)
        fields = {**HEADERS, **answer.headers, "Connection": "close"}
        line = f"HTTP/1.1 {int(problem.status)} {problem.status.phrase}"
        head = "\r\n".join([line, *(f"{name}: {value}" for name, value in fields.items()), "", ""])
        self._socket.write(head.encode("latin-1") + bytes(answer.body))
        self.transport.close()

    def abort(self) -> None:
        """End at once."""
        self._socket.abort()


class _Transport:
    """A connection's transport, which closes as the connection says."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._is_closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close, or linger."""
        if not self._is_closing:
            self._is_closing = True
            self._connection.close()

    def is_closing(self) -> bool:
        """Tell whether it is closed, or lingers."""
        return self._is_closing or self._transport.is_closing()


def affordable(most: int) -> int:
    """Return how many connections there may be with the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or most + _OTHER_FILES + BACKLOG <= files:
        return most
    fewer = min(most, max(_FEWEST, files - _OTHER_FILES - BACKLOG))
    if fewer < most:
        logger.warning(
            "There may be %d connections and not %d, for this process may have %d files open "
            "(`ulimit -n`)",
            fewer,
            most,
            files,
        )
    return fewer


def origin(host: str) -> str | None:
    """Return what counts as one address, of IPv6 a network of 64 bits; None: this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return None
    return str(address) if address.version == 4 else f"{int(address) >> 64:x}"  # noqa: PLR2004


def _make_room(crowd: Iterable[Connection], newcomer: Connection, said: str) -> None:
    waiting = [one for one in crowd if one.waits_since is not None]
    if waiting:
        min(waiting, key=lambda one: one.waits_since or 0.0).abort()
    else:
        newcomer.refuse(Problem(503, f"{said}; close some, or try again later", RETRY_AFTER))
