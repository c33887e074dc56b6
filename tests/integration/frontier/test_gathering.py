"""URLs of many streams that are stored together, by a database that is really there."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support import frontiers
from support.frontiers import FAIL, OK, SKIPPED, url

from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.urlfrontier import puts as gathered_puts
from scrapy_itemgraph.urlfrontier.counts import Counts
from scrapy_itemgraph.urlfrontier.puts import AT_ONCE, Gatherer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.graph.frontier_puts import FrontierPuts
    from scrapy_itemgraph.model.frontier import PutURL, Status

pytestmark = pytest.mark.server


class Noted:
    """Stores URLs, and notes which were stored together and which crawls' at the same time."""

    def __init__(self, puts: FrontierPuts) -> None:
        self._puts = puts
        self._open: list[str] = []
        self.sizes: list[int] = []
        self.at_once: set[tuple[str, ...]] = set()

    async def put(self, crawl: str, urls: Sequence[PutURL]) -> list[Status]:
        """Store URLs in one transaction."""
        self._open.append(crawl)
        self.at_once.add(tuple(sorted(self._open)))
        self.sizes.append(len(urls))
        try:
            return await self._puts.put(crawl, urls)
        finally:
            self._open.remove(crawl)


@contextmanager
def gathering(engine) -> Iterator[tuple[frontiers.Frontier, Noted, Gatherer]]:
    """Yield a frontier, what notes its transactions, and what gathers for it."""
    with frontiers.opened(engine) as server:
        noted = Noted(server.puts)
        yield server, noted, Gatherer(noted, Counts())


def test_what_comes_together_is_stored_together(engine):
    """A flood makes few transactions, each of a thousand at most, and keeps its order (UF-5)."""
    told: list[str] = []

    with gathering(engine) as (server, noted, gatherer):

        async def flood() -> None:
            for number in range(2500):
                one = url(f"http://a.example/{number}")
                gatherer.add("DEFAULT", one, lambda status, one=one: told.append(one.url))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            await gatherer.finish()

        server.run(flood())
        served = server.get(urls_per_queue=2500, queues=1)

    assert sum(noted.sizes) == 2500
    assert max(noted.sizes) <= AT_ONCE
    assert len(noted.sizes) <= 5
    assert noted.at_once == {("DEFAULT",)}
    assert told == served == [f"http://a.example/{number}" for number in range(2500)]


def test_a_url_that_comes_alone_is_stored_alone(engine):
    """A client that waits for each ack waits for nobody else; what it says last counts."""
    with gathering(engine) as (server, noted, gatherer):

        async def put(one: PutURL) -> Status:
            acked = asyncio.get_running_loop().create_future()
            gatherer.add("DEFAULT", one, acked.set_result)
            return await acked

        one = url("http://a.example/")
        found = [server.run(put(one)) for one in (one, one, url(one.url, 0))]
        left = server.get()

    assert (found, left) == ([OK, SKIPPED, OK], [])
    assert noted.sizes == [1, 1, 1]


def test_crawls_do_not_wait_for_each_other(engine):
    """URLs of two crawls are stored at the same time."""
    told: list[Status] = []

    with gathering(engine) as (server, noted, gatherer):

        async def flood() -> None:
            for number in range(200):
                gatherer.add(f"crawl {number % 2}", url(f"http://{number}.example/"), told.append)
            await gatherer.finish()

        server.run(flood())

    assert told == [OK] * 200
    assert ("crawl 0", "crawl 1") in noted.at_once


def test_what_cannot_be_stored_is_told_and_the_rest_is_stored(engine, caplog):
    """A transaction that fails fails its URLs alone; what comes later is stored."""
    told: list[Status] = []

    with gathering(engine) as (server, _, gatherer):

        async def add(address: str) -> None:
            gatherer.add("DEFAULT", url(address), told.append)
            await gatherer.finish()

        server.change("ALTER TABLE items RENAME TO elsewhere")
        server.run(add("http://a.example/1"))
        server.change("ALTER TABLE elsewhere RENAME TO items")
        server.run(add("http://a.example/2"))
        left = server.get()

    assert told == [FAIL, OK]
    assert left == ["http://a.example/2"]
    assert "refused the URL http://a.example/1" in caplog.text


class Away:
    """Stores nothing, for the database is away; what comes in meanwhile is added, by `come`."""

    def __init__(self) -> None:
        self.calls = 0

    async def put(self, crawl: str, urls: Sequence[PutURL]) -> list[Status]:
        """Fail after more than twice the time that `come` takes."""
        self.calls += 1
        began = time.monotonic()
        self.come(self.calls)
        await asyncio.sleep(0.5 + 2 * (time.monotonic() - began))
        raise DatabaseUnavailableError("it is away")

    def come(self, call: int) -> None:
        """Add nothing."""


def test_what_waited_through_an_outage_fails_at_once() -> None:
    """UF-5: neither a thousand more, nor what came soon after, waits for a patience of its own."""

    async def flood() -> tuple[int, int, set[Status]]:
        away, told = Away(), []
        gatherer = Gatherer(away, Counts())

        def add(count: int) -> None:
            for number in range(count):
                gatherer.add("c", url(f"http://a.example/{number}"), told.append)

        away.come = lambda call: add(2000 if call == 1 else 0)
        add(3000)
        await gatherer.finish()
        return away.calls, len(told), set(told)

    assert asyncio.run(flood()) == (1, 5000, {FAIL})


def test_what_waits_is_bounded_over_all_streams(engine, monkeypatch) -> None:
    """UF-5: nothing is read while very much waits, also of streams that are gone."""
    monkeypatch.setattr(gathered_puts, "IN_ALL", 100)
    with gathering(engine) as (server, _, gatherer):

        async def flood() -> list[bool]:
            def add(number: int) -> None:
                gatherer.add("c", url(f"http://a.example/{number}"), lambda _: None)

            room = []
            for number in range(100):
                add(number)
                waiting = asyncio.create_task(gatherer.room())
                await asyncio.sleep(0)
                room.append(waiting.done())
                waiting.cancel()
            await gatherer.finish()
            await gatherer.room()
            return room

        assert server.run(flood()) == [True] * 99 + [False]
