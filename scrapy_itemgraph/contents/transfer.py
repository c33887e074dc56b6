"""Contents on their way to a store: measured, announced, written, marked; and collected from it.

A worker awaits it and a command waits: the steps are the same. `store.blobs` has the protocol.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.contents import stores as content_stores
from scrapy_itemgraph.exceptions import BlobStoreError, OperationError
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.contents.stores import ContentStore
    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.store.blobs import Collected, Place

logger = logs.logger(__name__)

_THREADS = 8  # contents that are written at once
NO_PERIOD = timedelta()
A_DAY = timedelta(days=1)


class Stores:
    """The store that the settings name, and others that contents say they are in."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: dict[str, ContentStore | None] = {}

    @property
    def own(self) -> ContentStore | None:
        """The settings' store; None for the database."""
        if self._url not in self._opened:
            self._opened[self._url] = content_stores.opened(self._url)
        return self._opened[self._url]

    @property
    def location(self) -> str:
        """What rows call it."""
        return DATABASE if self.own is None else self.own.location

    @property
    def collected(self) -> set[str]:
        """The stores that this process collects from."""
        return {DATABASE, self.location}

    def at(self, location: str) -> ContentStore:
        """Return the store that a row names, which is not the database."""
        if self.own is not None and location == self.own.location:
            return self.own
        if location not in self._opened:
            self._opened[location] = content_stores.opened(location)
        store = self._opened[location]
        assert store is not None
        return store

    def measure(self, contents: Sequence[Content]) -> None:
        """Find out what is to be known of contents."""
        for one in contents:
            content_stores.measure(one, is_kept=self.own is None)

    def write(self, content: Content) -> None:
        """Write a content to the settings' store."""
        assert self.own is not None
        self.own.write(content)

    def discard(self, content: Content) -> None:
        """Delete a content that was given up for dead while it was written."""
        assert self.own is not None
        assert content.announced is not None
        number, content.announced = content.announced, None
        with suppress(BlobStoreError):
            self.own.delete(content.digest, number)

    def delete(self, place: Place) -> bool:
        """Delete a content that is doomed; return whether it is gone."""
        try:
            self.at(place.store).delete(place.sha256, place.id)
        except BlobStoreError as error:
            logger.warning("%s; what nobody names stays there", error)
            return False
        return True


class WorkerContents:
    """Stores and collects contents for a worker."""

    def __init__(self, transactions: Transactions, url: str) -> None:
        self._call = transactions.call
        self._stores = Stores(url)
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Open the store, so far as that takes nothing of it.

        Raises:
            ConfigurationError: what it takes is not installed.

        """
        await asyncio.to_thread(lambda: self._stores.own)

    async def measure(self, contents: Sequence[Content]) -> None:
        """Find out digest and size of contents.

        Raises:
            OperationError: a file cannot be read, or a content is too large.

        """
        await self._in_thread(self._stores.measure, contents)

    async def store(self, contents: Sequence[Content]) -> None:
        """Have contents stored that have no number yet.

        Raises:
            OperationError: a file cannot be read, or a content is too large.
            BlobStoreError: the store cannot be written.

        """
        stores = self._stores
        while wanted := [one for one in contents if one.number is None]:
            await self._in_thread(stores.measure, wanted)
            announce = partial(stored_blobs.announce, contents=wanted, store=stores.location)
            new = await self._call(announce, hot=True)
            if not new:
                return
            results = await asyncio.gather(
                *(self._in_thread(self._stores.write, one) for one in new), return_exceptions=True
            )
            written = [one for one, error in zip(new, results, strict=True) if error is None]
            lost = await self._call(stored_blobs.mark_stored, written, wanted, hot=True)
            for one in lost:
                await self._in_thread(self._stores.discard, one)
            for error in results:
                if error is not None:
                    raise error

    async def collect(self) -> bool:
        """Collect a step of what nobody has named for a day; return whether there is more."""
        collect = partial(stored_blobs.collect, stores=self._stores.collected, ahead=NO_PERIOD)
        found: Collected = await self._call(collect, hot=True)
        gone = [one for one in found.doomed if await self._in_thread(self._stores.delete, one)]
        if gone:
            await self._call(stored_blobs.forget, gone, hot=True)
        deleted = found.deleted + len(gone)
        if deleted:
            logger.debug("Collected %d contents", deleted, extra={"action": "collected"})
        return found.seen >= stored_blobs.STEP and len(gone) == len(found.doomed)

    def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "itemgraph-blobs")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *given)


class CommandContents:
    """Stores, reads and collects contents for a command; `call` runs a transaction."""

    def __init__(self, call: Callable[[Callable[[Connection], Any]], Any], url: str) -> None:
        self._call = call
        self._stores = Stores(url)

    def measure(self, content: Content) -> None:
        """Find out digest and size of a content, as `WorkerContents.measure` does."""
        self._stores.measure([content])

    def store(self, contents: Sequence[Content]) -> None:
        """Have contents stored, as `WorkerContents.store` does."""
        stores = self._stores
        while wanted := [one for one in contents if one.number is None]:
            stores.measure(wanted)
            new = self._call(partial(stored_blobs.announce, contents=wanted, store=stores.location))
            if not new:
                return
            written: list[Content] = []
            try:
                for one in new:
                    stores.write(one)
                    written.append(one)
            finally:
                mark = partial(stored_blobs.mark_stored, written=written, contents=wanted)
                for one in self._call(mark):
                    stores.discard(one)

    def read(
        self, place: Place, name: str, connection: Connection | None = None, *, start: int = 0
    ) -> Iterator[bytes]:
        """Yield a content, and raise an error at the end if it is not what was attached.

        What the database keeps is read on the connection, if there is one. From a later byte than
        the first on it cannot be checked.
        """
        if place.store == DATABASE:
            read = partial(stored_blobs.read, number=place.id)
            data = self._call(read) if connection is None else read(connection)
            given = iter(()) if data is None else iter([data[start:]])
        else:
            given = self._stores.at(place.store).read(place.sha256, place.id, start)
        yield from given if start else content_stores.whole(given, place.sha256, name)

    def collect(self, *, now: bool) -> int:
        """Delete what nobody has named for a day, or at all; return how many contents."""
        deleted = 0
        ahead = A_DAY if now else NO_PERIOD
        collect = partial(stored_blobs.collect, stores=self._stores.collected, ahead=ahead)
        while True:
            found: Collected = self._call(collect)
            gone = [one for one in found.doomed if self._stores.delete(one)]
            if gone:
                self._call(partial(stored_blobs.forget, doomed=gone))
            deleted += found.deleted + len(gone)
            if len(gone) < len(found.doomed):
                raise OperationError(
                    f"{deleted:,} contents were collected, and others cannot be deleted"
                )
            if not found.seen:
                return deleted
