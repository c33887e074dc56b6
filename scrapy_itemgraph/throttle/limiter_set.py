"""Limiter set: the limits that this process has in hand.

All times are those of `time.monotonic`, in seconds. No I/O here.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.limits import MANY, Terms
from scrapy_itemgraph.throttle.limiter import SLOT, Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scrapy_itemgraph.model.limits import Grant, Use

# Seconds between two renewals of what this process has of limits.
_SHORTEST = 0.02
_LONGEST = 1.0


def _throttled(terms: Terms, delay: float | None) -> Terms:
    return Terms(gap=max(terms.gap, delay or 0.0), concurrency=terms.concurrency)


class Limiters:
    """The limiters of all limits that this process has met, by kind and name."""

    def __init__(
        self, slot_terms: Callable[[str], Terms], throttle_of: Callable[[Limiter], float | None]
    ) -> None:
        """Take how a slot is kept at any moment, and the delay that AutoThrottle gives it."""
        self.slot_terms = slot_terms
        self._throttle_of = throttle_of
        self._by_key: dict[tuple[str, str], Limiter] = {}
        self._by_id: dict[int, Limiter] = {}
        self.wanted = asyncio.Event()  # more of a limit than is in hand, or somebody else wants it

    def __iter__(self) -> Iterator[Limiter]:
        return iter(self._by_key.values())

    def slot(self, name: str) -> Limiter | None:
        """Return the limiter of a slot; None where there is nothing to keep to."""
        if not name:
            return None
        found = self._by_key.get((SLOT, name))
        if found is None:
            found = Limiter((SLOT, name), lambda: self.slot_terms(name))
            self._by_key[found.key] = found
        return found

    def declare(
        self, limit_id: int, key: tuple[str, str], terms: Terms, *, first_delay: float | None
    ) -> Limiter:
        """Make the limiter of a limit that the code declares, if it is not known.

        With a first delay its answers set its delay.
        """
        found = self._by_id.get(limit_id)
        if found is None:
            found = Limiter(key, lambda: terms, limit_id)
            if first_delay is not None:
                found.throttle = first_delay
                found.terms_of = lambda: _throttled(terms, found.throttle)
            self._by_key[key] = self._by_id[limit_id] = found
        return found

    def places(self, slot: str) -> int:
        """Return how many requests of a slot may start, though it was got only just now."""
        limiter = self.slot(slot)
        if limiter is None:
            return MANY
        if limiter.units:
            return limiter.places(time.monotonic())
        terms = limiter.terms_of()
        return 1 if terms.is_exclusive else terms.concurrency or MANY

    def identify(self, numbers: Mapping[str, int]) -> None:
        """Take note of the numbers of slots."""
        for name, number in numbers.items():
            found = self._by_key.get((SLOT, name))
            if found is not None:
                found.limit_id = number
                self._by_id[number] = found

    @property
    def unidentified(self) -> list[tuple[str, str]]:
        """Limits that no number is known of."""
        return [one.key for one in self if one.limit_id is None]

    def take(self, grants: Iterable[Grant], asked_at: float, *, asked: Iterable[Use] = ()) -> None:
        """Take note of what the database gave; what was asked for and is not there is lost."""
        given = {grant.limit_id: grant for grant in grants}
        for use in asked:
            if use.limit_id not in given and use.limit_id in self._by_id:
                self._by_id[use.limit_id].lose()
        for grant in given.values():
            found = self._by_id.get(grant.limit_id)
            if found is None:
                found = self.slot(grant.name) if grant.kind == SLOT else None
                if found is None:
                    continue
                self.identify({grant.name: grant.limit_id})
            found.take(grant, asked_at)

    def rooms(self, unbegun: Mapping[Limiter, int]) -> dict[int, int]:
        """Return how many more requests the limits in hand have use for, by number.

        `unbegun` counts the requests in hand that have not started.
        """
        now = time.monotonic()
        return {
            number: one.room(now, unbegun.get(one, 0))
            for number, one in self._by_id.items()
            if one.units
        }

    @property
    def shared(self) -> set[int]:
        """The limits in hand of which others may have units as well, by number."""
        return {
            number
            for number, one in self._by_id.items()
            if one.units and not one.terms.is_exclusive
        }

    def soonest_room(self, unbegun: Mapping[Limiter, int]) -> float:
        """Return in how many seconds a limit in hand has use for another request, by time alone."""
        now = time.monotonic()
        return min((one.room_in(now, unbegun.get(one, 0)) for one in self), default=math.inf)

    def uses(self, interest: Mapping[Limiter, int]) -> list[Use]:
        """Return what to tell the database and ask of it, and forget what has no use any more.

        `interest` counts the requests in hand by what they keep to.
        """
        now = time.monotonic()
        found = []
        for one in list(self):
            if one.limit_id is None:
                continue
            self._note_throttle(one)
            use = one.use(now, interest.get(one, 0))
            if use is not None:
                found.append(use)
            elif one.again_at <= now:
                self._forget(one)
        return found

    def final_uses(self) -> list[Use]:
        """Return how the limits in hand were used, for they are given up."""
        for one in self:
            self._note_throttle(one)
        now = time.monotonic()
        return [use for one in self if one.limit_id and (use := one.use(now, 0)) is not None]

    def _note_throttle(self, one: Limiter) -> None:
        if one.is_slot and one.units:
            one.throttle = self._throttle_of(one) or one.throttle

    def lose(self) -> None:
        """Take note that this process has nothing in hand any more."""
        for one in self:
            one.lose()
            one.again_at = -math.inf

    def lacks(self, interest: Mapping[Limiter, int]) -> bool:
        """Whether a limit could be used more than what is in hand of it allows."""
        return any(
            one.units < min(interest.get(one, 0), one.terms.concurrency or 1)
            and not one.terms.is_exclusive
            for one in interest
        )

    def next_renewal(self, interest: Mapping[Limiter, int]) -> float:
        """Return in how many seconds the database is to be told or asked next, at most one."""
        now = time.monotonic()
        moments = [one.renews_at(interest.get(one, 0)) for one in self]
        return min(max(_SHORTEST, min(moments, default=math.inf) - now), _LONGEST)

    def _forget(self, one: Limiter) -> None:
        """Forget a slot that has no use any more."""
        if one.is_slot:
            self._by_key.pop(one.key, None)
            if one.limit_id is not None:
                self._by_id.pop(one.limit_id, None)
