"""The counts of a server in Prometheus's words, over HTTP, under the names of upstream's server."""

from __future__ import annotations

import asyncio
import http
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import grpc
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, OperationError
from scrapy_itemgraph.urlfrontier.access import SCRAPING, caller_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator

    from prometheus_client import Metric

    from scrapy_itemgraph.urlfrontier.access import Access
    from scrapy_itemgraph.urlfrontier.counts import Counts

PATHS = {"/metrics", "/"}
PATIENCE = 10.0  # seconds that a request may take to come in, and its answer to go out
HEAD = 16 * 1024  # bytes that a request has at most
CONNECTIONS = 20  # at a time; more are closed

# Of a peer that is gone, is slow, or sends no HTTP; it gets nothing.
_NO_NEWS = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_CODES = {
    grpc.StatusCode.UNAUTHENTICATED: http.HTTPStatus.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: http.HTTPStatus.FORBIDDEN,
}


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
                self._answer, host, port, limit=HEAD, ssl=context, reuse_port=False
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
                        head = await reader.readuntil(b"\r\n\r\n")
                        peer = writer.get_extra_info("peername")
                        writer.write(await self._said(head, peer[0] if peer else None))
                        await writer.drain()
            finally:
                self._open -= 1
                writer.close()

    async def _said(self, head: bytes, host: str | None) -> bytes:
        """Return the answer to a request, by its head."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, is_there, value in (line.partition(":") for line in lines)
            if is_there
        }
        if rest.partition(" ")[0].partition("?")[0] not in PATHS:
            return _written(http.HTTPStatus.NOT_FOUND, b"the numbers are at /metrics\n")
        if method != "GET":
            return _written(http.HTTPStatus.METHOD_NOT_ALLOWED, b"numbers can only be read: GET\n")
        try:
            refusal = await self._access.refusal(SCRAPING, caller_of(headers, host))
        except DatabaseUnavailableError as error:
            return _written(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())
        if refusal is not None:
            return _written(_CODES[refusal.code], f"{refusal.why}\n".encode())
        return _written(http.HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)


def _counter(name: str, said: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, said, value=value)


def _written(
    status: http.HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8"
) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    if status is http.HTTPStatus.UNAUTHORIZED:
        head += "www-authenticate: Bearer\r\n"
    return f"{head}\r\n".encode() + body
