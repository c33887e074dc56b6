"""When a request has left, and what that means for the next one; on a clock of ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scrapy_itemgraph.model.limits import Grant, Terms
from scrapy_itemgraph.throttle.limiter import Limiter
from scrapy_itemgraph.worker.downloads.send_times import Send, Sends

if TYPE_CHECKING:
    from support.clocks import Clock

GAP = 0.2


def held(clock: Clock, kind: str, name: str, terms: Terms) -> Limiter:
    """Return a limit that this process has."""
    made = Limiter((kind, name), lambda: terms, 1)
    made.take(Grant(limit_id=1, kind=kind, name=name, in_force=terms, units=1), clock.now)
    return made


class Way:
    """Requests of new hosts that keep to a limit over all of them, global or a slot of theirs."""

    def __init__(self, clock: Clock, kind: str = "global", name: str = "shared") -> None:
        self.clock = clock
        self.limit = held(clock, kind, name, Terms(gap=GAP))
        if self.limit.is_slot:
            self._answer_one()
        self.sends = Sends(lambda: None)
        self.sends.is_first = False

    def _answer_one(self) -> None:
        now = self.clock.now
        self.limit.begin(now)
        self.limit.starts.sent(now)
        self.limit.end(now, 0.0)

    async def begin(self) -> Send:
        """Let a request start as soon as the limit lets it."""
        now = self.clock.now = self.limit.ready_at(self.clock.now)
        host = held(self.clock, "slot", "a.example", Terms(concurrency=8))
        lane = (self.limit,) if self.limit.is_slot else (host, self.limit)
        for one in lane:
            one.begin(now)
        return Send(self.sends, lane, now, "a.example")

    async def begin_to_connect(self) -> Send:
        """Let a request start whose connection takes its time."""
        made = await self.begin()
        made.connecting()
        await turns()
        return made


async def turns() -> None:
    """Let the event loop turn until a request has left."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_limit_over_many_hosts_goes_on_while_connections_are_made(clock):
    """The next request starts a gap later, whether or not the first one has its connection."""

    async def run() -> None:
        way = Way(clock)
        start = clock.now
        for _ in range(3):
            await way.begin_to_connect()
        assert clock.now - start == pytest.approx(2 * GAP)

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("kind", ["global", "slot"])
def test_a_request_whose_connection_took_its_time_leaves_a_gap_after_others(clock, kind):
    """It waits with its connection, and the next one starts a gap after it."""

    async def run() -> None:
        way = Way(clock, kind)
        late = await way.begin_to_connect()
        quick = await way.begin_to_connect()
        assert quick.connected() == 0.0
        left = clock.now

        wait = late.connected()
        leaves = left + wait
        assert wait == pytest.approx(GAP)
        assert way.limit.ready_at(clock.now) - leaves == pytest.approx(GAP)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_late_connection_keeps_away_from_what_is_just_leaving(clock):
    """What was let start a moment ago has not been seen to leave, but does."""

    async def run() -> None:
        way = Way(clock)
        late = await way.begin_to_connect()
        await way.begin()

        assert late.connected() == pytest.approx(GAP)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_requests_that_wait_with_their_connections_leave_apart_after_a_busy_loop(clock):
    """A callback that blocks the loop past their moments does not let them leave together."""

    async def run() -> None:
        way = Way(clock)
        ones = [await way.begin_to_connect() for _ in range(3)]
        waits = [one.connected() for one in ones]
        assert waits == pytest.approx([0, GAP, 2 * GAP])
        clock.wait(3 * GAP)

        assert [one.waited() for one in ones[1:]] == pytest.approx([0, GAP])
        left = clock.now
        assert way.limit.ready_at(left) - left == pytest.approx(2 * GAP)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_slot_that_is_one_host_goes_on_from_when_its_requests_start(clock):
    """Without connections that are kept, all take alike, and the rate is that of the delay."""

    async def run() -> None:
        way = Way(clock, "slot", "a.example")
        one = await way.begin_to_connect()
        started = clock.now
        clock.wait(GAP / 4)

        assert one.connected() == 0.0
        assert way.limit.ready_at(started) <= started + GAP

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_connection_that_is_there_at_once_makes_no_difference(clock):
    """With a kept connection a request leaves as it starts."""

    async def run() -> None:
        way = Way(clock)
        for _ in range(2):
            one = await way.begin()
            one.connecting()
            assert one.connected() == 0.0
            await turns()
        assert way.limit.starts.unsent == 0

    asyncio.run(asyncio.wait_for(run(), 20))
