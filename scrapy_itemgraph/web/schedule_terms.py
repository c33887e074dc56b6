"""What is asked of a schedule over HTTP, read from JSON or from a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import periods, wall_clocks
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import CatchUp, Kind, Overlap, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_PERIODS = ("grace", "jitter", "time_limit")
_WORDS: dict[str, type[CatchUp | Overlap]] = {"catch_up": CatchUp, "overlap": Overlap}


def rule_of(given: Mapping[str, Any], *, zone: str | None = None) -> Rule | None:
    """Return the rule that is given by `every`, `at` or `cron`; None where none of them is.

    Times are of `zone`, where no other one is given.

    Raises:
        OperationError: it cannot be kept; it says what to write.

    """
    wanted = {str(kind): given.get(kind) for kind in Kind}
    given_zone = given.get("time_zone")
    if all(value is None for value in wanted.values()):
        if given_zone is not None:
            raise OperationError("a time zone goes with at or cron; give one of them")
        return None
    try:
        kept = zone if wanted[Kind.EVERY] is None else None
        return Rule.read(wanted, time_zone=given_zone or kept)
    except ValueError as error:
        raise OperationError(str(error)) from None


def of_new_crawl(given: Mapping[str, Any], *, is_paused: bool) -> NewSchedule | None:
    """Return the schedule that a new crawl is started by alone; None: it is started at once.

    Raises:
        OperationError: its rule cannot be kept, or it is to be paused as well.

    """
    rule = rule_of(given)
    if rule is not None and is_paused:
        raise OperationError("a crawl that waits for its schedule need not be paused as well")
    return None if rule is None else NewSchedule(rule=rule)


def terms_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else is given of a schedule; None takes a period away.

    Raises:
        OperationError: a value that cannot be.

    """
    found: dict[str, Any] = {}
    for name in (*_PERIODS, *_WORDS):
        if name not in given:
            continue
        value = given[name]
        try:
            if name in _WORDS:
                found[name] = _WORDS[name](value)
            else:
                found[name] = None if value is None else periods.parse_period(value, name)
        except ValueError as error:
            raise OperationError(str(error)) from None
    if found.get("grace", 0) is None:
        raise OperationError("grace is a period, such as 10m")
    return found


def due_time(moment: datetime, time_zone: str) -> dict[str, Any]:
    """Return a due time, and what the clock of a time zone says then."""
    return {"due": moment, "local": wall_clocks.shown(moment, time_zone)}
