"""Connections: what a download waits for before its request leaves, as Twisted's pools tell."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.task import deferLater
from twisted.web.client import HTTPConnectionPool

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scrapy import Request
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IStreamClientEndpoint
    from twisted.web._newclient import HTTP11ClientProtocol


class ConnectionWatcher(Protocol):
    """What is told of its connection: a send."""

    def connecting(self) -> None:
        """Take note that the request waits for a connection from now on."""

    def connected(self) -> float:
        """Return in how many seconds the request may be written to its connection."""

    def waited(self) -> float:
        """Return the same after it has waited for so long."""


current_send: ContextVar[ConnectionWatcher | None] = ContextVar("itemgraph_send", default=None)


class Connections:
    """Has the connection pools of Scrapy's download handlers tell the send that asks them.

    Other handlers tell nothing.
    """

    def __init__(self, handlers: Any) -> None:
        """Take the downloader's handlers."""
        self._handler_of = getattr(handlers, "_get_handler", lambda _: None)
        self._told: WeakSet[HTTPConnectionPool] = WeakSet()

    def watch(self, request: Request) -> None:
        """Have the pool that a request may ask tell of it."""
        handler = self._handler_of(urlparse_cached(request).scheme)
        pool = getattr(handler, "_pool", None)
        if isinstance(pool, HTTPConnectionPool) and pool not in self._told:
            self._told.add(pool)
            _wrap(pool)


def _wrap(pool: HTTPConnectionPool) -> None:
    get_connection = pool.getConnection

    def getConnection(  # noqa: N802 - Twisted's name
        key: Hashable, endpoint: IStreamClientEndpoint
    ) -> Deferred[HTTP11ClientProtocol]:
        who = current_send.get()
        if who is None:
            return get_connection(key, endpoint)
        who.connecting()

        def held(
            connection: HTTP11ClientProtocol, seconds: float
        ) -> HTTP11ClientProtocol | Deferred[HTTP11ClientProtocol]:
            if seconds <= 0:
                return connection
            reactor = pool._reactor  # noqa: SLF001 - it is not to be imported without one
            waited: Deferred[None] = deferLater(reactor, seconds)
            return waited.addCallback(lambda _: held(connection, who.waited()))

        made = get_connection(key, endpoint)
        return made.addCallback(lambda connection: held(connection, who.connected()))

    pool.getConnection = getConnection  # type: ignore[method-assign]
