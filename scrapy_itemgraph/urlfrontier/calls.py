"""Calls with one request and one answer, and how errors of any call are told."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    InvalidDataError,
    InvalidIdError,
    NotFoundError,
)
from scrapy_itemgraph.model.frontier import key_of
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.wording import one_line
from scrapy_itemgraph.urlfrontier.codec import texts
from scrapy_itemgraph.urlfrontier.sizes import fits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from scrapy_itemgraph.graph.frontier_graph import FrontierGraph
    from scrapy_itemgraph.urlfrontier.access import Access
    from scrapy_itemgraph.urlfrontier.codec import Codec
    from scrapy_itemgraph.urlfrontier.counts import Counts

logger = logs.logger(__name__)

OURS = "scrapy_itemgraph"
THEIRS = "crawlercommons"

MALFORMED = "no message of this call, or it has text that is not UTF-8"
_TOO_LARGE = "the answer is larger than what a client takes (4 MB); ask for less, as by `size`"

_CODES = (
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (InvalidDataError, grpc.StatusCode.INVALID_ARGUMENT),
    (InvalidIdError, grpc.StatusCode.INVALID_ARGUMENT),
    (DatabaseUnavailableError, grpc.StatusCode.UNAVAILABLE),
)


class Calls:
    """The calls of a version that have one answer, by their names; and ListURLs."""

    def __init__(self, graph: FrontierGraph, codec: Codec, counts: Counts) -> None:
        self._graph = graph
        self._codec = codec
        self._counts = counts

    def by_name(self) -> dict[str, Callable[[Any], Awaitable[Any]]]:
        """Return the calls by the names of the API."""
        return {
            "ListNodes": self.list_nodes,
            "ListCrawls": self.list_crawls,
            "ListQueues": self.list_queues,
            "GetURLStatus": self.get_url_status,
            "CountURLs": self.count_urls,
            "GetStats": self.get_stats,
            "SetDelay": self.set_delay,
            "BlockQueueUntil": self.block_queue_until,
            "SetCrawlLimit": self.set_crawl_limit,
            "SetActive": self.set_active,
            "GetActive": self.get_active,
            "DeleteQueue": self.delete_queue,
            "DeleteCrawl": self.delete_crawl,
            "PurgeURLs": self.purge_urls,
            "SetLogLevel": self.set_log_level,
        }

    # What there is

    async def list_nodes(self, _: Any) -> Any:
        """ListNodes: the addresses of all servers of the database that live."""
        return self._codec.strings("ListNodes", await self._graph.listings.nodes())

    async def list_crawls(self, _: Any) -> Any:
        """ListCrawls: those that have a queue."""
        return self._codec.strings("ListCrawls", await self._graph.listings.crawls())

    async def list_queues(self, asked: Any) -> Any:
        """ListQueues: a page of keys."""
        crawl, (start, size) = self._codec.crawl(asked), self._codec.page(asked)
        keys = await self._graph.listings.queues(
            crawl, start=start, size=size, include_inactive=asked.include_inactive
        )
        return self._codec.queue_list(asked, crawl, keys)

    async def get_url_status(self, asked: Any) -> Any:
        """GetURLStatus: what is known of a URL of a queue."""
        key = asked.key or key_of(asked.url)
        if not key:
            raise InvalidDataError(f"{asked.url!r:.200} has no host, and no key is said")
        found = await self._graph.listings.url(self._codec.crawl(asked), key, asked.url)
        if found is None:
            raise NotFoundError(f"the queue {key!r:.200} has no URL {asked.url!r:.200}")
        return self._codec.listed("GetURLStatus", found)

    async def list_urls(self, asked: Any, context: Any) -> None:
        """ListURLs: a page of URLs of a queue or a crawl."""
        start, size = self._codec.page(asked)
        chunks = self._graph.listings.urls(
            self._codec.crawl(asked),
            asked.key or None,
            start=start,
            size=size,
            **self._codec.text_filter(asked),
        )
        async for chunk in chunks:
            for one in chunk:
                listed = self._codec.listed("ListURLs", one)
                if fits(listed):
                    await context.write(listed)
                else:
                    self._counts.keep_back(one)

    async def count_urls(self, asked: Any) -> Any:
        """CountURLs: those of a queue or a crawl, however many there are."""
        return self._codec.count(
            await self._graph.listings.count(
                self._codec.crawl(asked), asked.key or None, **self._codec.text_filter(asked)
            )
        )

    async def get_stats(self, asked: Any) -> Any:
        """GetStats: of a queue or a crawl."""
        crawl = self._codec.crawl(asked)
        return self._codec.stats(crawl, await self._graph.listings.stats(crawl, asked.key or None))

    # How URLs go out

    async def set_delay(self, asked: Any) -> Any:
        """SetDelay: of a queue, or of all that have none of their own."""
        await self._graph.controls.set_delay(
            self._codec.crawl(asked), asked.key or None, asked.delay_requestable
        )
        return self._codec.nothing("SetDelay")

    async def block_queue_until(self, asked: Any) -> Any:
        """BlockQueueUntil: a moment that is past ends the block."""
        crawl, moment = self._codec.crawl(asked), self._codec.blocked_until(asked)
        await self._graph.controls.block_until(crawl, asked.key, moment)
        return self._codec.nothing("BlockQueueUntil")

    async def set_crawl_limit(self, asked: Any) -> Any:
        """SetCrawlLimit: so many URLs of a queue are completed at most; 0: any number."""
        await self._graph.controls.set_limit(self._codec.crawl(asked), asked.key, asked.limit)
        return self._codec.nothing("SetCrawlLimit")

    async def set_active(self, asked: Any) -> Any:
        """SetActive: of this server, or of all of the database."""
        await self._graph.controls.set_active(asked.state, local=asked.local)
        return self._codec.nothing("SetActive")

    async def get_active(self, asked: Any) -> Any:
        """GetActive: whether this server, or each of the database, hands URLs out."""
        return self._codec.is_active(await self._graph.controls.is_active(local=asked.local))

    # What is forgotten

    async def delete_queue(self, asked: Any) -> Any:
        """DeleteQueue: how many URLs it had."""
        crawl = self._codec.crawl(asked)
        number = await self._graph.deletions.delete_queue(crawl, asked.key)
        return self._codec.removed("DeleteQueue", number)

    async def delete_crawl(self, asked: Any) -> Any:
        """DeleteCrawl: how many URLs it had."""
        crawl = self._codec.deleted_crawl(asked)
        number = await self._graph.deletions.delete_crawl(crawl)
        return self._codec.removed("DeleteCrawl", number)

    async def purge_urls(self, asked: Any) -> Any:
        """PurgeURLs: forget those that were created so many days ago."""
        crawl = self._codec.crawl(asked)
        number = await self._graph.deletions.purge(crawl, asked.key or None, asked.days)
        return self._codec.removed("PurgeURLs", number)

    async def set_log_level(self, asked: Any) -> Any:
        """SetLogLevel: of our package, which names of upstream's mean, too; others keep theirs."""
        level = self._codec.log_level(asked)
        name = asked.package
        if not name or name.startswith(THEIRS):
            name = OURS
        if level is not None and name.split(".")[0] == OURS:
            logging.getLogger(name).setLevel(level)
        return self._codec.nothing("SetLogLevel")


def unary(
    access: Access, name: str, call: Callable[[Any], Awaitable[Any]]
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a call as gRPC has it: of those who may, and with errors that have codes of gRPC."""

    async def answer(asked: Any, context: Any) -> Any:
        try:
            await access.check(name, context)
            await check(asked, context)
            answered = await call(asked)
            if fits(answered):
                return answered
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_LARGE)
        except Exception as error:  # noqa: BLE001 - each is told
            await fail(error, context)

    return answer


def outgoing(
    access: Access, name: str, call: Callable[[Any, Any], Awaitable[None]]
) -> Callable[[Any, Any], Awaitable[None]]:
    """Return a call that sends a stream, likewise; it ends when its caller may not go on."""

    async def answer(asked: Any, context: Any) -> None:
        async def work() -> None:
            await check(asked, context)
            await call(asked, context)

        try:
            await access.during(name, context, work)
        except Exception as error:  # noqa: BLE001 - each is told
            await fail(error, context)

    return answer


def incoming(
    access: Access, name: str, call: Callable[[AsyncIterator[Any], Any], Coroutine[Any, Any, None]]
) -> Callable[[AsyncIterator[Any], Any], Awaitable[None]]:
    """Return a call that takes a stream, likewise."""

    async def answer(given: AsyncIterator[Any], context: Any) -> None:
        try:
            await access.during(name, context, partial(call, given, context))
        except Exception as error:  # noqa: BLE001 - each is told
            await fail(error, context)

    return answer


async def check(asked: Any, context: Any) -> None:
    """Refuse a request that says what cannot be stored."""
    if any("\0" in one for one in texts(asked)):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a text has a NUL character")


async def fail(error: Exception, context: Any) -> None:
    """Tell a client what is wrong."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    for kind, code in _CODES:
        if isinstance(error, kind):
            await context.abort(code, one_line(error))
    logger.error("A call failed", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "the server failed; its log says why")
