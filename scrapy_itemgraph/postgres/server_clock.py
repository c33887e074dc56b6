"""Whether the server's clock was moved, as a process can tell by a clock of its own. No I/O.

Each transaction reads the server's clock at its beginning; between two of them the server's clock
and this process's must have gone on alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# What is not taken for a jump, in seconds: clocks are adjusted slowly all the time.
_TOLERANCE = 0.02
_DRIFT = 0.001  # of the time between


@dataclass(slots=True)
class ServerClock:
    """Compares the server's clock with this process's monotonic one; all times are in seconds."""

    jumped_at: float = -math.inf  # monotonic: when a jump ahead was noticed last
    ahead: float = 0.0  # how far it jumped then
    _told: float | None = None  # by the server
    _asked: float = 0.0  # monotonic

    def note(self, told: float, asked: float, answered: float) -> None:
        """Take note of what the server told between two moments of this process."""
        if self._told is not None:
            most = answered - self._asked
            ahead = told - self._told - most
            if ahead > _TOLERANCE + _DRIFT * most:
                self.jumped_at, self.ahead = answered, ahead
        self._told, self._asked = told, asked

    def since_jump(self, now: float) -> float:
        """Return how long ago the server's clock was seen to jump ahead; infinite for never."""
        return now - self.jumped_at
