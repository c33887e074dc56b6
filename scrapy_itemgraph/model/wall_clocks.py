"""Moments by the clock on the wall: which moments a place's times are, over changes of its clock.

A time that the clock leaps over comes right after the leap, and one that it shows twice comes the
first time. Times of every hour or minute are counted in real time instead: they come whenever the
clock shows them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable

    # The next time on a wall after the given one, without a zone; None: there is none.
    NextTime = Callable[[datetime], datetime | None]

_NO_PLACES = ("localtime", "Factory", "posix", "right")
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def read_zone(name: object) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        ValueError: there is none of this name; it says which may be meant.

    """
    zone = _zone(name) if isinstance(name, str) else None
    if zone is None:
        near = _near(name) if isinstance(name, str) else ""
        raise ValueError(
            f"there is no time zone {name!r:.100}{near}; write an IANA name such as "
            "'Europe/Berlin', or 'UTC'"
        )
    return zone


@lru_cache(maxsize=1000)
def _zone(name: str) -> ZoneInfo | None:
    if name.startswith(_NO_PLACES):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder, or a file of something else
        return None


def _near(name: str) -> str:
    """Return a hint, for a city or a name in small letters as well."""
    known = sorted(available_timezones())
    wanted = name.strip().lower().replace(" ", "_")
    alike = [one for one in known if one.lower().rpartition("/")[2] == wanted]
    exact = [one for one in known if one.lower() == wanted]
    found = (exact or alike)[:1]
    return f"; did you mean {found[0]!r}?" if found else closest(name, known)


def shown(moment: datetime, time_zone: str) -> str:
    """Return what a place's clock shows at a moment, to the minute: "2026-11-26 03:00"."""
    return f"{moment.astimezone(read_zone(time_zone)):%Y-%m-%d %H:%M}"


def next_fixed(after: NextTime, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the first moment after `moment` at which one of some times of the day comes."""
    wall = _wall(moment, zone)
    while True:
        following = after(wall)
        if following is None:
            return None
        found = _moment_of(following, zone)
        if found > moment:  # in an hour that comes twice, it may have come before
            return found
        wall = following


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _moment_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when a clock shows a time first, or when it leaps over it."""
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    if _wall(first, zone) == wall:
        return first
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_change(zone, min(before, first) - _SECOND, max(before, first)) or first


def next_real(after: NextTime, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the first moment after `moment` at which the clock shows one of some times."""
    wall = _wall(moment, zone)
    while True:
        following = after(wall)
        if following is None:
            return None
        offset = _offset(moment, zone)
        found = (following - offset).replace(tzinfo=UTC)
        change = _first_change(zone, moment, found)
        if change is None:
            return found
        moment, wall = change, _wall(change, zone) - _SECOND  # the change itself may be one


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo's
    return offset


def _first_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """Return when a clock is changed first in a span, to the second; None: it is not.

    No place changes its clock there and back within a day.
    """
    before = _offset(after, zone)
    low = after
    while low < until:
        high = min(low + _DAY, until)
        if _offset(high, zone) != before:
            return _between(zone, before, low, high)
        low = high
    return None


def _between(zone: ZoneInfo, before: timedelta, low: datetime, high: datetime) -> datetime:
    first, last = int(low.timestamp()), -int(-high.timestamp() // 1)
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(datetime.fromtimestamp(middle, UTC), zone) == before:
            first = middle
        else:
            last = middle
    return datetime.fromtimestamp(last, UTC)
