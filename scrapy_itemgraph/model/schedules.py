"""Schedules: rules by which something is due again and again, and what is done when it is late."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_itemgraph.model import periods, wall_clocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST = timedelta(minutes=1)
MOST_CAUGHT_UP = 100
MOST_COUNTED = 10_000
_LATEST_START = datetime(9000, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_FIELDS = "minute hour day-of-month month day-of-week"
_STEPPED_RANGE = re.compile(r"\b(\w+)-(\w+)/[1-9]\d*(?![\w/])", re.ASCII)
_DAYS = "SUN MON TUE WED THU FRI SAT"
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_VALUES = {name: at for at, name in enumerate(_DAYS.split())} | {
    name: at for at, name in enumerate(_MONTHS.split(), 1)
}
_WEEKDAY = "|".join([*_DAYS.split(), "[0-6]"])
_RANGE_OF_DAYS = re.compile(rf"\b({_WEEKDAY})-({_WEEKDAY})\b")
_DAY = timedelta(days=1)


class Kind(StrEnum):
    """How a rule says when something is due."""

    EVERY = "every"
    AT = "at"
    CRON = "cron"


class CatchUp(StrEnum):
    """What is done about due times that nobody noticed in time."""

    ONE = "one"
    NONE = "none"
    ALL = "all"


class Overlap(StrEnum):
    """What is done at a due time while the crawl is active still."""

    SKIP = "skip"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Rule:
    """When something is due: `every` period of real time, `at` times of the day, or by `cron`.

    `spec` is the period ("6h"), the times ("03:00,15:30") or the line ("30 2 * * 1-5"). Periods
    count from `starts_at`; the others are times on the clock of `time_zone`. `read` checks it.
    """

    kind: Kind
    spec: str
    time_zone: str = "UTC"
    starts_at: datetime = EPOCH

    @classmethod
    def read(
        cls,
        given: Mapping[str, Any],
        *,
        time_zone: Any = None,
        starts_at: datetime = EPOCH,
        or_else: str = "",
    ) -> Rule:
        """Return the rule that `given` says, whose keys are kinds; one of them is not None.

        `or_else` ends the error where there is none, such as "a ttl".

        Raises:
            ValueError: there is not just one, or it cannot be kept; it says what to write.

        """
        named = {Kind(name): value for name, value in given.items() if value is not None}
        if len(named) != 1:
            listed = " or ".join(f"{name}=" for name in Kind)
            found = ", ".join(f"{name}={value!r}" for name, value in named.items()) or "none"
            raise ValueError(f"give one of {listed}{or_else}, not {found}")
        ((kind, value),) = named.items()
        if kind is Kind.EVERY and time_zone not in {None, "UTC"}:
            raise ValueError(
                f"every={value!r} counts real time, in every time zone alike; leave time_zone out, "
                'or write at="03:00"'
            )
        if not EPOCH <= starts_at <= _LATEST_START:
            raise ValueError(f"it starts at {starts_at.isoformat()}; write a year 1970 to 9000")
        zone = "UTC" if time_zone is None else wall_clocks.read_zone(time_zone).key
        rule = cls(kind, _READERS[kind](value), zone, starts_at)
        if rule.next_after(starts_at) is None:
            raise ValueError(f"{rule} never comes; check its day and month")
        return rule

    def __str__(self) -> str:
        spec = self.spec.replace(",", " and ") if self.kind is Kind.AT else self.spec
        zone = "" if self.kind is Kind.EVERY else f" {self.time_zone}"
        return f"{self.kind} {spec}{zone}"

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due time after a moment, in UTC; None: there is none to come."""
        if moment < self.starts_at and self.kind is Kind.EVERY:
            return self.starts_at
        if moment > _LATEST_START:
            return None
        if self.kind is Kind.EVERY:
            period = _period(self.spec)
            return self.starts_at + ((moment - self.starts_at) // period + 1) * period
        return _next_on_wall(self, moment.astimezone(UTC))

    def following(self, moment: datetime) -> Iterator[datetime]:
        """Go through the due times after a moment."""
        due = self.next_after(moment)
        while due is not None:
            yield due
            due = self.next_after(due)


@lru_cache(maxsize=1000)
def _period(spec: str) -> timedelta:
    return periods.parse_period(spec, "every")


def _next_on_wall(rule: Rule, moment: datetime) -> datetime | None:
    zone = wall_clocks.read_zone(rule.time_zone)
    if rule.kind is Kind.AT:
        return wall_clocks.next_fixed(lambda wall: _next_time(rule.spec, wall), zone, moment)
    minute, hour = rule.spec.split()[:2]
    is_fixed = not minute.startswith("*") and not hour.startswith("*")  # as Debian's cron has it
    find = wall_clocks.next_fixed if is_fixed else wall_clocks.next_real
    return find(lambda wall: _next_of_cron(rule.spec, wall), zone, moment)


def _next_time(spec: str, wall: datetime) -> datetime:
    times = [time.fromisoformat(one) for one in spec.split(",")]
    days = (wall.date(), wall.date() + _DAY)
    return next(
        found for day in days for one in times if (found := datetime.combine(day, one)) > wall
    )


def _next_of_cron(spec: str, wall: datetime) -> datetime | None:
    return next(_cron(spec, wall), None)


def _cron(spec: str, wall: datetime) -> Iterator[datetime]:
    """Go through the times on a wall of a line of cron, without a zone.

    How a clock changes is left to `wall_clocks`: cronsim 2.8 leaves out half an hour where a clock
    goes back by half an hour, and where it goes back it may return what was before. It reads the
    stepped range of one value, 23-23/3, as 23/3: 23, 26, 29 and so on.
    """
    from cronsim import CronSim  # noqa: PLC0415 - who has no line of cron starts without it

    return CronSim(_STEPPED_RANGE.sub(_without_idle_step, spec), wall)


def _without_idle_step(found: re.Match[str]) -> str:
    """Return a stepped range without its step if it is of one value."""
    first, last = (_VALUES.get(one, one.lstrip("0") or 0) for one in found.groups())
    return found[1] if str(first) == str(last) else found[0]


def _read_every(value: Any) -> str:
    period = periods.parse_period(value, "every")
    if period < SHORTEST or period.microseconds:
        raise ValueError(f"every={value!r} must be whole seconds, and a minute or more")
    return format_exactly(period)


def format_exactly(period: timedelta) -> str:
    """Write a period of whole seconds as it is read again: "1d12h", "90s" as "1m30s"."""
    rest, parts = int(period.total_seconds()), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _read_at(value: Any) -> str:
    given = value.split(",") if isinstance(value, str) else value
    times = [one.strip() if isinstance(one, str) else one for one in _listed(given)]
    found = [_TIME.fullmatch(one) if isinstance(one, str) else None for one in times]
    if not found or not all(found):
        raise ValueError(f'at={value!r:.100} is no time of the day; write "03:00" or "03:00,15:30"')
    return ",".join(sorted({f"{int(one[1]):02}:{one[2]}" for one in found if one}))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _read_cron(value: Any) -> str:
    fields = value.split() if isinstance(value, str) else []
    if len(fields) != len(_FIELDS.split()):
        raise ValueError(
            f"cron={value!r:.100} has {len(fields)} fields; write five, {_FIELDS}, such as "
            '"30 2 * * 1-5"'
        )
    line = " ".join(fields).upper()
    from cronsim import CronSimError  # noqa: PLC0415 - as in `_cron`

    try:
        next(_cron(line, EPOCH.replace(tzinfo=None)), None)
    except CronSimError as error:
        raise ValueError(
            f"cron={value!r:.100}: {str(error).lower()}{_backwards(fields[-1].upper())}; the "
            f'fields are {_FIELDS}, such as "30 2 * * 1-5"'
        ) from None
    return line


def _backwards(days: str) -> str:
    """Return the cron range that replaces a range of days with its end first, such as MON-SUN."""
    for found in _RANGE_OF_DAYS.finditer(days):
        first, last = (int(_VALUES.get(one, one)) for one in found.groups())
        if first > last:
            rest = "" if last == 0 else ",1" if last == 1 else f",1-{last}"
            return (
                f", for a week begins with SUN (0), which 7 is as well: write {first}-7{rest} for "
                f"{found[0]}"
            )
    return ""


_READERS = {Kind.EVERY: _read_every, Kind.AT: _read_at, Kind.CRON: _read_cron}


class Fired(NamedTuple):
    """What follows from a schedule that is due: which due times run, how many were missed."""

    runs: list[datetime]
    missed: int
    last_at: datetime
    next_at: datetime | None


def fire(
    rule: Rule, next_at: datetime, now: datetime, *, catch_up: CatchUp, grace: timedelta
) -> Fired:
    """Return what follows for a rule whose due time `next_at` has come.

    With "one" the latest due time runs, and those before it were missed. With "none" it runs unless
    it is longer ago than `grace`. With "all" each runs, but no more than the latest hundred. Beyond
    ten thousand the missed are not counted any more.
    """
    due = _latest(rule, next_at, now)
    count = max(_count(rule, next_at, now), len(due))
    if catch_up is CatchUp.ALL:
        runs = due
    elif catch_up is CatchUp.NONE and now - due[-1] > grace:
        runs = []
    else:
        runs = due[-1:]
    return Fired(runs, count - len(runs), due[-1], rule.next_after(now))


def _latest(rule: Rule, first: datetime, now: datetime) -> list[datetime]:
    """Return the latest due times from `first` to `now`, up to a hundred."""
    span = SHORTEST * MOST_CAUGHT_UP
    while True:
        begin = max(first, now - span)
        due = list(takewhile(now.__ge__, rule.following(begin)))
        if begin == first:
            due = [first, *due]
        if begin == first or len(due) >= MOST_CAUGHT_UP:
            return due[-MOST_CAUGHT_UP:]
        span *= 4


def _count(rule: Rule, first: datetime, now: datetime) -> int:
    """Count due times from `first` to `now`, up to ten thousand."""
    if rule.kind is Kind.EVERY:
        return min((now - first) // _period(rule.spec) + 1, MOST_COUNTED)
    count = 1
    for due in rule.following(first):
        if due > now or count >= MOST_COUNTED:
            break
        count += 1
    return count


def spread_of(key: str, spread: timedelta) -> timedelta:
    """Return a part of `spread` that is always the same for a key, and another for others."""
    digest = blake2b(key.encode(), digest_size=8).digest()
    return spread * (int.from_bytes(digest) / 2**64)


def jitter(schedule_id: int, due_at: datetime, most: timedelta) -> timedelta:
    """Return by how much a schedule's start is later than a due time: less than `most`."""
    return spread_of(f"{schedule_id} {due_at.astimezone(UTC).isoformat()}", most)
