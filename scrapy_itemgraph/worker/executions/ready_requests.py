"""The queue of new claims' requests, and which of them the engine may get.

It gets only work that is in flight: work of which the database knows that the engine may begin it.
Should the process die, that work is suspect, and no other. So that no request waits for a
transaction of its own, claims and commits put the next ones in flight ahead. No I/O here.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.work import InFlight
from scrapy_itemgraph.worker.executions.lane_queues import LaneQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from scrapy_itemgraph.model.work import Pair
    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg


@dataclass(slots=True, eq=False, repr=False)
class ReadyRequests:
    """The requests of claims that have not started, and which of these are in flight.

    `places` says how many more requests of each slot in hand may start. The engine may have
    `concurrency` requests, and up to `most_ahead` ready for it beside; `wake_engine` has it ask
    again. `ran_out` is set when it has got the last one, `starved` when it asked in vain for one
    that is not in flight. Of the queues, what is `_waiting` is not in flight, what is `_ready` is;
    what is `_alone` runs with nothing else.
    """

    working: Collection[Execution]
    running: Collection[Any]
    places: Callable[[], Mapping[str, int]]
    concurrency: int
    most_ahead: int
    wake_engine: Callable[[], None]
    ran_out: asyncio.Event
    _waiting: LaneQueues[Lane, tuple[Any, Leg]] = field(default_factory=LaneQueues)
    _ready: LaneQueues[Lane, tuple[Any, Leg]] = field(default_factory=LaneQueues)
    _alone: LaneQueues[Lane, tuple[Any, Leg]] = field(default_factory=LaneQueues)
    _picked: list[tuple[Any, Leg]] = field(default_factory=list)  # a transaction is putting them
    _is_claiming: bool = False  # a claim may be putting some of its own
    _has_missed: bool = False  # meanwhile nothing else could be
    _since: int = 0  # handed out since the last ones were picked to be put in flight
    _written: int = 0  # of these, before the transaction that is writing began
    handed_out: int = 0
    is_holding: bool = False
    starved: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready) + len(self._alone) + len(self._picked)

    def __iter__(self) -> Iterator[Any]:
        """Go over the requests that have not started, in no order."""
        return (request for request, _ in (*self._ordinary(), *self._alone))

    @property
    def lanes(self) -> set[Lane]:
        """The lanes in which something waits."""
        return {*self._waiting.lanes, *self._ready.lanes, *self._alone.lanes}

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is writing what is in flight; it is written as a whole."""
        return bool(self._picked) or self._is_claiming

    @property
    def untouched(self) -> set[Execution]:
        """The executions whose requests have not started, and will not beside what runs alone."""
        return {leg.execution for _, leg in self._ordinary()}

    def _ordinary(self) -> Iterator[tuple[Any, Leg]]:
        yield from self._waiting
        yield from self._ready
        yield from self._picked

    @property
    def room(self) -> int:
        """How many more requests the engine takes now."""
        return max(0, self.concurrency - len(self.running))

    # What waits

    def push(self, request: Any, leg: Leg) -> None:
        """Add a claim's request."""
        claim = leg.execution.claim
        if claim is not None and claim.is_alone:
            self._alone.push(leg.lane, (request, leg))
        elif leg.execution.is_in_flight and not self.is_holding:
            self._ready.push(leg.lane, (request, leg))
        else:
            leg.execution.is_in_flight = False
            self._waiting.push(leg.lane, (request, leg))

    def pop(self, admits: Callable[[Lane], bool]) -> tuple[Any, Leg] | None:
        """Take the next request that its limits let go, if it is in flight."""
        popped = self._alone.pop(admits)
        if popped is None and not self.is_holding:
            popped = self._ready.pop(admits)
            if popped is None and any(admits(lane) for lane in self._waiting.lanes):
                self.starved.set()
        if popped is None:
            return None
        self._since += 1
        self.handed_out += 1
        if not self:
            self.ran_out.set()
        return popped

    def drop(self, has: Callable[[Lane], bool]) -> list[tuple[Any, Leg]]:
        """Take out the requests of the lanes that `has` tells."""
        buffers = (self._waiting, self._ready, self._alone)
        return [entry for buffer in buffers for entry in buffer.drop(has)]

    def hold(self) -> None:
        """Hand out nothing but what runs alone; nothing else that waits is in flight any more."""
        self.is_holding = True
        for request, leg in self._ready.drop(lambda _: True):
            leg.execution.is_in_flight = False
            self._waiting.push(leg.lane, (request, leg))

    def go_on(self) -> None:
        """Hand out again what need not run alone."""
        self.is_holding = False
        self._tell_engine()

    # What is put in flight

    def begin_writing(self, *, is_starved: bool = False) -> Collection[Pair] | None:
        """Return the pairs that the engine has and gets next, for a transaction to write.

        None where there is nothing to write, or another transaction does; else `end_writing` must
        be called afterwards.
        """
        if self.is_writing or self.is_holding or not self._waiting:
            self._has_missed |= self._is_claiming
            return None
        self._picked = self._pick(max(self.room, int(is_starved)))
        if not self._picked:
            return None
        self._written = self._since
        return self._in_flight() | _pairs(leg.execution for _, leg in self._picked)

    def end_writing(self, *, is_written: bool) -> None:
        """Take note of whether the transaction was committed."""
        picked, self._picked = self._picked, []
        for request, leg in picked:
            leg.execution.is_in_flight = is_written and not self.is_holding
            if leg.is_open:
                self.push(request, leg)
        if is_written:
            self._since -= self._written  # what was handed out meanwhile, the next one replaces
        self.wake_engine()  # also where all of it was given back: a claim waits for that

    def begin_claim(self) -> InFlight | None:
        """Return what a claim may put in flight of what it takes, so that it starts at once.

        None where the engine has no use for more, or another transaction writes; else `end_claim`
        must be called when the executions of the claims have begun.
        """
        room = self.room - len(self._ready) - len(self._waiting)
        if self.is_writing or self.is_holding or room <= 0:
            return None
        self._is_claiming = True
        return InFlight(pairs=self._in_flight(), room=room, places=self.places())

    def end_claim(self) -> None:
        """Take note that a claim writes no more."""
        self._is_claiming = False
        if self._has_missed:
            self._has_missed = False
            self._tell_engine()

    def _tell_engine(self) -> None:
        if self:
            self.wake_engine()

    def _in_flight(self) -> set[Pair]:
        return _pairs(execution for execution in self.working if execution.is_in_flight)

    def _pick(self, free: int) -> list[tuple[Any, Leg]]:
        """Take out what may start now, and ahead as much as started since the last time."""
        now = time.monotonic()
        picked = _take(self._waiting, free, now)
        ahead = min(max(1, self._since), self.most_ahead)
        more = ahead - max(0, len(self._ready) + len(picked) - free)
        return picked + (_take_soonest(self._waiting, more) if more > 0 else [])


def _pairs(executions: Iterable[Execution]) -> set[Pair]:
    claims = (one.claim for one in executions)
    return {(claim.item_id, claim.task_id) for claim in claims if claim is not None}


def _take(
    buffer: LaneQueues[Lane, tuple[Any, Leg]], most: int, now: float
) -> list[tuple[Any, Leg]]:
    """Take out in turn, up to `most`, what the limits of lanes have places for."""
    places: dict[Limiter, int] = {}

    def admits(lane: Lane) -> bool:
        for limiter in lane:
            if limiter not in places:
                places[limiter] = limiter.places(now)
        return all(places[limiter] > 0 for limiter in lane)

    taken: list[tuple[Any, Leg]] = []
    while len(taken) < most and (entry := buffer.pop(admits)) is not None:
        for limiter in entry[1].lane:
            places[limiter] -= 1
        taken.append(entry)
    return taken


def _take_soonest(buffer: LaneQueues[Lane, tuple[Any, Leg]], most: int) -> list[tuple[Any, Leg]]:
    """Take out what is next, first in the lanes that let something go the soonest."""
    lanes = sorted(buffer.lanes, key=lambda lane: max((o.admits_at() for o in lane), default=0.0))
    which = [*(lane.__eq__ for lane in lanes), *[lambda _: True] * most]
    taken = (buffer.pop(admits) for admits in which)
    return list(islice((entry for entry in taken if entry is not None), most))
