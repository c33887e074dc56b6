"""Calls with streams: URLs that come in, and URLs that go out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import grpc

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, InvalidDataError
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled, either
from scrapy_itemgraph.urlfrontier.calls import MALFORMED
from scrapy_itemgraph.urlfrontier.puts import IN_BATCHES, ITEMS, Gatherer, Stream
from scrapy_itemgraph.urlfrontier.sizes import fits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
    from scrapy_itemgraph.graph.frontier_handouts import FrontierHandouts
    from scrapy_itemgraph.model.frontier import HandedURL, Request
    from scrapy_itemgraph.urlfrontier.codec import Codec
    from scrapy_itemgraph.urlfrontier.counts import Counts

logger = logs.logger(__name__)

STOPS = "the server is stopping"


class Streams:
    """The calls of a server that have streams, in any version, until it stops."""

    def __init__(self, graph: FrontierGraph, counts: Counts) -> None:
        self._graph = graph
        self._counts = counts
        self._gatherer = Gatherer(graph.puts, counts)
        self._is_stopping = asyncio.Event()
        self._beside: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Read nothing more; what was read is acked, and then the streams end."""
        self._is_stopping.set()

    async def finish(self) -> None:
        """Wait until what was read is stored, and what was not sent is given back."""
        await self._gatherer.finish()
        while self._beside:
            await asyncio.wait(self._beside)

    # In

    async def put_urls(self, codec: Codec, given: AsyncIterator[Any], context: Any) -> None:
        """PutURLs: store each item, and ack it when it is committed."""
        self._counts.put_calls += 1
        stream = Stream(self._gatherer, ITEMS, self._counts)
        await self._put(given, context, stream, lambda one: stream.take(codec.item(one)), codec.ack)

    async def put_discovered(self, codec: Codec, given: AsyncIterator[Any], context: Any) -> None:
        """PutDiscovered: store each batch, and ack it when all of it is committed."""
        self._counts.put_batch_calls += 1
        stream = Stream(self._gatherer, IN_BATCHES, self._counts)
        await self._put(
            given, context, stream, lambda one: stream.take_batch(codec.batch(one)), codec.batch_ack
        )

    async def _put(
        self,
        given: AsyncIterator[Any],
        context: Any,
        stream: Stream,
        take: Callable[[Any], None],
        ack: Callable[[str, Any], Any],
    ) -> None:
        reading = asyncio.create_task(self._read(given, stream, take))
        try:
            while acks := await stream.acks():
                for one in acks:
                    answer = ack(one.name, one.said)
                    if not fits(answer):
                        raise InvalidDataError("an ID is longer than what a client takes (4 MB)")
                    await context.write(answer)
                    stream.written(one)
            await reading
        finally:
            await cancelled([reading])
        if self._is_stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPS)

    async def _read(
        self, given: AsyncIterator[Any], stream: Stream, take: Callable[[Any], None]
    ) -> None:
        """Read until the client ends the stream, or the server stops."""

        async def read() -> None:
            async for one in given:
                if one is None:
                    raise InvalidDataError(MALFORMED)
                take(one)
                await stream.room()

        try:
            reading = await either(self._is_stopping, read())
        finally:
            stream.end()
        if not reading.cancelled():
            reading.result()

    # Out

    async def get_urls(self, codec: Codec, asked: Any, context: Any) -> None:
        """GetURLs: send what is due, a chunk at a time, each committed before it is sent."""
        self._counts.get_calls += 1
        request = codec.request(asked)
        if request is None:
            return
        began, sent = time.perf_counter(), 0
        sending = _Sending(self._graph.handouts, request)
        try:
            while not self._is_stopping.is_set() and await sending.has_more():
                for one in sending.unsent():
                    handed = codec.handed(one)
                    if not fits(handed):
                        self._counts.keep_back(one)
                        await self._graph.handouts.put_off(one)
                        continue
                    await context.write(handed)
                    self._counts.get_urls += 1
                    sent += 1
        finally:
            seconds = time.perf_counter() - began
            self._counts.get_seconds += seconds
            logger.debug("GetURLs: sent %d in %.0f ms: %s", sent, 1e3 * seconds, request)
            self._aside(sending.close())

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


class _Sending:
    """URLs that are handed out to one call; what it has not begun to send is given back."""

    def __init__(self, handouts: FrontierHandouts, request: Request) -> None:
        self._handouts = handouts
        self._chunks: Any = handouts.hand_out(request)  # a generator
        self._hold = request.hold
        self._until = 0.0  # when the chunk's hold is over, by the monotonic clock
        self._following: asyncio.Task[list[HandedURL]] | None = None
        self._unsent: deque[HandedURL] = deque()
        self._late: list[HandedURL] = []

    async def has_more(self) -> bool:
        """Have the next chunk handed out; tell whether there is one.

        A call that is cancelled meanwhile leaves it to `close`, for it may be committed.
        """
        self._until = time.monotonic() + self._hold
        self._following = asyncio.create_task(anext(self._chunks, []))
        self._unsent.extend(await asyncio.shield(self._following))
        self._following = None
        return bool(self._unsent)

    def unsent(self) -> Iterator[HandedURL]:
        """Yield the URLs that are to be sent; each counts as sent as its sending begins.

        A client that reads slowly does not get what others may have by now.
        """
        while self._unsent and time.monotonic() < self._until:
            yield self._unsent.popleft()
        if self._unsent:
            logger.warning(
                "%d URLs are not sent to a client that reads slowly: their hold of %d s is over",
                len(self._unsent),
                self._hold,
            )
            self._late.extend(self._unsent)
            self._unsent.clear()

    async def close(self) -> None:
        """Give back what was not sent."""
        try:
            if self._following is not None:
                self._unsent.extend(await self._following)
            await self._chunks.aclose()
            await self._handouts.give_back([*self._late, *self._unsent])
        except DatabaseUnavailableError as error:
            if self._unsent:
                logger.warning("%s %d URLs are held that nobody has", error, len(self._unsent))
        except Exception:  # nobody waits for this
            logger.exception("%d URLs are held that nobody has", len(self._unsent))
