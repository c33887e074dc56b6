"""The gate: the last place that every download passes. A request waits here for its gap.

It stands behind Scrapy's own slots, before the download handlers, so that what does not come from
the scheduler is paced too: robots.txt, media, redirects and retries.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.downloads.request_slots import slot_in_use
from scrapy_itemgraph.worker.downloads.send_times import ConnectionPools, Send, Sends, current_send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy import Request
    from scrapy.core.downloader import Slot
    from scrapy.http import Response

    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.throttle.limiter_set import Limiters

_PATIENCE_AT_THE_END = 5.0  # seconds; when the spider closes, what starts later is given back
_WORTH_SAYING = 5.0  # seconds; a longer wait for a blocked slot is logged

logger = logs.logger(__name__)


class PostponedError(IgnoreRequest):
    """The request's turn will not come soon: its work is given back, and nothing has failed.

    Only what is some work's own request is put off. Whoever asked for another one, a pipeline for
    a file, the middleware for robots.txt, a callback inline, keeps the failure for good, for other
    pages as well; so that one waits as long as it takes, and none fails before all is given back.
    """


class _UnseenError(BaseException):
    """Carries a PostponedError past the downloader middlewares, which catch each Exception."""

    def __init__(self, error: PostponedError) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def unseen() -> Iterator[None]:
    """Have the downloader middlewares not see that a request is put off: it did not fail."""
    try:
        yield
    except PostponedError as error:
        raise _UnseenError(error) from None


@contextmanager
def seen_again() -> Iterator[None]:
    """Raise behind the downloader middlewares what `unseen` kept from them."""
    try:
        yield
    except _UnseenError as carried:
        raise carried.error from None


class Leg(Protocol):
    """A request that is some work's own, as far as its start goes."""

    request: Any
    lane: Lane  # the limits that it keeps to

    @property
    def is_startable(self) -> bool:
        """Whether it is still of use: its work was not given back meanwhile."""

    @property
    def is_returnable(self) -> bool:
        """Whether its work can be given back."""

    def started(self) -> None:
        """Take note that the request was let start."""

    def give_back(self, lane: Lane) -> None:
        """Give back its work, until what blocks the limits of a lane is over."""


class Events(Protocol):
    """What the gate asks about the requests that pass it, and tells of them."""

    @property
    def is_alive(self) -> bool:
        """Whether this process may let anything start: the database takes it to be alive."""

    def leg_of(self, request: Request) -> Leg | None:
        """Return the leg of a request that is some work's own; a pipeline's file has none."""

    def lane(self, slot: str, leg: Any) -> Lane:
        """Return the limits that a request in a slot keeps to; a pipeline's file has no leg."""

    def more_may_start(self) -> None:
        """Have the scheduler asked for more requests."""

    def turned_away(self) -> None:
        """Take note that a request of no leg fails: nothing that relies on it may be kept."""

    def starting(self, request: Request) -> None:
        """Take note that a request is at the gate."""

    def started(self, lane: Lane) -> None:
        """Take note that a request of a lane starts."""

    def unanswered(self, request: Request, began: float) -> None:
        """Take note that a request got no answer, which began then by `time.monotonic`."""

    def answered(
        self, request: Request, response: Response, lane: Lane, began: float
    ) -> Limiter | None:
        """Take note of a response to a request of a lane; return a slot that it blocks for long."""


@dataclass(eq=False, slots=True)
class _Waiter:
    lane: Lane
    request: Request
    leg: Leg | None  # of a request that is some work's own: no pipeline's, and no robots.txt
    future: asyncio.Future[None] = field(default_factory=asyncio.Future)


class Gate:
    """Lets downloads start as the limits allow, and counts those that run."""

    def __init__(
        self, limiters: Limiters, adopt: Callable[[Limiter], None], events: Events
    ) -> None:
        """Take the limits; `adopt` hands to Scrapy's slot what was learned elsewhere."""
        self._adopt = adopt
        self._limiters = limiters
        self._events = events
        self._waiting: list[_Waiter] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closing_since: float | None = None
        self._last_start = math.inf  # a moment of time.monotonic, after which nothing starts
        self._is_over = False
        self._rests_until = -math.inf  # a moment of time.monotonic
        self._blocked: set[Limiter] = set()  # slots
        self._slots: Mapping[str, Slot] = {}  # Scrapy's
        self._said: dict[tuple[str, str], float] = {}
        self.sends = Sends(self.pump)

    def stand_before(self, downloader: Any) -> None:
        """Take the place of a downloader's handlers.

        What waits for a blocked slot does not count as active, so that other slots go on.
        """
        pools = ConnectionPools(downloader.handlers)

        async def through(download: Callable[[Request], Any], request: Request) -> Response:
            pools.watch(request)
            return await self._through(request, download)

        self._slots = downloader.slots
        scrapy_internals.around_downloads(downloader, through)
        scrapy_internals.limit_active_by(downloader, lambda: self.held_up)

    @property
    def held_up(self) -> int:
        """How many requests the downloader has that wait for a blocked slot."""
        slots = (self._slots.get(limiter.name) for limiter in self._blocked)
        return sum(len(slot.active) for slot in slots if slot is not None)

    async def _through(self, request: Request, download: Callable[[Request], Any]) -> Response:
        leg = self._events.leg_of(request)
        lane = () if self._is_over else self._events.lane(slot_in_use(request), leg)
        self._events.starting(request)
        await self.enter(lane, request, leg)
        if leg is not None:
            leg.started()
        for limiter in lane:
            self._adopt(limiter)
        self._events.started(lane)
        began = time.monotonic()
        host = urlparse_cached(request).hostname or ""
        send = Send(self.sends, lane, began, host)
        token = current_send.set(send)
        try:
            response: Response = await download(request)
        except Exception:
            self._events.unanswered(request, began)
            raise
        finally:
            current_send.reset(token)
            self._end(lane, began)
            send.answered()
        self.sends.is_first = False
        blocked = self._events.answered(request, response, lane, began)
        if blocked is not None:
            self.put_off(blocked)
        return response

    async def pass_without_download(self, leg: Leg) -> None:
        """Wait for the turn of a task that downloads nothing."""
        await self.enter(leg.lane, leg.request, leg)
        leg.started()
        self._pass(leg.lane)

    async def enter(self, lane: Lane, request: Request, leg: Leg | None) -> None:
        """Wait for a request's turn.

        Raises:
            PostponedError: when it will not come soon, and the request's work may be given back.

        """
        if leg is not None and not leg.is_startable:
            raise PostponedError(f"{request} is of work that was given back")
        if not lane:
            return
        now = time.monotonic()
        is_open = self._events.is_alive and now < self._last_start
        if not self._waiting and is_open and self._ready_at(lane, now) <= now:
            _reserve(lane, now)
            return
        waiter = _Waiter(lane, request, leg)
        for limiter in lane:
            limiter.waiting += 1
        self._waiting.append(waiter)
        if leg is None:
            self._say_how_long(request, lane, now)
        self.pump()
        if any(not limiter.units for limiter in lane):
            self._limiters.wanted.set()
        await self._turn_of(waiter)
        if leg is not None and not leg.is_startable:  # as its turn came
            self._pass(lane)
            raise PostponedError(f"{request} is of work that was given back")

    async def _turn_of(self, waiter: _Waiter) -> None:
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.future.cancelled() and waiter.future.exception() is None:
                self._pass(waiter.lane)
            raise
        finally:
            for limiter in waiter.lane:
                limiter.waiting -= 1

    def _say_how_long(self, request: Request, lane: Lane, now: float) -> None:
        """Say once a block that a page in hand waits for what is blocked."""
        for limiter in lane:
            until = limiter.blocked_until
            if until - now > _WORTH_SAYING and until - self._said.get(limiter.key, 0.0) > 1:
                self._said[limiter.key] = until
                logger.info(
                    "%s is blocked for another %s; %s waits for it, and the page that needs it",
                    limiter.name,
                    wording.format_period(until - now),
                    request,
                    extra={"action": "waiting"},
                )

    def pump(self) -> None:
        """Let start what may start now, first come first served, and look again in time."""
        now = time.monotonic()
        is_alive = self._events.is_alive
        if self._blocked:
            self._blocked = {limiter for limiter in self._blocked if limiter.blocked_until > now}
        soonest = math.inf
        for waiter in list(self._waiting):
            at = self._ready_at(waiter.lane, now)
            if not is_alive:
                if self._closing_since is not None:
                    self._put_off(waiter)
            elif at <= now < self._last_start:
                self._waiting.remove(waiter)
                _reserve(waiter.lane, now)
                waiter.future.set_result(None)
            elif self._is_too_late(at, now):
                self._put_off(waiter)
            else:
                soonest = min(soonest, at)
        self._look_again(soonest, now)
        self._events.more_may_start()

    def rest(self, seconds: float) -> None:
        """Let no download start for a while: this process could not do it."""
        self._rests_until = time.monotonic() + seconds
        self.pump()

    def _ready_at(self, lane: Lane, now: float) -> float:
        return max(self._rests_until, *(limiter.ready_at(now) for limiter in lane))

    def _is_too_late(self, at: float, now: float) -> bool:
        """Whether the spider closes, and would wait for long for a request's turn."""
        if self._closing_since is None:
            return False
        waits = at - now if at < math.inf else now - self._closing_since
        return waits > _PATIENCE_AT_THE_END or max(at, now) >= self._last_start

    def _look_again(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closing_since is not None and self._waiting:
            at = min(at, now + 1.0, max(now, self._last_start))
        if at < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self.pump)

    def _pass(self, lane: Lane) -> None:
        """Take note that what was let start needs no download."""
        now = time.monotonic()
        for limiter in lane:
            limiter.starts.sent(now)
        self._end(lane, now)
        self.pump()

    def _end(self, lane: Lane, began: float) -> None:
        now = time.monotonic()
        for limiter in lane:
            limiter.end(now, now - began)
        if any(limiter.is_yielding for limiter in lane):
            self._limiters.wanted.set()

    # What is not to wait

    def put_off(self, limiter: Limiter) -> None:
        """Give back the work that waits here for a limit whose turn will not come soon."""
        if limiter.is_slot:
            self._blocked.add(limiter)
        for waiter in list(self._waiting):
            if limiter in waiter.lane:
                self._put_off(waiter)

    def _put_off(self, waiter: _Waiter) -> None:
        if waiter.leg is not None and waiter.leg.is_returnable:
            waiter.leg.give_back(waiter.lane)
            self._turn_away(waiter)
        elif self._closing_since is not None:
            self._events.turned_away()
            self._turn_away(waiter)

    def _turn_away(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(PostponedError(f"{waiter.request} has no turn soon"))

    def close(self, *, last_start_in: float = math.inf) -> None:
        """Give back what would wait for long, from now on: the spider closes.

        In `last_start_in` seconds nothing starts any more, and what waits here and is given back
        already goes at once.
        """
        now = time.monotonic()
        if self._closing_since is None:
            self._closing_since = now
        self._last_start = min(self._last_start, now + last_start_in)
        for waiter in list(self._waiting):
            if waiter.leg is not None and not waiter.leg.is_startable:
                self._turn_away(waiter)
        self.pump()

    @property
    def is_closed(self) -> bool:
        """Whether the spider has been closing for so long that nothing is waited for any more."""
        since = self._closing_since
        return since is not None and time.monotonic() - since > _PATIENCE_AT_THE_END

    def abandon(self) -> None:
        """Let everything through from now on: the graph is closed, and only Scrapy paces."""
        self._is_over = True
        for waiter in list(self._waiting):
            self._turn_away(waiter)


def _reserve(lane: Lane, now: float) -> None:
    for limiter in lane:
        limiter.begin(now)
