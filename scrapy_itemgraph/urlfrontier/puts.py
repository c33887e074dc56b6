"""URLs that come in: what all streams have gathered is stored together, and then acked.

A stream has up to so much in flight, and stops reading beyond it, so that HTTP/2 pushes back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.model.frontier import Status
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    from scrapy_itemgraph.model.frontier import PutURL
    from scrapy_itemgraph.urlfrontier.counts import Counts

logger = logs.logger(__name__)

AT_ONCE = 1000  # URLs of a transaction
TRANSACTIONS = 2  # that are open at a time, each of another crawl
LONGEST_WAIT = 0.02  # seconds that a transaction waits at most for more URLs,
SHORT_WAIT = 0.002  # as long as more come in such a time
ITEMS = 2048  # of a stream, that are in flight
IN_BATCHES = 16384  # URLs of a stream of batches, likewise
IN_ALL = 100_000  # URLs that wait to be stored, also of streams that are gone


class Putting(Protocol):
    """Stores URLs of a crawl: the graph's `FrontierPuts`."""

    async def put(self, crawl: str, urls: Sequence[PutURL]) -> list[Status]:
        """Store URLs in one transaction; return a status each."""


class Item(NamedTuple):
    """A URL of a stream, and what its ack is called; `put` None: it is unusable."""

    name: str
    crawl: str
    put: PutURL | None


class Batch(NamedTuple):
    """URLs of a stream that are acked together."""

    name: str
    items: list[Item]


class Ack(NamedTuple):
    """What is said of an item, or of each URL of a batch; of `size` URLs."""

    name: str
    said: Any
    size: int = 1


class _Waiting(NamedTuple):
    """A URL that is to be stored `since` a moment, and who is told its status."""

    put: PutURL
    told: Callable[[Status], None]
    since: float


class Gatherer:
    """Stores what has gathered, crawl by crawl: of each in one transaction after the other.

    So what a stream says of a URL stays in its order, and of URLs discovered in the same second the
    one that came first goes first.
    """

    def __init__(self, puts: Putting, counts: Counts) -> None:
        self._puts = puts
        self._counts = counts
        self._waiting: dict[str, deque[_Waiting]] = {}  # by crawls, each of which a task empties
        self._tasks: set[asyncio.Task[None]] = set()
        self._transactions = asyncio.Semaphore(TRANSACTIONS)
        self._count = 0  # URLs that wait
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._failed = 0.0  # what has waited since then fails with what failed last

    def add(self, crawl: str, put: PutURL, told: Callable[[Status], None]) -> None:
        """Have a URL stored, and its status counted and told."""
        waiting = self._waiting.get(crawl)
        if waiting is None:
            waiting = self._waiting[crawl] = deque()
            task = asyncio.create_task(self._empty(crawl, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append(_Waiting(put, told, time.monotonic()))
        self._count += 1
        if self._count >= IN_ALL:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._has_room.wait()

    async def finish(self) -> None:
        """Wait until all that was added is stored, or failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _empty(self, crawl: str, waiting: deque[_Waiting]) -> None:
        while waiting:
            await _gathered(waiting)
            async with self._transactions:
                if not (taken := self._taken(waiting)):
                    continue
                statuses = await self._statuses(crawl, [one.put for one in taken])
            for one, status in zip(taken, statuses, strict=True):
                self._tell(one, status)
        del self._waiting[crawl]

    def _taken(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        """Take what is stored next; of an outage what has waited long enough fails first."""
        failed = 0
        while waiting and waiting[0].since <= self._failed:
            self._tell(waiting.popleft(), Status.FAIL)
            failed += 1
        if failed:
            logger.warning("%d more URLs are to be sent again", failed)
        return [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]

    def _tell(self, one: _Waiting, status: Status) -> None:
        self._count -= 1
        if self._count < IN_ALL:
            self._has_room.set()
        self._counts.store(one.put, status)
        one.told(status)

    async def _statuses(self, crawl: str, urls: Sequence[PutURL]) -> Sequence[Status]:
        began = time.monotonic()
        try:
            return await self._puts.put(crawl, urls)
        except DatabaseUnavailableError as error:
            # Half as long is long enough: nothing waits for more than one and a half patiences.
            self._failed = (began + time.monotonic()) / 2
            logger.warning("%s %d URLs are to be sent again", error, len(urls))
        except Exception:  # the streams go on; who sent these is told so
            logger.exception("%d URLs of the crawl %s are to be sent again", len(urls), crawl)
        return [Status.FAIL] * len(urls)


async def _gathered(waiting: Sized) -> None:
    """Wait while more comes in: a transaction of a few costs almost as much as one of hundreds.

    One that comes alone, as from a client that waits for each ack, is not kept waiting.
    """
    loop = asyncio.get_running_loop()
    latest = loop.time() + LONGEST_WAIT
    seen = 1
    while seen < len(waiting) < AT_ONCE and loop.time() < latest:
        seen = len(waiting)
        await asyncio.sleep(SHORT_WAIT)


class Stream:
    """What is in flight of one stream, and the acks that are to be written."""

    def __init__(self, gatherer: Gatherer, limit: int, counts: Counts) -> None:
        """Stop reading while `limit` URLs are in flight."""
        self._gatherer = gatherer
        self._counts = counts
        self._limit = limit
        self._in_flight = 0
        self._acks: list[Ack] = []
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_read = False

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._has_room.wait()
        await self._gatherer.room()

    def take(self, one: Item) -> None:
        """Have an item stored and acked."""
        self._begin(1)
        self._counts.take(one.put)
        if one.put is None:
            self._ack(Ack(one.name, Status.SKIPPED))
        else:
            self._gatherer.add(one.crawl, one.put, lambda status: self._ack(Ack(one.name, status)))

    def take_batch(self, batch: Batch) -> None:
        """Have a batch stored and acked; what it repeats is skipped."""
        size = max(1, len(batch.items))
        self._begin(size)
        for one in batch.items:
            self._counts.take(one.put)
        statuses = [Status.SKIPPED] * len(batch.items)
        usable = [(at, one.crawl, one.put) for at, one in enumerate(batch.items) if one.put]
        missing = len(usable)

        def told(at: int, status: Status) -> None:
            nonlocal missing
            statuses[at] = status
            missing -= 1
            if not missing:
                self._ack(Ack(batch.name, statuses, size))

        if not usable:
            self._ack(Ack(batch.name, statuses, size))
        for at, crawl, put in usable:
            self._gatherer.add(crawl, put, partial(told, at))

    def end(self) -> None:
        """Take note that nothing more comes in."""
        self._is_read = True
        self._has_changed.set()

    async def acks(self) -> Iterable[Ack]:
        """Return the next acks; none: all is acked and nothing more comes in."""
        while not self._acks and (self._in_flight or not self._is_read):
            self._has_changed.clear()
            await self._has_changed.wait()
        found, self._acks = self._acks, []
        return found

    def written(self, ack: Ack) -> None:
        """Take note that an ack was written: more may be read."""
        self._in_flight -= ack.size
        if self._in_flight < self._limit:
            self._has_room.set()

    def _begin(self, size: int) -> None:
        self._in_flight += size
        if self._in_flight >= self._limit:
            self._has_room.clear()

    def _ack(self, ack: Ack) -> None:
        self._acks.append(ack)
        self._has_changed.set()
