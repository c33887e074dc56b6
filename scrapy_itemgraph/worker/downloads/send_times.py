"""Send times: when requests leave this process for the network, for gaps count from there.

A request that was let start reaches its socket some turns of the event loop later, and later still
where a connection has to be made.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.task import deferLater
from twisted.web.client import HTTPConnectionPool

from scrapy_itemgraph.throttle.limiter import SLOT
from scrapy_itemgraph.tools.async_tools import happens
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from scrapy import Request
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IStreamClientEndpoint
    from twisted.web._newclient import HTTP11ClientProtocol

    from scrapy_itemgraph.throttle.limiter import Lane, Limiter

# In so many turns of the event loop a request that was let start has reached its socket: a slot's
# task, the handler, the connection's writer each take one or two.
_TURNS_TO_SEND = 12
# So long at most a page waits for a request to be sent before its callback is called.
_LONGEST_QUIET = 0.05
# A connection that takes longer is taken for made, in seconds.
_LONGEST_CONNECT = 5.0
_SHORT_CONNECT = 0.02
_CONNECT_SHARE = 0.2  # of the gap


@dataclass(slots=True, eq=False)
class Sends:
    """The requests that are leaving this process."""

    on_left: Callable[[], None]  # called when the next request may start
    is_first: bool = True  # nothing was downloaded yet
    _leaving: int = 0  # requests on their way to an open connection's socket
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)  # there is none

    async def quiet(self) -> None:
        """Wait until no request is on its way to its socket: a callback may block the loop."""
        if self._leaving:
            await happens(self._quiet, _LONGEST_QUIET)

    def begin(self) -> None:
        """Count a request that reaches its socket in the next turns."""
        self._leaving += 1
        self._quiet.clear()

    def end(self) -> None:
        """Count it no longer."""
        self._leaving -= 1
        if not self._leaving:
            self._quiet.set()


class Send:
    """One request on its way, told of its connection by the pool if it has one.

    A slot's first request makes a connection, so only its answer tells that it has left. A limit
    over many hosts goes on while connections are made: a request whose connection took its time
    then leaves a gap after whatever has left meanwhile.
    """

    def __init__(self, sends: Sends, lane: Lane, now: float, host: str) -> None:
        self._sends = sends
        self._unsent = set(lane)
        self._is_cold = sends.is_first or any(one.is_cold(now) for one in lane)
        gapped = [one for one in lane if one.in_force.is_exclusive]
        answered = [one for one in gapped if self._is_cold and (one.is_slot or sends.is_first)]
        self._followed = [one for one in gapped if one not in answered]
        # Of a slot that is the host all connections take alike.
        self._spaced = [one for one in gapped if one in answered or one.key != (SLOT, host)]
        self._late: list[Limiter] = []
        self._was_asked = self._is_connecting = False
        self._mark([one for one in lane if not one.in_force.is_exclusive])
        if answered:
            asyncio.get_running_loop().call_later(_LONGEST_CONNECT, self._mark, answered)
        if self._followed:
            sends.begin()
            self._follow(_TURNS_TO_SEND)

    def connecting(self) -> None:
        """Take note that the request waits for a connection from now on."""
        self._was_asked = self._is_connecting = True

    def connected(self) -> float:
        """Return in how many seconds the request may be written to its connection."""
        self._is_connecting = False
        now = time.monotonic()
        self._late = [one for one in self._spaced if one not in self._unsent]
        return self._leave(max([now, *(one.starts.leaves_at(now) for one in self._late)]), now)

    def waited(self) -> float:
        """Return in how many seconds it may be written that has waited; the loop may be late."""
        now = time.monotonic()
        return self._leave(max([now, *(one.starts.goes_at for one in self._late)]), now)

    def _leave(self, at: float, now: float) -> float:
        for one in self._late:
            one.starts.leave(at, is_gone=at <= now)
        self._sends.on_left()
        return at - now

    def answered(self) -> None:
        """Take note that the download ended."""
        self._mark(self._unsent)

    def _follow(self, turns: int) -> None:
        if turns and self._unsent.intersection(self._followed):
            asyncio.get_running_loop().call_soon(self._follow, turns - 1)
            return
        self._sends.end()
        if self._is_cold and not self._was_asked:  # nobody tells of the connection
            loop = asyncio.get_running_loop()
            for one in self._followed:
                wait = min(_CONNECT_SHARE * one.gap, _SHORT_CONNECT)
                loop.call_later(wait, self._mark, [one])
        else:
            self._mark(self._followed)

    def _mark(self, lane: Collection[Limiter]) -> None:
        now = time.monotonic()
        for one in self._unsent.intersection(lane):
            self._unsent.remove(one)
            one.starts.sent(now, has_left=one not in self._spaced or not self._is_connecting)
        self._sends.on_left()


current_send: ContextVar[Send | None] = ContextVar("itemgraph_send", default=None)
"""The send whose download runs in this context."""


class ConnectionPools:
    """Has the connection pools of Scrapy's download handlers tell the send that asks one.

    Other handlers tell nothing.
    """

    def __init__(self, handlers: Any) -> None:
        self._handlers = handlers
        self._told: WeakSet[HTTPConnectionPool] = WeakSet()

    def watch(self, request: Request) -> None:
        """Have the pool that a request may ask tell of it."""
        scheme = urlparse_cached(request).scheme
        pool = scrapy_internals.connection_pool(self._handlers, scheme)
        if isinstance(pool, HTTPConnectionPool) and pool not in self._told:
            self._told.add(pool)
            _wrap(pool)


def _wrap(pool: HTTPConnectionPool) -> None:
    get_connection = pool.getConnection

    def getConnection(  # noqa: N802 - Twisted's name
        key: Hashable, endpoint: IStreamClientEndpoint
    ) -> Deferred[HTTP11ClientProtocol]:
        send = current_send.get()
        if send is None:
            return get_connection(key, endpoint)
        send.connecting()
        made = get_connection(key, endpoint)
        return made.addCallback(lambda connection: _held(connection, send.connected(), pool, send))

    pool.getConnection = getConnection  # type: ignore[method-assign]


def _held(
    connection: HTTP11ClientProtocol, seconds: float, pool: HTTPConnectionPool, send: Send
) -> HTTP11ClientProtocol | Deferred[HTTP11ClientProtocol]:
    """Return a connection in so many seconds, and then when its request may be written."""
    if seconds <= 0:
        return connection
    waited: Deferred[None] = deferLater(scrapy_internals.reactor_of(pool), seconds)
    return waited.addCallback(lambda _: _held(connection, send.waited(), pool, send))
