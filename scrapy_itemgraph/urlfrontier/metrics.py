"""The counts of a server in Prometheus's words, over HTTP, under the names of upstream's server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import grpc
import h11
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.urlfrontier.access import SCRAPING, caller_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator

    from prometheus_client import Metric

    from scrapy_itemgraph.urlfrontier.access import Access
    from scrapy_itemgraph.urlfrontier.counts import Counts

PATHS = {b"/metrics", b"/"}
PATIENCE = 15.0  # seconds for a request, and its answer; a call to the database has ten of them
HEAD = 16 * 1024  # bytes that a request has at most
CONNECTIONS = 20  # at a time; more are closed

# Of a peer that is gone, or is slow; it gets nothing.
_NO_NEWS = (OSError, TimeoutError)
_CODES = {
    grpc.StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    grpc.StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class _Said(NamedTuple):
    """What is said to a request."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"


class Metrics:
    """Answers scrapes with a server's counts."""

    def __init__(self, counts: Counts, access: Access) -> None:
        self._counts = counts
        self._access = access
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._open = 0

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, context: ssl.SSLContext | None
    ) -> AsyncIterator[str]:
        """Listen; yield the address.

        Raises:
            OperationError: it cannot listen there.

        """
        try:
            server = await asyncio.start_server(
                self._answer, host, port, ssl=context, reuse_port=False
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise OperationError(
                f"cannot listen at {host} port {port}: {reason}; --metrics-port N takes another"
            ) from None
        try:
            address, number = server.sockets[0].getsockname()[:2]
            yield f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
        finally:
            server.close()

    def describe(self) -> list[Metric]:
        """Return nothing: what there is, is known when it is collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the counts."""
        one = self._counts
        yield _counter("frontier_getURLs_calls", "Calls of GetURLs", one.get_calls)
        yield _counter("frontier_getURLs", "URLs that were handed out", one.get_urls)
        yield SummaryMetricFamily(
            "frontier_getURLs_latency_seconds",
            "Seconds from a call of GetURLs until its last URL is sent",
            count_value=one.get_calls,
            sum_value=one.get_seconds,
        )
        yield _counter("frontier_putURLs_calls", "Calls of PutURLs", one.put_calls)
        yield _counter(
            "frontier_putDiscovered_calls", "Calls of PutDiscovered", one.put_batch_calls
        )
        yield _counter("frontier_putURLs", "URLs that came in, in either call", one.put_urls)
        by_kind = CounterMetricFamily(
            "frontier_putURLs_discovered", "URLs that came in, by kind", labels=["discovered"]
        )
        by_kind.add_metric(["true"], one.discovered)
        by_kind.add_metric(["false"], one.known)
        yield by_kind
        yield _counter("frontier_putURLs_ignored", "Discovered URLs known already", one.ignored)
        yield _counter("frontier_putURLs_completed", "URLs never fetched again", one.completed)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        self._open += 1
        with suppress(*_NO_NEWS):
            try:
                async with asyncio.timeout(PATIENCE):
                    if self._open <= CONNECTIONS:
                        await self._talk(reader, writer)
            finally:
                self._open -= 1
                writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol, has_body = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD), True
        try:
            while (event := protocol.next_event()) is h11.NEED_DATA:
                protocol.receive_data(await reader.read(HEAD))
        except h11.RemoteProtocolError as error:
            said = _Said(HTTPStatus(error.error_status_hint), f"{error}\n".encode())
        else:
            if not isinstance(event, h11.Request):
                return
            has_body = event.method != b"HEAD"
            peer = writer.get_extra_info("peername")
            said = await self._said(event, peer[0] if peer else None)
        for one in _written(said, has_body=has_body):
            writer.write(protocol.send(one) or b"")
        await writer.drain()

    async def _said(self, request: h11.Request, host: str | None) -> _Said:
        """Return what is said to a request."""
        if request.target.partition(b"?")[0] not in PATHS:
            return _Said(HTTPStatus.NOT_FOUND, b"the numbers are at /metrics\n")
        if request.method not in {b"GET", b"HEAD"}:
            return _Said(HTTPStatus.METHOD_NOT_ALLOWED, b"numbers can only be read: GET\n")
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        refusal = await self._access.refusal(SCRAPING, caller_of(headers, host))
        if refusal is not None:
            return _Said(_CODES[refusal.code], f"{refusal.why}\n".encode())
        return _Said(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)


def _counter(name: str, said: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, said, value=value)


def _written(said: _Said, *, has_body: bool) -> Iterator[h11.Event]:
    """Return an answer as HTTP/1.1 has it."""
    headers = [
        ("content-type", said.kind),
        ("content-length", str(len(said.body))),
        ("connection", "close"),
    ]
    if said.status is HTTPStatus.UNAUTHORIZED:
        headers.append(("www-authenticate", "Bearer"))
    yield h11.Response(status_code=said.status.value, headers=headers, reason=said.status.phrase)
    if has_body:
        yield h11.Data(data=said.body)
    yield h11.EndOfMessage()
