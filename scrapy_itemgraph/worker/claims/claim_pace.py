"""When to claim, and how much: what is worked off within the time that is looked ahead.

Times are those of `time.monotonic`, in seconds. No I/O here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_itemgraph.model.limits import LOOKAHEAD

_REST = 0.1  # seconds between two claims, while more than half of what was in hand is left
_LESS = 0.8  # of a batch that was enough for the time in which the next one was claimed
_MEMORY = 1.0  # seconds over which the rate is averaged
_NEWEST = 0.25  # share of the last claim in the average of how long they take
_LONGEST_REST, _LONGEST_AHEAD = 0.5, 1.0  # of one of many workers


@dataclass(slots=True, eq=False)
class ClaimPace:
    """Learns from one claim to the next how fast requests are handed out.

    A batch is between `least` and `most`. Small claims cost as much as large ones, and large ones
    keep work from other processes: so they grow with the rate, and where claims take so long that
    this worker runs dry meanwhile. Without that many workers on a server at its limit would claim a
    little each, wait, and be slow for that alone. One of many workers looks further ahead, so that
    all of them together claim no more often. Where the database is far away, a claim begins while
    there is enough in hand for the time that it takes.
    """

    least: int
    most: int
    _rate: float = 0.0  # requests a second
    _handed_out: int = 0
    _claimed_at: float = -math.inf
    _in_hand: int = 0  # after the last claim
    _times: float = 1.0  # as much as the rate asks for
    _ahead: float = LOOKAHEAD  # seconds
    _rest: float = _REST
    takes: float = 0.0  # seconds from the begin of a claim to its answer, averaged

    @property
    def batch(self) -> int:
        """How many requests to have in hand that have not started, and to claim at most."""
        ahead = self._ahead + self.takes
        return min(self.most, int(max(self.least, self._rate * ahead) * self._times))

    @property
    def meanwhile(self) -> int:
        """How many requests are handed out while a claim is under way."""
        return min(self.batch, int(self._rate * self.takes))

    @property
    def enough(self) -> int:
        """With how many requests in hand no claim is needed: with more than this."""
        return max(self.batch // 2, self.meanwhile)

    def due_in(self, in_hand: int, now: float) -> float:
        """Return in how many seconds to claim again; 0 once half of what was in hand is gone."""
        if in_hand <= max(self._in_hand // 2, self.meanwhile):
            return 0.0
        return max(0.0, self._claimed_at + self._rest - now)

    def answered(self, seconds: float) -> None:
        """Take note of how long a claim took, from the question to its answer."""
        self.takes += (min(seconds, _LONGEST_AHEAD) - self.takes) * _NEWEST

    def claimed(
        self,
        in_hand: int,
        handed_out: int,
        now: float,
        *,
        ran_dry: bool = False,
        crowd: float = 1.0,
    ) -> None:
        """Take note of a claim: what is in hand after it, and was handed out in all till then.

        `ran_dry` says that nothing was in hand any more when it came, and that there was as much as
        was asked for. `crowd` is that of `WorkerGraph`.
        """
        self._ahead = min(LOOKAHEAD * crowd, _LONGEST_AHEAD)
        self._rest = min(_REST * crowd, _LONGEST_REST)
        if ran_dry:
            self._times = min(self._times * 2, self.most / self.least)
        else:
            self._times = max(self._times * _LESS, 1.0)
        if self._claimed_at > -math.inf:
            seconds = max(now - self._claimed_at, 1e-3)
            rate = (handed_out - self._handed_out) / seconds
            self._rate += (rate - self._rate) * (1 - math.exp(-seconds / _MEMORY))
        self._in_hand, self._handed_out, self._claimed_at = in_hand, handed_out, now
