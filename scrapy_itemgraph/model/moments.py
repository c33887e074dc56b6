"""Moments: those that Python can say are checked where they enter, others become the nearest.

PostgreSQL's go from 4713 BC to 294276 and may be infinite; Python's from year 1 to 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from scrapy_itemgraph.exceptions import OperationError

# A day within the bounds, so that no time zone leads beyond them.
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
FARTHEST = timedelta(days=365_250)
_USUAL = re.compile(r"[1-8]\d{3}-\d\d-\d\d[T ]\d\d:[\d:.]+(?:Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_YEARS = re.compile(r"(\d{4,})-\d\d-\d\d")


def check(moment: Any, what: str) -> datetime:
    """Return a moment with a time zone, in the years 1 to 9999 in UTC.

    Raises:
        OperationError: it is none.

    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise OperationError(f"{what} must be a datetime with a time zone, not {moment!r:.100}")
    if not is_sayable(moment):
        raise OperationError(
            f"{what} is {moment.isoformat()}, which is outside the years 1 to 9999 in UTC; "
            "write one within them"
        )
    return moment


def is_sayable(moment: datetime) -> bool:
    """Whether a moment with a time zone is one in UTC as well."""
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True


def check_period(period: timedelta, what: str) -> None:
    """Check that a period leads from now to a moment that can be said.

    Raises:
        OperationError: it is longer than a thousand years.

    """
    if abs(period) > FARTHEST:
        raise OperationError(
            f"{what} is {period.days:,} days from now; it can be {FARTHEST.days:,} at most"
        )


def to_second(moment: datetime) -> str:
    """Write a moment of UTC to the second: `2026-03-01 07:34:41Z`."""
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def later(moment: datetime, period: timedelta) -> datetime:
    """Return the moment after a period, or the nearest one that can be said."""
    try:
        return min(max(moment + period, EARLIEST), LATEST)
    except OverflowError:
        return EARLIEST if period < timedelta() else LATEST


def clamped(text: Any) -> Any:
    """Return a moment as PostgreSQL writes it in JSON, or the nearest one that Python can say.

    What is no such moment is returned as it is.
    """
    if not isinstance(text, str) or _USUAL.fullmatch(text):
        return text
    bare = text.strip().lower()
    if bare.startswith("-") or bare.endswith("bc"):
        return EARLIEST.isoformat()
    years = _YEARS.match(bare)
    if bare.lstrip("+") in {"infinity", "inf"} or (years and int(years[1]) > LATEST.year):
        return LATEST.isoformat()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.utcoffset() is None or is_sayable(moment):
        return text
    return (EARLIEST if moment.year == 1 else LATEST).isoformat()
