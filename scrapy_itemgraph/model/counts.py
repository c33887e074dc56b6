"""Numbers that are counted as far as it is worth it, and estimated beyond."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIGITS = 2  # that an estimate has: of a sample more would say nothing


class Estimate(int):
    """A number that was not counted to its end but estimated."""


def rounded(number: float) -> Estimate:
    """Return an estimate with as many digits as it deserves."""
    if number < 1:
        return Estimate(0)
    unit = 10 ** max(0, math.floor(math.log10(number)) + 1 - DIGITS)
    return Estimate(round(number / unit) * unit)


def total(numbers: Iterable[int]) -> int:
    """Add numbers up; where one of them is an estimate, so is the sum."""
    listed = list(numbers)
    is_estimate = any(isinstance(number, Estimate) for number in listed)
    return rounded(sum(listed)) if is_estimate else sum(listed)


def less(number: int, part: int) -> int:
    """Take a part of a number away; where one of them is an estimate, so is what is left."""
    left = max(0, int(number) - int(part))
    is_estimate = isinstance(number, Estimate) or isinstance(part, Estimate)
    return Estimate(left) if is_estimate else left


def shown(number: int) -> str:
    """Write a number for people: `1,234`, or `~1,200,000` where it is an estimate."""
    return f"~{int(number):,}" if isinstance(number, Estimate) else f"{number:,}"


def many(number: int, noun: str) -> str:
    """Write a number of something: `1 failure`, `~120,000 failures`."""
    return f"{shown(number)} {noun}{'' if number == 1 else 's'}"


def estimated(numbers: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of those that are estimates."""
    return tuple(name for name, number in numbers.items() if isinstance(number, Estimate))
