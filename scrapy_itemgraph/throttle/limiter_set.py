"""Limiter set: the limits that this process has in hand.

All times are those of `time.monotonic`, in seconds. No I/O here.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.throttle.limiter import SLOT, Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scrapy_itemgraph.model.limits import Grant, Use

# Seconds between two renewals of what this process has of limits.
_SHORTEST = 0.02
_LONGEST = 1.0
_LONGEST_WITHOUT = 10.0  # where it has nothing of any


@dataclass(slots=True, eq=False, repr=False)
class Limiters:
    """The limiters of all limits that this process has met, by kind and name."""

    slot_terms: Callable[[str], Terms]  # how a slot is kept at any moment
    throttle_of: Callable[[Limiter], float | None]  # the delay that AutoThrottle gives a slot
    # Set when more of a limit is wanted than is in hand, or somebody else wants it.
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    # Held by whoever asks the database for limits or gives them up: one at a time.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _by_key: dict[tuple[str, str], Limiter] = field(default_factory=dict)
    _by_id: dict[int, Limiter] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Limiter]:
        return iter(self._by_key.values())

    def slot(self, name: str) -> Limiter | None:
        """Return the limiter of a slot; None where there is nothing to keep to."""
        if not name:
            return None
        key = SLOT, name
        if key not in self._by_key:
            self._by_key[key] = Limiter(key, lambda: self.slot_terms(name))
        return self._by_key[key]

    def declare(
        self, limit_id: int, key: tuple[str, str], terms: Terms, *, first_delay: float | None
    ) -> Limiter:
        """Make the limiter of a limit that the code declares, if it is not known.

        With a first delay its answers set its delay.
        """
        limiter = self._by_id.get(limit_id)
        if limiter is None:
            limiter = Limiter(key, lambda: terms, limit_id)
            if first_delay is not None:
                limiter.throttle = first_delay
                limiter.declared = lambda: Terms(
                    gap=max(terms.gap, limiter.throttle or 0.0), concurrency=terms.concurrency
                )
            self._by_key[key] = self._by_id[limit_id] = limiter
        return limiter

    def places(self) -> dict[str, int]:
        """Return how many more requests of each slot in hand the engine may have."""
        now = time.monotonic()
        return {one.name: one.places(now) for one in self if one.units and one.is_slot}

    def identify(self, numbers: Mapping[str, int]) -> None:
        """Take note of the numbers of slots."""
        for name, number in numbers.items():
            limiter = self._by_key.get((SLOT, name))
            if limiter is not None:
                limiter.limit_id = number
                self._by_id[number] = limiter

    @property
    def unidentified(self) -> list[tuple[str, str]]:
        """Limits that no number is known of."""
        return [limiter.key for limiter in self if limiter.limit_id is None]

    def take(self, grants: Iterable[Grant], asked_at: float, *, asked: Iterable[Use] = ()) -> None:
        """Take note of what the database gave; what was asked for and is not there is lost."""
        by_id = {grant.limit_id: grant for grant in grants}
        for use in asked:
            if use.limit_id not in by_id and use.limit_id in self._by_id:
                self._by_id[use.limit_id].lose()
        for grant in by_id.values():
            limiter = self._by_id.get(grant.limit_id)
            if limiter is None:
                limiter = self.slot(grant.name) if grant.kind == SLOT else None
                if limiter is None:
                    continue
                self.identify({grant.name: grant.limit_id})
            limiter.take(grant, asked_at)

    def rooms(self, unbegun: Mapping[Limiter, int], claim_takes: float = 0.0) -> dict[int, int]:
        """Return how many more requests the limits in hand have use for, by number.

        `unbegun` counts the requests in hand that have not started. A claim takes `claim_takes`
        seconds.
        """
        now = time.monotonic()
        return {
            number: limiter.room(now, unbegun.get(limiter, 0), claim_takes)
            for number, limiter in self._by_id.items()
            if limiter.units
        }

    @property
    def shared(self) -> set[int]:
        """The limits in hand of which others may have units as well, by number."""
        return {
            number
            for number, limiter in self._by_id.items()
            if limiter.units and not limiter.in_force.is_exclusive
        }

    def soonest_room(self, unbegun: Mapping[Limiter, int]) -> float:
        """Return in how many seconds a limit in hand has use for another request, by time alone."""
        now = time.monotonic()
        waits = (limiter.room_in(now, unbegun.get(limiter, 0)) for limiter in self)
        return min(waits, default=math.inf)

    def uses(self, interest: Mapping[Limiter, int]) -> list[Use]:
        """Return what to tell the database and ask of it, and forget slots that have no use."""
        now = time.monotonic()
        uses = []
        for limiter in list(self):
            if limiter.limit_id is None:
                continue
            if limiter.is_slot and limiter.units:
                limiter.throttle = self.throttle_of(limiter) or limiter.throttle
            use = limiter.use(now, interest.get(limiter, 0))
            if use is not None:
                uses.append(use)
            elif limiter.again_at <= now and limiter.is_slot:
                self._by_key.pop(limiter.key, None)
                self._by_id.pop(limiter.limit_id, None)
        return uses

    def renumber(self, numbers: Mapping[tuple[str, str], int]) -> None:
        """Take note of the numbers that limits have now; of those with another one all is lost."""
        for key, limiter in self._by_key.items():
            number = numbers.get(key)
            if limiter.limit_id in {None, number} or (number is None and not limiter.is_slot):
                continue
            self._by_id.pop(limiter.limit_id, None)
            limiter.lose()
            limiter.again_at = -math.inf
            limiter.limit_id = number
        self._by_id |= {one.limit_id: one for one in self if one.limit_id is not None}

    def lose(self) -> None:
        """Take note that this process has nothing in hand any more."""
        for limiter in self:
            limiter.lose()
            limiter.again_at = -math.inf

    def lacks(self, interest: Mapping[Limiter, int]) -> bool:
        """Whether a limit could be used more than what is in hand of it allows."""
        return any(
            limiter.units < min(interest.get(limiter, 0), limiter.in_force.concurrency or 1)
            and not limiter.in_force.is_exclusive
            for limiter in interest
        )

    def next_renewal(self, interest: Mapping[Limiter, int]) -> float:
        """Return in how many seconds the database is to be told or asked next, at most one."""
        now = time.monotonic()
        moments = [limiter.renews_at(interest.get(limiter, 0)) for limiter in self]
        longest = _LONGEST if moments else _LONGEST_WITHOUT
        return min(max(_SHORTEST, min(moments, default=math.inf) - now), longest)
