"""Whether the server's clock was moved, or the server was away, as a process can tell. No I/O.

Each transaction reads the server's clock at its beginning; between two of them the server's clock
and this process's must have gone on alike. A process that heard nothing of the server for a while
cannot tell whether others could renew their leases meanwhile.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

CLOCK = "itemgraph_clock"  # the server's, as all connections of an engine have seen it
LEASES_RENEWED = 300.0  # seconds in which each process that lives renews its lease

# What is not taken for a jump, in seconds: clocks are adjusted slowly all the time.
_TOLERANCE = 0.02
_DRIFT = 0.001  # of the time between

_SILENCE = 15.0  # seconds; who hears of the server all the time hears of it more often


@dataclass(slots=True)
class ServerClock:
    """Compares the server's clock with this process's monotonic one; all times are in seconds.

    `hears_always`: it belongs to a process that makes transactions all the time, as workers and
    runners do, so that a silence is an outage.
    """

    hears_always: bool = False
    jumped_at: float = -math.inf  # monotonic: when a jump ahead was noticed last
    ahead: float = 0.0  # how far it jumped then
    silent_until: float = -math.inf  # monotonic: when a silence of the server ended last
    silent_for: float = 0.0  # the longest of those that count still
    _told: float | None = None  # by the server
    _asked: float = 0.0  # monotonic

    def note(self, told: float, asked: float, answered: float) -> None:
        """Take note of what the server told between two moments of this process."""
        if self._told is not None:
            most = answered - self._asked
            ahead = told - self._told - most
            if ahead > _TOLERANCE + _DRIFT * most:
                self.jumped_at, self.ahead = answered, ahead
            if self.hears_always and most > _SILENCE:
                self.silent_for = max(most, self._silent_for(answered))
                self.silent_until = answered
        self._told, self._asked = told, asked

    def since_jump(self, now: float) -> float:
        """Return how long ago the server's clock was seen to jump ahead; infinite for never."""
        return now - self.jumped_at

    def untrusted(self, now: float) -> float:
        """Return by how much leases may seem to be over that are not: for a jump, or a silence."""
        ahead = 0.0 if self.since_jump(now) > LEASES_RENEWED else self.ahead
        return ahead + self._silent_for(now)

    def _silent_for(self, now: float) -> float:
        return 0.0 if now - self.silent_until > LEASES_RENEWED else self.silent_for


def since_jump(connection: sa.Connection) -> float:
    """Return how many seconds ago the server's clock was seen to jump ahead; infinite for never."""
    clock: ServerClock = connection.info[CLOCK]
    return clock.since_jump(time.monotonic())


def untrusted(connection: sa.Connection) -> float:
    """Return by how many seconds leases may seem to be over that are not."""
    clock: ServerClock = connection.info[CLOCK]
    return clock.untrusted(time.monotonic())
