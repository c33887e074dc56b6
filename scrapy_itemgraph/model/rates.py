"""Rates: how often work may start and how much of it may run at once, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

# The least delay that is told from none, and the longest that is kept, in seconds.
SHORTEST_GAP = 0.001
LONGEST_GAP = 86_400.0
MOST_AT_ONCE = 2**31 - 1
_RATE = re.compile(
    r"\s*(?P<count>\d+(?:\.\d+)?)\s*/\s*(?P<time>\d+(?:\.\d+)?)?\s*"
    r"(?:(?P<s>s|sec|seconds?)|(?P<m>m|min|minutes?)|(?P<h>h|hours?)|(?P<d>d|days?))\s*",
    re.ASCII,
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class RateLimit:
    """How often something may start, such as "10/s" or "1/10s", and how many of it run at once.

    `gap` is the rate as the least number of seconds between two starts; None where it is below a
    millisecond. It is a ValueError when neither is given, or one of them cannot be kept.
    """

    rate: str | None = None
    concurrency: int | None = field(default=None, kw_only=True)
    gap: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.rate is None and self.concurrency is None:
            raise ValueError(
                'RateLimit needs a rate, a concurrency or both: RateLimit("10/s", concurrency=2)'
            )
        if self.concurrency is not None:
            check_concurrency(self.concurrency)
        gap = None if self.rate is None else _gap(self.rate, "rate")
        object.__setattr__(self, "gap", usable_gap(gap) or None)

    @classmethod
    def read(cls, value: Any, what: str) -> RateLimit:
        """Return the limit that `value` is or spells, or raise a ValueError about `what`."""
        if isinstance(value, cls):
            return value
        _gap(value, what)
        return cls(value)

    def __str__(self) -> str:
        rate = None if self.rate is None else "".join(self.rate.split())
        at_once = None if self.concurrency is None else f"{self.concurrency} at once"
        return ", ".join(part for part in (rate, at_once) if part)


def usable_gap(seconds: float | None) -> float:
    """Return a delay as it can be kept, wherever it comes from: 0 to a day, in seconds.

    What is below a millisecond, or no number, is no delay.
    """
    if seconds is None or not seconds >= SHORTEST_GAP:
        return 0.0
    return min(float(seconds), LONGEST_GAP)


def check_concurrency(value: Any, what: str = "concurrency") -> int:
    """Return `value` when so many may run at once, an integer from 1, or raise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_AT_ONCE:
        raise ValueError(f"{what} must be an integer from 1, not {value!r:.80}")
    return value


def _gap(value: Any, what: str) -> float:
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(_rate_help(value, what))
    unit = next(name for name in _SECONDS if found[name])
    count, time = float(found["count"]), float(found["time"] or 1) * _SECONDS[unit]
    gap = time / count if count else 0.0
    if not 0 < gap <= LONGEST_GAP:
        raise ValueError(_rate_help(value, what))
    return gap


def _rate_help(value: Any, what: str) -> str:
    return (
        f'{what} is {value!r:.80}; write how many may start in what time, such as "10/s", '
        '"30/min" or "1/10s" (s, min, h, d; above zero, and at least one a day), or '
        'RateLimit("10/s", concurrency=2)'
    )
