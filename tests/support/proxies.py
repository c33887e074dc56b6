"""A network between a crawl and its database that can fall silent."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator


class Proxy:
    """Passes bytes on both ways; what it does not pass on waits, and nobody is told."""

    def __init__(self, upstream: str | tuple[str, int], host: str = "127.0.0.1") -> None:
        """Pass on to a server: the path of its socket, or its host and port."""
        self._upstream = upstream
        self.delay = 0.0  # seconds by which each byte arrives late, in both directions
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()
        self._listener = socket.create_server((host, 0))
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._mute: set[socket.socket] = set()
        self._is_frozen = False
        self._is_over = False
        self._wake, self._waker = socket.socketpair()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens, on its host."""
        return self._listener.getsockname()[1]

    def freeze(self) -> None:
        """Pass nothing on, until `thaw`; not even that somebody connects."""
        self._set(frozen=True)

    def thaw(self) -> None:
        """Pass on what has gathered, and what comes."""
        self._set(frozen=False)

    def forget(self) -> int:
        """Pass nothing on any more on the present connections; return how many those are."""
        with self._lock:
            self._mute |= set(self._pairs)
        self._waker.send(b".")
        return len(self._mute) // 2

    def cut(self) -> None:
        """Close the present connections."""
        with self._lock:
            for one in self._pairs:
                with suppress(OSError):  # the other end may have gone already
                    one.shutdown(socket.SHUT_RDWR)

    def lead(self, upstream: str | tuple[str, int]) -> str | tuple[str, int]:
        """Pass new connections on to another server, or to none; return where to before."""
        before, self._upstream = self._upstream, upstream
        return before

    def close(self) -> None:
        """End all of it."""
        self._is_over = True
        self._waker.send(b".")
        self._thread.join()
        for one in (*self._pairs, self._listener, self._wake, self._waker):
            one.close()

    def _set(self, *, frozen: bool) -> None:
        with self._lock:
            self._is_frozen = frozen
        self._waker.send(b".")

    def _run(self) -> None:
        while not self._is_over:
            with self._lock:
                heard = [one for one in self._pairs if one not in self._mute]
                open_ones = [] if self._is_frozen else [self._listener, *heard]
                longest = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            ready, _, _ = select.select([self._wake, *open_ones], [], [], longest)
            with self._lock:
                self._send_late(time.monotonic())
                for one in ready:
                    if one is self._wake:
                        one.recv(100)
                    elif self._is_frozen or one in self._mute:
                        continue
                    elif one is self._listener:
                        self._accept()
                    elif one in self._pairs:
                        self._pass_on(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = self._connect()
        except OSError:  # there is no server now, and the client is told so
            client.close()
            return
        for end in (client, server):
            if end.family == socket.AF_INET:  # else each small packet waits for an acknowledgement
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs |= {client: server, server: client}

    def _connect(self) -> socket.socket:
        if not isinstance(self._upstream, str):
            return socket.create_connection(self._upstream)
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._upstream)
        except OSError:
            server.close()
            raise
        return server

    def _pass_on(self, one: socket.socket) -> None:
        other = self._pairs[one]
        try:
            data = one.recv(1 << 16)
            if data and self.delay:
                self._late.append((time.monotonic() + self.delay, other, data))
                return
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        self._send_late(float("inf"))  # before the ends are closed
        for end in (one, other):
            del self._pairs[end]
            end.close()

    def _send_late(self, until: float) -> None:
        """Send what was due by a moment."""
        while self._late and self._late[0][0] <= until:
            _, end, data = self._late.popleft()
            with suppress(OSError):
                end.sendall(data)


@contextmanager
def proxy(engine: sa.Engine, at: str = "127.0.0.1") -> Iterator[tuple[Proxy, str]]:
    """Yield a proxy before an engine's server, and the URL of the database through it."""
    with engine.connect() as probe:
        info = probe.connection.driver_connection.info
        upstream = (info.host, info.port)
        user, password = info.user, info.password
    engine.dispose()
    host, port = upstream
    one = Proxy(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else upstream, at)
    url = sa.URL.create("postgresql", user, password or None, at, one.port, engine.url.database)
    try:
        yield one, url.render_as_string(hide_password=False)
    finally:
        one.close()
