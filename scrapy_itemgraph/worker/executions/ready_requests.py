"""The queue of new claims' requests, and which of them the engine may get.

It gets only work of which the database knows it: should the process die, that work is suspect, and
no other. So that no request waits for a transaction of its own, those that a crawl has anyway tell
of the next ones ahead. No I/O here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.worker.executions.lane_queues import LaneQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.throttle.limiter import Lane, Limiter
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg

Pair = tuple[int, int]


@dataclass(slots=True, eq=False, repr=False)
class ReadyRequests:
    """The requests of claims that have not started, and what the database knows of them.

    `places_of` says how many requests a slot lets start now. The engine may have `concurrency`
    requests, and up to `most_ahead` ready for it beside; `wake_engine` has it ask again. `ran_out`
    is set when it has got the last one. Of what is `_waiting` the database does not know yet, of
    what is `_ready` it does; what is `_alone` runs with nothing else.
    """

    working: Collection[Execution]
    running: Collection[Any]
    places_of: Callable[[str], int]
    concurrency: int
    most_ahead: int
    wake_engine: Callable[[], None]
    ran_out: asyncio.Event
    _waiting: LaneQueues[Lane, tuple[Any, Leg]] = field(
        default_factory=LaneQueues
    )  # the database does not know
    _ready: LaneQueues[Lane, tuple[Any, Leg]] = field(default_factory=LaneQueues)
    _alone: LaneQueues[Lane, tuple[Any, Leg]] = field(
        default_factory=LaneQueues
    )  # to run with nothing else
    _picked: list[tuple[Any, Leg]] = field(
        default_factory=list
    )  # the database is told of them just now
    _chosen: set[Pair] | None = None  # of the claim under way
    _since: int = 0  # handed out since the database was told
    handed_out: int = 0
    is_holding: bool = False
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

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
    def is_telling(self) -> bool:
        """Whether the database is told something just now."""
        return bool(self._picked) or self._chosen is not None

    @property
    def untouched(self) -> set[Execution]:
        """The executions whose requests have not started, and will not beside what runs alone."""
        return {leg.execution for _, leg in self._ordinary()}

    def _ordinary(self) -> Iterator[tuple[Any, Leg]]:
        yield from self._waiting
        yield from self._ready
        yield from self._picked

    # What waits

    def push(self, request: Any, leg: Leg) -> None:
        """Add a claim's request."""
        claim = leg.execution.claim
        if claim is not None and claim.is_alone:
            self._alone.push(leg.lane, (request, leg))
        elif leg.execution.is_told:
            self._ready.push(leg.lane, (request, leg))
        else:
            self._waiting.push(leg.lane, (request, leg))

    def pop(self, admits: Callable[[Lane], bool]) -> tuple[Any, Leg] | None:
        """Take the next request that its limits let go, if the database knows of it."""
        popped = self._alone.pop(admits)
        if popped is None and not self.is_holding:
            popped = self._ready.pop(admits)
            if popped is None and any(admits(lane) for lane in self._waiting.lanes):
                self.wanted.set()
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
        """Hand out nothing but what runs alone, and forget that the database knows of others."""
        self.is_holding = True
        for request, leg in self._ready.drop(lambda _: True):
            leg.execution.is_told = False
            self._waiting.push(leg.lane, (request, leg))

    def go_on(self) -> None:
        """Hand out again what need not run alone."""
        self.is_holding = False
        self._tell_engine()

    # What the database is told

    def next(self, *, is_starved: bool = False) -> Collection[Pair] | None:
        """Return the pairs that the engine has and gets next, for the database to know.

        None where there is nothing to tell, or it is under way; else `settle` must be called
        afterwards.
        """
        if self.is_telling or self.is_holding or not self._waiting:
            return None
        self._picked = self._pick(max(self._free(), int(is_starved)))
        if not self._picked:
            return None
        return self._known(leg.execution for _, leg in self._picked)

    def settle(self, *, is_told: bool) -> None:
        """Take note of whether the database was told."""
        picked, self._picked = self._picked, []
        for request, leg in picked:
            leg.execution.is_told = is_told and not self.is_holding
            if leg.is_open:
                self.push(request, leg)
        if is_told:
            self._since = 0
        self._tell_engine()

    def of_claims(self, claims: Sequence[Claim]) -> Collection[Pair] | None:
        """Return what is known with new claims: of these, those that may start at once.

        None while the database is told something else. `claimed` must be called afterwards.
        """
        self._chosen = None
        if any(claim.is_alone for claim in claims):
            self._chosen = {_pair(claim) for claim in claims}
            return self._chosen
        if self.is_telling or self.is_holding:
            return None
        room = self._free() - len(self._ready) - len(self._waiting)
        taken: Counter[str] = Counter()
        chosen: set[Pair] = set()
        for claim in claims:
            if len(chosen) < room and taken[claim.slot] < self.places_of(claim.slot):
                taken[claim.slot] += 1
                chosen.add(_pair(claim))
        if not chosen:
            return None
        self._chosen = chosen
        return self._known() | chosen

    def is_chosen(self, claim: Claim) -> bool:
        """Whether the database knows that a new claim may start."""
        return self._chosen is not None and _pair(claim) in self._chosen

    def claimed(self) -> None:
        """Take note that the executions of new claims have begun."""
        self._chosen = None

    def _tell_engine(self) -> None:
        if self:
            self.wake_engine()

    def _known(self, more: Iterable[Execution] = ()) -> set[Pair]:
        known = [execution for execution in self.working if execution.is_told]
        return {_pair(work.claim) for work in (*known, *more) if work.claim is not None}

    def _free(self) -> int:
        """Return how many more requests the engine takes now."""
        return max(0, self.concurrency - len(self.running))

    def _pick(self, free: int) -> list[tuple[Any, Leg]]:
        """Take out what may start now, and ahead as much as started since the last time."""
        now = time.monotonic()
        picked = _take(self._waiting, free, now)
        ahead = min(max(1, self._since), self.most_ahead)
        more = ahead - max(0, len(self._ready) + len(picked) - free)
        return picked + (_take_soonest(self._waiting, more) if more > 0 else [])


def _pair(claim: Claim) -> Pair:
    return claim.item_id, claim.task_id


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
