"""Start times: when the next request may start, so that requests leave a gap apart.

Nothing waits here: that is in `worker.downloads.delay_gate`. All times are those of
`time.monotonic`, in seconds. No I/O here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds for which a connection is taken to stay open after its last answer.
_KEPT_ALIVE = 15.0
# Start a request up to this many seconds before its gap ends: so long it takes to the socket.
_LONGEST_LEAD = 0.002
_LEAD_GROWS = 0.0001
# A request that takes more seconds than this to leave had to make a connection.
_CONNECTS = 0.02


@dataclass(slots=True, eq=False)
class StartTimes:
    """Keeps requests a gap apart, counted from when they leave; `gap_of` returns the gap now."""

    gap_of: Callable[[], float]
    due: float = -math.inf  # no request starts before; inf while one is on its way
    unsent: int = 0  # requests that were let start and have not left
    last: float | None = None  # when the latest one started or left
    _lead: float = 0.0
    _begun: float = -math.inf
    _started: float = -math.inf
    _left: float = -math.inf  # what waited for a connection; may be ahead of the clock
    _gone: float = -math.inf  # what waited with its connection, and has left
    _answered: float = -math.inf

    @property
    def has_started(self) -> bool:
        """Whether anything has left since all was forgotten."""
        return max(self._started, self._left) > -math.inf

    def is_cold(self, now: float) -> bool:
        """Whether a request has a connection to make, as far as anybody knows."""
        return now - self._answered > _KEPT_ALIVE

    def wait(self, until: float) -> None:
        """Let nothing start before a moment, nor before the gap after the latest one is over."""
        if not self.unsent:
            self.due = max(max(self._started, self._left) + self.gap_of(), until)

    def forget(self) -> None:
        """Forget what has left: from now on others may start requests."""
        self._started = self._left = -math.inf

    # The life of a request

    def begin(self, now: float, *, is_alone: bool) -> None:
        """Let a request start; where it `is_alone` no other one starts before it has left."""
        self.unsent += 1
        if is_alone:
            self.due = math.inf
        self._begun = self.last = now

    def sent(self, now: float, *, has_left: bool = True) -> None:
        """Take note that a request that was let start has left this process by now.

        With `has_left` False its connection is being made, and `leave` says when it goes.
        """
        self.unsent -= 1
        self.last = self._started = now
        if has_left:
            self._left = max(self._left, now)
        if not self.unsent:
            self._lead = self._next_lead(now - self._begun)
            self.due = max(now, self._left) + self.gap_of() - self._lead

    def _next_lead(self, took: float) -> float:
        """Return by how much sooner the next request is let start than it may leave.

        Never by more than the latest ones took to leave; a connection that had to be made tells
        nothing of that.
        """
        if took > _CONNECTS:
            return 0.0
        return min(took, self._lead + _LEAD_GROWS, _LONGEST_LEAD, self.gap_of() / 10)

    def leave(self, at: float, *, is_gone: bool) -> None:
        """Take note that a request leaves then, or now, whose connection took until now."""
        if is_gone:
            self._gone = at
        self.last = self._left = max(self._left, at)
        if not self.unsent:
            self.due = max(self.due, at + self.gap_of())

    def leaves_at(self, now: float) -> float:
        """Return the earliest moment at which a request may leave whose connection took a while."""
        return max(self._left, now if self.unsent else -math.inf) + self.gap_of()

    @property
    def goes_at(self) -> float:
        """The earliest moment at which a request may leave that waits with its connection."""
        return self._gone + self.gap_of()

    def answered(self, now: float) -> None:
        """Take note that a request was answered: its connection is open."""
        self._answered = now
