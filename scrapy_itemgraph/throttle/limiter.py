"""Limiter: one limit in the hand of this process, and when it lets the next request start.

All times are those of `time.monotonic`, in seconds. No I/O here.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.limits import LOOKAHEAD, MANY, Terms, Use, starts_within, worth_holding
from scrapy_itemgraph.throttle.start_times import StartTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.model.limits import Grant

SLOT = "slot"
# A limit that others wait for is kept for so many seconds, or so many starts if that is longer.
_WINDOW = 1.0
_WINDOW_STARTS = 20
_LONGEST_WINDOW = 30.0  # seconds
# A limit that has no use here is kept for so many seconds, in case it gets one.
_LINGER = 1.0
# A request is handed to the engine so many seconds before it may start.
_AHEAD = 0.05
_FADING = 0.9  # of the longest latency, with each answer


@dataclass(slots=True, eq=False, repr=False)
class Limiter:
    """One limit: whether this process has it, what runs under it, and when the next may start."""

    key: tuple[str, str]  # its kind and name
    declared: Callable[[], Terms]  # what settings and tasks say at the moment
    limit_id: int | None = None
    in_force: Terms = field(init=False)  # as the database granted it
    starts: StartTimes = field(init=False)
    units: int = 0  # how much of it this process has: 1 of one with a gap, else how many may run
    set_gap: float = 0.0  # seconds, by a person or robots.txt, beside the declared gap
    set_replaces: bool = False  # and in its place
    blocked_until: float = -math.inf
    again_at: float = -math.inf  # asking the database for it again may help then
    throttle: float | None = None  # the delay that latencies make, in seconds
    latency: float | None = None  # the longest of late, in seconds
    running: int = 0
    waiting: int = 0  # at the gate
    ahead: int = 0  # handed to the engine, and not at the gate's end
    occupied: int = 0  # handed to the engine, and not fetched
    others_ask: bool = False
    is_yielding: bool = False
    adopts: bool = False  # what AutoThrottle learned elsewhere is to be taken over
    adopted_by: object = None  # Scrapy's slot that has it
    _is_given_up: bool = False  # as far as the database was told
    _told: float | None = None  # the last start, as it was told
    _told_running: int | None = None  # how many ran as was told, until the answer
    _blocked_at: float = -math.inf
    _since: float = -math.inf  # it was taken
    _used: float = -math.inf

    def __post_init__(self) -> None:
        self.in_force = self.declared()
        self.starts = StartTimes(lambda: self.gap)

    def __repr__(self) -> str:
        kind, name = self.key
        return f"<{kind} {name!r}: {self.units} units, {self.running} running>"

    @property
    def name(self) -> str:
        """The limit's name; of a slot Scrapy's."""
        return self.key[1]

    @property
    def is_slot(self) -> bool:
        """Whether it is a website's, and no limit of tasks."""
        return self.key[0] == SLOT

    @property
    def gap(self) -> float:
        """The least seconds between two starts, as things are now."""
        return self.set_gap if self.set_replaces else max(self.set_gap, self.declared().gap)

    def take(self, grant: Grant, asked_at: float) -> None:
        """Take note of what the database gave or left; `asked_at` is when it was asked."""
        now = time.monotonic()
        had, self.units = self.units, grant.units
        self.in_force = grant.in_force
        self.set_gap, self.set_replaces = grant.set_gap, grant.set_replaces
        self.others_ask = grant.others_ask
        self.again_at = now + grant.again_in
        blocked_until = now + grant.blocked_in if grant.blocked_in else -math.inf
        is_later = self._blocked_at > asked_at
        self.blocked_until = max(self.blocked_until, blocked_until) if is_later else blocked_until
        self._is_given_up = False
        self._told_running = None
        if self.starts.last == self._told:
            self.starts.last = None
        if not grant.units:
            self.lose()
            return
        if not had:
            self._since = self._used = asked_at
            if grant.throttle is not None:
                self.throttle, self.adopts = grant.throttle, True
        is_known = had and self.starts.has_started
        self.starts.wait(-math.inf if is_known else now + grant.due_in)

    def lose(self) -> None:
        """Take note that this process has nothing of the limit any more."""
        self.units = 0
        self._told_running = None
        self.is_yielding = False
        self.starts.forget()

    @property
    def _is_usable(self) -> bool:
        return bool(self.units) and not (self.is_yielding or self._is_given_up)

    @property
    def _cap(self) -> int:
        """How many may run at once of what is had in units; a cap that was lowered holds at once.

        Units of what runs are not given back before it has ended. While the database is asked it
        may give the others away, so none of them is used before it has answered.
        """
        most = self.in_force.concurrency
        if most is None:
            return self.units
        told = most if self._told_running is None else max(1, self._told_running)
        return min(self.units, most, told)

    def room(self, now: float, unbegun: int, claim_takes: float = 0.0) -> int:
        """Return how many more requests to claim; `unbegun` are in hand and have not started.

        A claim takes `claim_takes` seconds; a limit with units also has room for the requests that
        end meanwhile, as its latency says.
        """
        if self.is_yielding or self.blocked_until - now > LOOKAHEAD:
            return 0
        if not self.in_force.is_exclusive:
            meanwhile = self._cap * claim_takes / self.latency if self.latency else 0.0
            return max(0, worth_holding(self._cap) + min(int(meanwhile), MANY) - unbegun)
        cap = MANY if self.in_force.concurrency is None else self.in_force.concurrency + 1
        due = (
            now + self.gap if self.starts.unsent else max(self.starts.due, self.blocked_until, now)
        )
        within = starts_within(self.gap, due - now)
        return max(0, min(within, cap - self.running) - unbegun)

    def room_in(self, now: float, unbegun: int) -> float:
        """Return in how many seconds there is room for another request; inf if never by itself."""
        cap = self.in_force.concurrency
        is_full = cap is not None and self.running + unbegun > cap
        if not self.units or self.is_yielding or self.starts.unsent or is_full:
            return math.inf
        if self.room(now, unbegun) > 0:  # and yet nothing was found
            return math.inf
        due = self.starts.due + unbegun * self.gap if self.in_force.is_exclusive else -math.inf
        soonest = max(due, self.blocked_until) - LOOKAHEAD - now
        return soonest if soonest > 0 else math.inf

    def ready_at(self, now: float) -> float:
        """Return when the next request may start; inf while another one must end or leave first."""
        if not self._is_usable:
            return math.inf
        if self.in_force.is_exclusive:
            if self.starts.unsent:
                return math.inf
            cap = self.in_force.concurrency
        else:
            cap = self._cap
        if cap is not None and self.running >= cap:
            return math.inf
        return max(self.starts.due, self.blocked_until, now)

    def admits(self, now: float) -> bool:
        """Whether the engine may have one more request, because it could start about now."""
        if not self._is_usable:
            return False
        if not self.in_force.is_exclusive:
            # One more than may run, which starts as soon as one of them has ended.
            return self.occupied <= self._cap and self.blocked_until <= now
        cap = self.in_force.concurrency
        if self.ahead or (cap is not None and self.occupied >= cap):
            return False
        soonest = now + self.gap if self.starts.unsent else max(self.starts.due, self.blocked_until)
        return soonest - now <= _AHEAD

    def places(self, now: float) -> int:
        """Return how many more requests the engine may have, as far as `admits` knows it."""
        if not self.admits(now):
            return 0
        return 1 if self.in_force.is_exclusive else self._cap + 1 - self.occupied

    def admits_at(self) -> float:
        """Return when to ask `admits` again; inf where time alone makes no difference."""
        if not self._is_usable or self.ahead or self.starts.unsent:
            return math.inf
        return max(self.starts.due, self.blocked_until) - _AHEAD

    def is_cold(self, now: float) -> bool:
        """Whether a request has a connection to make, as far as anybody knows."""
        return self.is_slot and self.starts.is_cold(now)

    # The life of a request

    def begin(self, now: float) -> None:
        """Let a request start."""
        self.running += 1
        self.starts.begin(now, is_alone=self.in_force.is_exclusive)
        self._used = now

    def end(self, now: float, took: float) -> None:
        """Take note that a download ended that took so many seconds."""
        self.running -= 1
        self.latency = max(took, (self.latency or 0.0) * _FADING)
        self._used = now
        self.starts.answered(now)

    def block(self, until: float) -> None:
        """Let nothing start before `until`."""
        self.blocked_until = max(self.blocked_until, until)
        self._blocked_at = time.monotonic()

    # What the database is told

    def use(self, now: float, interest: int) -> Use | None:
        """Return what to tell and ask; None when there is nothing to say.

        `interest` is how many requests in hand keep to this limit.
        """
        assert self.limit_id is not None
        interest += self.waiting + self.running
        if not self.units and not interest:
            return None
        wants = min(self.in_force.concurrency or 1, max(interest, 1))
        if not self.others_ask:
            wants = max(wants, self.units)  # nobody else has a use for it
        is_spare = not interest and self._is_spare(now)
        if self.units and self._gives_up(now, interest):
            wants = 0
        self._is_given_up = not wants or is_spare
        last = self._told = self.starts.last
        self._told_running = self.running
        return Use(
            limit_id=self.limit_id,
            declared=self.declared(),
            wants=wants,
            running=self.running,
            spare=is_spare,
            last_ago=None if last is None else max(0.0, now - last),
            throttle=self.throttle,
            latency=self.latency,
        )

    def renews_at(self, interest: int) -> float:
        """Return when the database is to be told or asked next; -inf if now, inf if not by time."""
        if not self.units:
            return self.again_at if interest + self.waiting else math.inf
        if self.others_ask and not self.is_yielding:
            return self._since + self._window if interest else self.starts.due - _AHEAD
        return -math.inf if self.is_yielding and not self.running else math.inf

    @property
    def _window(self) -> float:
        return min(max(_WINDOW, _WINDOW_STARTS * self.gap), _LONGEST_WINDOW)

    def _gives_up(self, now: float, interest: int) -> bool:
        """Whether the limit goes now; one that must go and cannot yet takes no more requests."""
        if not interest:
            idle = now - max(self._used, self._since)
            return idle >= _LINGER or (self.others_ask and self._is_spare(now))
        # It could be used, and has not been for a while.
        is_stuck = (
            now - max(self._used, self._since, self.starts.due) >= _LINGER and not self.running
        )
        if self.others_ask and (now - self._since >= self._window or is_stuck):
            self.is_yielding = True
        return self.is_yielding and not self.running and not self.starts.unsent

    def _is_spare(self, now: float) -> bool:
        """Whether somebody else could do more with the limit than wait out its gap."""
        return not self.in_force.is_exclusive or (
            not self.starts.unsent and self.starts.due - now <= _AHEAD
        )


Lane = tuple[Limiter, ...]
