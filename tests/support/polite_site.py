"""A web server that stamps what arrives, in a process of its own: `python polite_site.py`.

Each host of it is another loopback address (127.0.1.1, 127.0.1.2, …, as Linux has them), so that
each is a slot of its own without any `meta`. Every path is a page; its query says how to answer:

- `latency=0.2`: that many seconds later;
- `to=/other`: by a redirect;
- `status=503`, with `retry_after=2` and with `times=1`: so, and only the first so many times;
- `close=1`: and close the connection, which is kept otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import os
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONTROL = "/-/"
TICK = 0.01
CLOCK_PRECISION = 0.0001
SO_TIMESTAMPNS = 35  # of Linux; Python has no name for it
TIMESPEC = struct.Struct("@ll")


class Arrival(NamedTuple):
    """A request as the server saw it; the times are those of `time.monotonic()`."""

    arrival: float
    end: float  # infinity while it is under way
    host: str
    path: str
    status: int  # 0 when the client went away before the answer
    agent: str


def address(host: int) -> str:
    """Return the address of a host, counted from 0."""
    return f"127.0.{1 + host // 250}.{1 + host % 250}"


@dataclass(frozen=True)
class PoliteSite:
    """The running server."""

    port: int

    def url(self, host: int, path: str) -> str:
        """Return the URL of a page of a host."""
        return url(self.port, host, path)

    def log(self) -> list[Arrival]:
        """Return every request so far, in order of arrival."""
        return sorted(Arrival(*entry) for entry in self._ask("log"))

    def seen(self) -> tuple[int, str]:
        """Return the number of requests so far, and the user agent of the last one."""
        count, agent = self._ask("seen")
        return count, agent

    def lag(self) -> float:
        """Return by how many seconds the server itself was late at worst, whatever it stamped."""
        return self._ask("lag")

    def _ask(self, what):
        with urlopen(f"http://127.0.0.1:{self.port}{CONTROL}{what}", timeout=30) as response:
            return json.load(response)


def url(port: int, host: int, path: str) -> str:
    """Return the URL of a page of a host of the server at a port."""
    return f"http://{address(host)}:{port}{path}"


@contextmanager
def polite_site(*, robots: str | None = None) -> Iterator[PoliteSite]:
    """Serve for as long as the block lasts; `robots` is every host's robots.txt."""
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(robots)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield PoliteSite(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# Figures


def of_host(log: Iterable[Arrival], host: int | None) -> list[Arrival]:
    """Return the requests to a host, or all of them, in order of arrival."""
    return sorted(one for one in log if host is None or one.host == address(host))


def gaps(log: Iterable[Arrival], host: int | None = None) -> list[float]:
    """Return the seconds between arrivals that follow each other, the shortest first."""
    arrivals = [one.arrival for one in of_host(log, host)]
    return sorted(later - earlier for earlier, later in pairwise(arrivals))


def short_gaps(log: Iterable[Arrival], least: float, host: int | None = None) -> list[str]:
    """Describe each gap that is shorter than `least`, in order of arrival."""
    return [
        f"{1000 * (later.arrival - earlier.arrival):.1f} ms from {earlier.host}{earlier.path} "
        f"({earlier.agent}) to {later.host}{later.path} ({later.agent})"
        for earlier, later in pairwise(of_host(log, host))
        if later.arrival - earlier.arrival < least
    ]


def highest_concurrency(log: Iterable[Arrival], host: int | None = None) -> int:
    """Return how many requests were under way at once, at most."""
    ones = of_host(log, host)
    changes = sorted([(one.arrival, 1) for one in ones] + [(one.end, -1) for one in ones])
    under_way = highest = 0
    for _, change in changes:
        under_way += change
        highest = max(highest, under_way)
    return highest


def rate(log: Iterable[Arrival], *, without: float | None = None) -> float:
    """Return arrivals per second between the first and the last.

    The gap in which the moment `without` lies is left out, the hand-over after a kill.
    """
    spans = [
        later.arrival - earlier.arrival
        for earlier, later in pairwise(sorted(log))
        if without is None or not earlier.arrival <= without < later.arrival
    ]
    return len(spans) / sum(spans) if spans else 0.0


def most_in(log: Iterable[Arrival], seconds: float) -> int:
    """Return how many requests arrived in any so many seconds, at most."""
    arrivals = [one.arrival for one in sorted(log)]
    first = most = 0
    for count, arrival in enumerate(arrivals, 1):
        while arrival - arrivals[first] >= seconds:
            first += 1
        most = max(most, count - first)
    return most


# The server


class State:
    """What the server has seen."""

    def __init__(self, robots: str | None) -> None:
        self.robots = robots
        self.log: list[list] = []
        self.hits: Counter[tuple[str, str]] = Counter()
        self.lag = 0.0

    async def measure_lag(self) -> None:
        """Note by how much this process wakes up too late."""
        while True:
            due = time.monotonic() + TICK
            await asyncio.sleep(TICK)
            self.lag = max(self.lag, time.monotonic() - due)

    def control(self, what: str) -> bytes:
        """Answer a question about what was seen."""
        if what == "log":
            return json.dumps(self.log).encode()
        if what == "seen":
            return json.dumps([len(self.log), self.log[-1][5] if self.log else ""]).encode()
        return json.dumps(self.lag).encode()

    def answer(self, host: str, target: str) -> tuple[int, dict[str, str], bytes, dict[str, str]]:
        """Return status, headers and body of a page, and its query."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        self.hits[host, target] += 1
        if parts.path == "/robots.txt":
            kind = {"Content-Type": "text/plain"}
            return (404 if self.robots is None else 200), kind, (self.robots or "").encode(), query
        headers = {"Content-Type": "text/html"}
        if query.get("close"):
            headers["Connection"] = "close"
        if "to" in query:
            headers["Location"] = query["to"]
            return 302, headers, b"", query
        if "status" in query and self.hits[host, target] <= float(query.get("times", "inf")):
            if "retry_after" in query:
                headers["Retry-After"] = query["retry_after"]
            return int(query["status"]), headers, b"as you say", query
        return 200, headers, f"<html><title>{host}{parts.path}</title>".encode(), query


class Connection:
    """As much HTTP/1.1 as a crawler needs: no bodies in requests, one request at a time.

    A request is stamped by the kernel as it comes in, so that a stamp is right also when this
    process, or the core that it waits for, is busy with something else.
    """

    def __init__(self, sock: socket.socket, state: State) -> None:
        self.sock = sock
        self.state = state
        self.buffer = b""
        self.entry: list | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(sock, self.read)

    def read(self) -> None:
        """Take in a request once its head is complete."""
        try:
            data, stamps, _, _ = self.sock.recvmsg(65536, socket.CMSG_SPACE(TIMESPEC.size))
        except BlockingIOError:
            return
        except OSError:
            data, stamps = b"", []
        if not data:
            self.close()
            return
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if end:
            self.buffer = rest
            self.answer(head.decode("latin-1"), stamped(stamps))

    def answer(self, head: str, arrival: float) -> None:
        """Answer a request, or a question about them."""
        first, *lines = head.split("\r\n")
        target = first.split(" ")[1]
        headers = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        if target.startswith(CONTROL):
            body = self.state.control(target.removeprefix(CONTROL))
            self.write(200, {"Content-Type": "application/json", "Connection": "close"}, body)
            return
        host = headers["host"].partition(":")[0]
        path = urlsplit(target).path
        self.entry = [arrival, math.inf, host, path, 0, headers.get("user-agent", "")]
        self.state.log.append(self.entry)
        status, sent, body, query = self.state.answer(host, target)
        if latency := float(query.get("latency", 0)):
            self.timer = self.loop.call_later(latency, self.finish, status, sent, body)
        else:
            self.finish(status, sent, body)

    def finish(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Stamp the end of a request, and answer: nobody can know of the answer any earlier."""
        self.entry[1], self.entry[4] = time.monotonic(), status
        self.entry = self.timer = None
        self.write(status, headers, body)

    def write(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Write an answer."""
        sent = headers | {"Content-Length": str(len(body))}
        lines = [
            f"HTTP/1.1 {status} As You Say",
            *(f"{name}: {sent[name]}" for name in sent),
            "",
            "",
        ]
        try:
            self.sock.setblocking(True)
            self.sock.sendall("\r\n".join(lines).encode("latin-1") + body)
            self.sock.setblocking(False)
        except OSError:
            self.close()
            return
        if headers.get("Connection") == "close":
            self.close()

    def close(self) -> None:
        """End, and stamp the end of a request that nobody waits for any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.entry[1] = time.monotonic()
        self.loop.remove_reader(self.sock)
        self.sock.close()


def stamped(stamps: list[tuple[int, int, bytes]]) -> float:
    """Return when something arrived; by our own clock where the kernel does not say."""
    for level, kind, data in stamps:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            return seconds + nanoseconds / 1e9 - wall_clock()
    return time.monotonic()


def wall_clock() -> float:
    """Return what the wall clock is ahead of the monotonic one, as read without an interruption."""
    while True:
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < CLOCK_PRECISION:
            return wall - (before + after) / 2


def listen() -> socket.socket:
    """Return a socket whose connections tell when something came in."""
    listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
    listener.setblocking(False)
    if sys.platform == "linux":
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return listener


async def main(robots: str | None) -> None:
    """Serve until killed."""
    state = State(robots)
    listener = listen()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.gather(state.measure_lag(), accept(listener, state))


async def accept(listener: socket.socket, state: State) -> None:
    """Take connections as they come."""
    while True:
        sock, _ = await asyncio.get_running_loop().sock_accept(listener)
        Connection(sock, state)


def hurry() -> None:
    """Come before other processes where that is allowed: a late stamp makes two wrong gaps."""
    gc.disable()
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(-15)


if __name__ == "__main__":
    hurry()
    asyncio.run(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else None))
