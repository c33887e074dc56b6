"""When a result falls due: after its time to live, or by the clock, as its task says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from scrapy_itemgraph.model import moments, periods
from scrapy_itemgraph.model.schedules import Kind, Rule, format_exactly, spread_of


def next_due(
    completed_at: datetime,
    ttl: timedelta | None,
    expiry: Expiry | None = None,
    *,
    item_id: int = 0,
) -> datetime | None:
    """Return when an item's result that was completed at `completed_at` falls due; None: never.

    By `expiry` if there is one, else after `ttl`. `store.sql_conditions.NEXT_DUE` says the same in
    SQL, of tasks without an expiry.
    """
    if expiry is not None:
        return expiry.next_due(completed_at, item_id)
    return None if ttl is None else moments.later(completed_at, ttl)


@dataclass(frozen=True, slots=True)
class Expiry:
    """When results of a task expire: at the rule's next due time after their completion.

    With a `spread` each item has a due time of its own, so much later at most, always the same.
    """

    rule: Rule
    spread: timedelta = field(default=timedelta())

    @classmethod
    def read(cls, given: Mapping[str, Any], *, time_zone: Any = None, spread: Any = None) -> Expiry:
        """Return what the options of a task say, whose keys are kinds of rules.

        Raises:
            ValueError: they cannot be kept; it says what to write.

        """
        rule = Rule.read(given, time_zone=time_zone)
        if spread is None:
            return cls(rule)
        period = periods.parse_period(spread, "spread")
        if period.microseconds:
            raise ValueError(f"spread={spread!r} must be whole seconds")
        return cls(rule, period)

    def __str__(self) -> str:
        spread = f", spread over {format_exactly(self.spread)}" if self.spread else ""
        return f"{self.rule}{spread}"

    def next_due(self, completed_at: datetime, item_id: int) -> datetime | None:
        """Return when a result of an item that was completed at a moment expires."""
        later = spread_of(str(item_id), self.spread) if self.spread else timedelta()
        due = _due_after(self.rule, completed_at - later)
        return None if due is None else due + later

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored with its task."""
        rule = self.rule
        found = {str(rule.kind): rule.spec}
        if rule.time_zone != "UTC":
            found["time_zone"] = rule.time_zone
        if self.spread:
            found["spread"] = format_exactly(self.spread)
        return found


def _due_after(rule: Rule, moment: datetime) -> datetime | None:
    if rule.kind is Kind.EVERY:
        return rule.next_after(moment)
    # A clock shows whole minutes only at whole minutes, so a minute's moments have one next one.
    return _due_after_minute(rule, moment.replace(second=0, microsecond=0))


@lru_cache(maxsize=10_000)
def _due_after_minute(rule: Rule, minute: datetime) -> datetime | None:
    return rule.next_after(minute)


def read_expiry(stored: Any) -> Expiry:
    """Return what was stored with a task.

    Raises:
        ValueError: it is nothing that could have been.

    """
    if not isinstance(stored, Mapping) or not stored.keys() <= {*Kind, "time_zone", "spread"}:
        raise ValueError(f"the schedule {stored!r:.100} is none")
    rule = {name: value for name, value in stored.items() if name in set(Kind)}
    return Expiry.read(rule, time_zone=stored.get("time_zone"), spread=stored.get("spread"))


@lru_cache(maxsize=1000)
def _stored(given: tuple[tuple[str, Any], ...]) -> Expiry:
    return read_expiry(dict(given))


def stored_expiry(stored: Mapping[str, Any] | None) -> Expiry | None:
    """Return what is stored with a task; None: its results expire by its ttl."""
    return None if stored is None else _stored(tuple(stored.items()))
