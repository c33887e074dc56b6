"""Periods that users write, times to live among them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

LONGEST = timedelta(days=36525)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PERIOD_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def parse_period(value: Any, what: str) -> timedelta:
    """Read a period: a timedelta, a number of seconds, or text such as "1d12h"; above zero."""
    period = _period(value)
    if period is None or not timedelta() < period <= LONGEST:
        python = "" if isinstance(value, str) else "a timedelta, "
        raise ValueError(
            f"{what} is {value!r}; write {python}a number of seconds above 0, or text of numbers "
            'and units such as "90s", "6h" or "1d12h" (s, m, h, d, w; a hundred years at most)'
        )
    return period


def _period(value: Any) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, str) and _PERIOD.fullmatch(value):
            parts = _PERIOD_PART.findall(value)
            return sum((timedelta(**{_UNITS[u]: float(n)}) for n, u in parts), timedelta())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
    except (OverflowError, ValueError):  # too long, or no number
        return None
    return None


def parse_ttl(value: Any, what: str = "ttl") -> timedelta | None:
    """Read a time to live: a period, or "never", which is None."""
    return None if value == "never" else parse_period(value, what)
