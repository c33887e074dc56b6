"""Allocation: what a worker gets of a limit, beside its other holders. No I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.model.limits import LOOKAHEAD, Grant, Terms
from scrapy_itemgraph.model.rates import usable_gap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_itemgraph.model.limits import Use

_ASK_AGAIN = 1.0
_TURN_OF_OTHERS = 0.1
# How long the requests of a dead worker may run whose downloads nobody has measured.
_UNKNOWN_LATENCY = 2.0
_LONGEST_LATENCY = 30.0
_SLACK = 1.0
# A worker that has not asked again for so long waits no more.
FORGOTTEN = 3.5

# The columns of `StoredTerms`, of a limit `l`.
STORED_TERMS = """
    l.id, l.kind, l.name, l.gap, l.concurrency, l.delay, l.set_gap, l.set_concurrency, l.crawl_delay
"""


class Holding(NamedTuple):
    """What a worker has of a limit, or asks for: without units it only asks; in seconds.

    `free_in` is when it is free that was a dead worker's, as far as that was noted; `is_gone` tells
    of a dead worker, `is_foreign` of one of another crawl.
    """

    worker_id: int
    units: int
    is_exclusive: bool
    age: float
    asked_ago: float | None
    free_in: float | None
    is_gone: bool
    is_foreign: bool

    @property
    def is_asking(self) -> bool:
        """Whether it waits for the limit, and has asked again lately."""
        # In the future: the server's clock was set back since.
        return self.asked_ago is not None and abs(self.asked_ago) < FORGOTTEN


@dataclass(frozen=True, slots=True)
class StoredTerms:
    """How a limit is stored: as it was declared, and what was set and learned of it; in seconds.

    Numbers that cannot be kept to, wherever they come from, are as if there were none.
    """

    id: int
    kind: str
    name: str
    gap: float | None
    concurrency: int | None
    delay: float | None
    set_gap: float | None
    set_concurrency: int | None
    crawl_delay: float | None

    def __post_init__(self) -> None:
        for name in ("gap", "delay", "set_gap", "crawl_delay"):
            object.__setattr__(self, name, usable_gap(getattr(self, name)) or None)
        for name in ("concurrency", "set_concurrency"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                object.__setattr__(self, name, None)

    @property
    def in_force(self) -> Terms:
        """How it is kept, as its last holder declared it."""
        declared = Terms(gap=self.gap or 0.0, concurrency=self.concurrency, delay=self.delay)
        return in_force(declared, self, learns=True)


@dataclass(frozen=True, slots=True)
class StoredLimit(StoredTerms):
    """A locked limit, with its holdings by worker; in seconds."""

    throttle: float | None
    latency: float | None
    blocked_in: float | None
    last_ago: float | None
    holdings: dict[int, Holding] = field(default_factory=dict)

    def outlived(self, units: int) -> float:
        """Return how long what a dead worker had holds others off."""
        return outlived(units, (self.gap, self.set_gap, self.crawl_delay), self.latency)

    def is_to_outlive(self, one: Holding) -> bool:
        """Whether it is to be noted anew when it is free what a dead worker had.

        It was not noted, or is later than it could be: the server's clock was set back since.
        """
        if one.free_in is None:
            return one.is_gone
        return one.free_in > self.outlived(one.units) + _SLACK

    # Where the server's clock jumped ahead, what it tells of the time before is too long; since it
    # was noticed that many seconds have `passed`, by this process's own clock.

    def passed_at_most(self, passed: float) -> StoredLimit:
        """Return it with its last start no longer ago than is sure."""
        if self.last_ago is None or self.last_ago <= passed:
            return self
        return replace(self, last_ago=passed)

    def not_before(self, one: Holding, passed: float) -> Holding:
        """Return a holding of the dead that is not free before that is sure."""
        if one.free_in is None:
            return one
        return one._replace(free_in=max(one.free_in, self.outlived(one.units) - passed))


def outlived(units: int, gaps: Iterable[float | None], latency: float | None) -> float:
    """Return how long the requests of a dead worker may still run, or hold others off."""
    if not units:
        return 0.0
    gap = max(map(usable_gap, gaps))
    latency = _UNKNOWN_LATENCY if latency is None and not gap else latency
    return max(gap, min(usable_gap(latency), _LONGEST_LATENCY))


def learned(delay: float | None) -> float | None:
    """Return the delay that AutoThrottle left, as far as it can be kept to."""
    return None if delay is None else usable_gap(delay)


def in_force(declared: Terms, limit: StoredTerms, *, learns: bool) -> Terms:
    """Return how a limit is kept: as declared, but for what a person set and was learned.

    A slot is never kept looser than declared: Scrapy's own slots have the last word.
    """
    gap, concurrency = declared.gap, declared.concurrency
    if limit.kind != "slot":
        gap = gap if limit.set_gap is None else limit.set_gap
        concurrency = concurrency if limit.set_concurrency is None else limit.set_concurrency
        return Terms(gap=gap, concurrency=concurrency)
    set_gap = _set_gap(limit, learns=learns)
    delay = None if declared.delay is None else max(declared.delay, set_gap)
    caps = [cap for cap in (concurrency, limit.set_concurrency) if cap is not None]
    return Terms(gap=max(gap, set_gap), concurrency=min(caps, default=None), delay=delay)


def _set_gap(limit: StoredTerms, *, learns: bool) -> float:
    """Return the gap that a person set, or else robots.txt asks for."""
    if limit.set_gap is not None:
        return limit.set_gap
    return limit.crawl_delay or 0.0 if learns else 0.0


@dataclass(slots=True)
class Others:
    """The other workers that have a limit, or ask for it."""

    units: int = 0
    has_exclusive: bool = False
    has_foreign: bool = False  # some of another crawl have it
    holders: list[int] = field(default_factory=list)  # alive
    asking: list[Holding] = field(default_factory=list)
    free_in: float | None = None  # when what the dead had is free

    @property
    def interested(self) -> int:
        """How many workers have the limit, or ask for it, with the one that this is about."""
        return 1 + len({*self.holders, *(one.worker_id for one in self.asking)})


@dataclass(slots=True)
class Decision:
    """What a worker may use, and what stands in its row: also what still runs and was lost."""

    grant: Grant
    units: int
    asks: bool

    @property
    def is_held(self) -> bool:
        """Whether a row stands for it."""
        return self.units > 0 or self.asks

    @property
    def is_exclusive(self) -> bool:
        """Whether the worker has the limit for itself."""
        return self.grant.in_force.is_exclusive and self.grant.units > 0


def others_of(limit: StoredLimit, worker_id: int) -> Others:
    """Return the other workers of a limit, without those that are no more."""
    others = Others()
    for holding in limit.holdings.values():
        if holding.worker_id == worker_id:
            continue
        if holding.free_in is not None or holding.is_gone:
            most = limit.outlived(holding.units)
            left = most if holding.free_in is None else min(most, holding.free_in)
            if left <= 0 or not holding.units:
                continue
            others.free_in = max(left, others.free_in or 0.0)
        else:
            if holding.units:
                others.holders.append(holding.worker_id)
                others.has_foreign = others.has_foreign or holding.is_foreign
            if holding.is_asking:
                others.asking.append(holding)
        others.units += holding.units
        others.has_exclusive = others.has_exclusive or (holding.is_exclusive and holding.units > 0)
    return others


def undivided(use: Use) -> int:
    """Return how many units a worker gets of what nobody else has or asks for."""
    terms = use.declared
    if terms.is_exclusive or terms.concurrency is None:
        return 1
    return min(use.wants, terms.concurrency)


def decide(
    use: Use, limit: StoredLimit, others: Others, worker_id: int, *, learns: bool
) -> Decision:
    """Decide what a worker gets of a locked limit."""
    terms = in_force(use.declared, limit, learns=learns)
    mine = limit.holdings.get(worker_id)
    blocked = max(0.0, limit.blocked_in or 0.0)
    starts = [max(0.0, ago) for ago in (limit.last_ago, use.last_ago) if ago is not None]
    due = max(blocked, terms.gap - min(starts, default=math.inf), 0.0)
    units = _granted(use, terms, others, mine, due)
    asks = use.wants > units and blocked <= LOOKAHEAD and _could_have(use, terms, others, units)
    kept = 0 if mine is None else _kept(use, terms, mine)
    if not terms.is_exclusive:
        units = max(units, kept)
    grant = Grant(
        limit_id=limit.id,
        kind=limit.kind,
        name=limit.name,
        in_force=terms,
        units=units,
        set_gap=_set_gap(limit, learns=learns),
        set_replaces=limit.kind != "slot" and limit.set_gap is not None,
        due_in=due,
        blocked_in=blocked,
        again_in=0.0 if units or not use.wants else _again_in(others, due, asks=asks),
        throttle=learned(limit.throttle) if learns else None,
        others_ask=bool(others.asking),
    )
    return Decision(grant=grant, units=max(units, kept), asks=asks)


def _granted(use: Use, terms: Terms, others: Others, mine: Holding | None, due: float) -> int:
    had = 0 if mine is None or mine.free_in is not None else mine.units
    if not use.wants or (use.spare and others.asking):
        return 0
    if had and mine is not None and mine.is_exclusive:
        return had if terms.is_exclusive else 0
    if due > LOOKAHEAD and not had:
        return 0
    waited = mine.age if mine is not None and not mine.units and mine.is_asking else 0.0
    return _free_units(use, terms, others, had, waited)


def _again_in(others: Others, due: float, *, asks: bool) -> float:
    """Return when asking again may help."""
    if due > LOOKAHEAD:
        is_told = asks and others.holders
        return min(due - LOOKAHEAD, _ASK_AGAIN) if is_told else due - LOOKAHEAD
    if not others.units:
        return _TURN_OF_OTHERS
    return _ASK_AGAIN if others.free_in is None else min(_ASK_AGAIN, others.free_in)


def _kept(use: Use, terms: Terms, mine: Holding) -> int:
    """Return how many units cannot be given back, for their requests still run."""
    if use.looking:
        return mine.units
    had_it_whole = mine.is_exclusive and not terms.is_exclusive
    return use.running if had_it_whole else min(mine.units, use.running)


def _free_units(use: Use, terms: Terms, others: Others, had: int, waited: float) -> int:
    """Return how many units a worker may have; the longest waiting goes first."""
    earlier = [one for one in others.asking if not one.units and one.age > waited]
    if terms.is_exclusive or terms.concurrency is None:
        return int(not (others.units or earlier))
    if others.has_exclusive:
        return 0
    share = max(1, terms.concurrency // others.interested)
    free = terms.concurrency - others.units - (0 if had else len(earlier))
    is_alone = others.interested == 1
    wants = use.wants if is_alone or not others.asking else min(use.wants, share)
    return max(0, min(wants, free))


def _could_have(use: Use, terms: Terms, others: Others, units: int) -> bool:
    """Whether more would be a worker's due if others gave way."""
    if not others.units and not others.asking:
        return False
    shares = (terms.concurrency or 0) if not terms.is_exclusive else 1
    if use.looking and not others.has_foreign and shares < others.interested:
        return False  # the work is being done; that this worker does it gains nothing
    if terms.is_exclusive or terms.concurrency is None or others.has_exclusive:
        return units == 0
    return units < min(use.wants, max(1, terms.concurrency // others.interested))


def is_news(grant: Grant, limit: StoredLimit) -> bool:
    """Whether a limit is kept otherwise than it is stored; a stored delay of 0 is read as None."""
    terms = grant.in_force
    stored = limit.gap, limit.concurrency, limit.delay
    return (terms.gap or None, terms.concurrency, terms.delay or None) != stored


def differs(decision: Decision, before: Holding | None) -> bool:
    """Whether a worker's row is to be written."""
    if not decision.is_held:
        return False
    return (
        before is None
        or decision.asks
        or before.asked_ago is not None
        or before.free_in is not None
        or (before.units, before.is_exclusive) != (decision.units, decision.is_exclusive)
    )
