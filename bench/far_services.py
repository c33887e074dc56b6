"""A website and a delaying proxy, as processes of their own, for `bench_far.py`.

    python far_services.py site PAGES
    python far_services.py proxy SECONDS PATH_OR_HOST PORT

Each prints the port that it listens on, and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from end_to_end import served

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Website(asyncio.Protocol):
    """Answers GET /deep/pN.html with the bytes of a page."""

    def __init__(self, pages: dict[bytes, bytes]) -> None:
        self._pages = pages
        self._read = b""

    def connection_made(self, transport: Any) -> None:
        """Keep where to write to."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request whose head is there."""
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            body = self._pages.get(head.split(b" ", 2)[1])
            status = b"404 Not Found" if body is None else b"200 OK"
            self._transport.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
                % (status, len(body or b""), body or b"")
            )


class Half(asyncio.Protocol):
    """One end of a connection: what it reads is written to the other end `seconds` later.

    Each part has its own delay, so a slow link carries as much as a fast one.
    """

    def __init__(self, seconds: float) -> None:
        self.other: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self._seconds = seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        """Send small packets at once."""
        self.transport = transport
        if transport.get_extra_info("socket").family != socket.AF_UNIX:
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Pass a part on, later."""
        self._later(lambda other: other.write(data))

    def connection_lost(self, _: Exception | None) -> None:
        """Pass the end on, later."""
        self._later(lambda other: other.close())

    def _later(self, act: Callable[[asyncio.Transport], None]) -> None:
        loop = asyncio.get_running_loop()
        done = partial(self.other.add_done_callback, lambda other: act(other.result()))
        if self._seconds:
            loop.call_later(self._seconds, done)
        else:
            done()


async def site(pages: int) -> asyncio.Server:
    """Serve a deep site of so many pages."""
    made = {
        f"/deep/p{number}.html".encode(): served.page(
            f"Page {number}", [f"p{other}.html" for other in served.linked(number, pages)]
        ).encode()
        for number in range(pages)
    }
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Website(made), "127.0.0.1", 0, backlog=1000)


async def proxy(round_trip: float, host: str, port: int) -> asyncio.Server:
    """Pass connections on to a server, each byte half of the round trip later."""
    loop = asyncio.get_running_loop()

    async def connect(near: Half) -> None:
        def far() -> Half:
            return Half(round_trip / 2)

        if host.startswith("/"):
            path = f"{host}/.s.PGSQL.{port}"
            transport, other = await loop.create_unix_connection(far, path)
        else:
            transport, other = await loop.create_connection(far, host, port)
        other.other.set_result(near.transport)
        near.other.set_result(transport)

    tasks = set()

    def accept() -> Half:
        near = Half(round_trip / 2)
        tasks.add(loop.create_task(connect(near)))
        return near

    return await loop.create_server(accept, "127.0.0.1", 0)


async def main(serving: Coroutine[Any, Any, asyncio.Server]) -> None:
    """Serve until the process is killed."""
    server = await serving
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    begun = (
        site(int(given[0])) if what == "site" else proxy(float(given[0]), given[1], int(given[2]))
    )
    # `select` waits for parts of a millisecond, `epoll` does not.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(main(begun))
