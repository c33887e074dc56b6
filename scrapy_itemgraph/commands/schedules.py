"""Schedules: crawls of the queue that are started again and again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.model import wall_clocks
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import CatchUp, Kind, Overlap, Rule

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.model.schedule_terms import Schedule

_SCHEDULES = Group("schedules", "Crawls of the queue that are started again and again")
_NUMBER = Argument("schedule", type=parsing.count, help="the schedule's number")
RULE = (
    Argument("--every", metavar="PERIOD", help="such as 6h, from now on"),
    Argument("--at", metavar="TIMES", help="of the day: 03:00, or 03:00,15:30"),
    Argument("--cron", metavar="LINE", help="a line of cron: '30 2 * * 1-5'"),
    Argument("--time-zone", metavar="ZONE", help="of --at and --cron: Europe/Berlin (UTC)"),
)
"""When something is due; `rule_of` reads it."""

_TERMS = (
    Argument(
        "--catch-up",
        choices=[str(one) for one in CatchUp],
        help="due times that passed while no runner lived: the last one, none, or all (one)",
    ),
    Argument(
        "--overlap",
        choices=[str(one) for one in Overlap],
        help="due while the crawl is active still: skip that, or queue it (skip)",
    ),
    Argument(
        "--grace",
        type=parsing.period,
        metavar="PERIOD",
        help="with --catch-up none: how late a start may be (10m)",
    ),
    Argument(
        "--jitter", type=parsing.period, metavar="PERIOD", help="each start is later by up to that"
    ),
    Argument(
        "--time-limit", type=parsing.period, metavar="PERIOD", help="how long a process may run"
    ),
)
_NAMES = ("catch_up", "overlap", "grace", "jitter", "time_limit")
_OPTIONAL = ("jitter", "time_limit")

_COLUMNS: printing.Columns = {
    "SCHEDULE": "id",
    "CRAWL": "crawl",
    "WHEN": lambda one: str(one.rule),
    "NEXT": lambda one: one.next_at if one.is_enabled else "disabled",
    "LAST": "last_at",
    "MISSED": "missed",
    "STATE": "state",
}


def rule_of(given: Namespace, *, zone: str | None = None) -> Rule | None:
    """Return the rule that options say, in `zone` unless they say another one; None: they say none.

    Raises:
        UsageError: it cannot be kept; it says what to write.

    """
    wanted = {str(kind): getattr(given, kind) for kind in Kind}
    if all(value is None for value in wanted.values()):
        if given.time_zone is not None:
            raise UsageError("--time-zone goes with --at or --cron; give one of them")
        return None
    try:
        return Rule.read(
            wanted, time_zone=given.time_zone or (zone if given.every is None else None)
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _terms(given: Namespace) -> dict[str, Any]:
    read = {"catch_up": CatchUp, "overlap": Overlap}
    return {
        name: read.get(name, lambda value: value)(getattr(given, name))
        for name in _NAMES
        if getattr(given, name) is not None
    }


def document(one: Schedule) -> Mapping[str, Any]:
    """Return a schedule as JSON has it."""
    return {**asdict(one), "rule": str(one.rule)}


@_SCHEDULES.command("add", Argument("crawl", help="the crawl's name"), *RULE, *_TERMS)
def add(call: Call) -> None:
    """Have a crawl of the queue started again and again: --every, --at or --cron says when.

    Each due time is started once at most. `crawls add` with the same options adds a crawl that is
    started by its schedule alone.
    """
    given = call.given
    rule = rule_of(given)
    if rule is None:
        raise UsageError("say when: --every 6h, --at 03:00 or --cron '30 2 * * 1-5'")
    with call.graph() as graph:
        made = graph.schedules.add(given.crawl, NewSchedule(rule=rule, **_terms(given)), by=call.by)
    said = f"the schedule {made.id} starts the crawl {made.crawl} {made.rule}"
    call.write(document(made), [printing.clean(f"{said}, next at {printing.moment(made.next_at)}")])


@_SCHEDULES.command("list")
def list_schedules(call: Call) -> None:
    """List schedules; with --crawl NAME those of a crawl. MISSED counts due times passed over."""
    with call.graph() as graph:
        found = graph.schedules.list(crawl=call.crawl)
    none = "there are no schedules yet; scrapy itemgraph schedules add CRAWL --at 03:00 makes one"
    call.write(
        [document(one) for one in found],
        printing.table(found, _COLUMNS) if found else printing.sentence(none),
    )


@_SCHEDULES.command(
    "set",
    _NUMBER,
    *RULE,
    *_TERMS,
    *(
        Argument(f"--no-{name.replace('_', '-')}", action="store_true", help="none of its own")
        for name in _OPTIONAL
    ),
)
def set_schedule(call: Call) -> None:
    """Change when a schedule starts its crawl, or what it does when it is late.

    --at and --cron are times of the zone that it has, unless --time-zone gives it another one.
    """
    given = call.given
    changes = _terms(given)
    for name in _OPTIONAL:
        if getattr(given, f"no_{name}"):
            if name in changes:
                option = name.replace("_", "-")
                raise UsageError(f"give one of --{option} and --no-{option}")
            changes[name] = None
    is_ruled = rule_of(given) is not None
    if not (changes or is_ruled):
        raise UsageError("say what is to be changed, such as --at 04:00")
    with call.graph() as graph:
        if is_ruled:
            changes["rule"] = rule_of(given, zone=graph.schedules.get(given.schedule).time_zone)
        one = graph.schedules.set(given.schedule, by=call.by, **changes)
    _say(call, one, f"starts the crawl {one.crawl} {one.rule}")


@_SCHEDULES.command("enable", _NUMBER)
def enable(call: Call) -> None:
    """Have a schedule start its crawl again, from its next due time on."""
    with call.graph() as graph:
        one = graph.schedules.enable(call.given.schedule, by=call.by)
    _say(call, one, f"starts the crawl {one.crawl} {one.rule}")


@_SCHEDULES.command("disable", _NUMBER)
def disable(call: Call) -> None:
    """Have a schedule start nothing; what runs goes on, and what has not begun is cancelled."""
    with call.graph() as graph:
        one = graph.schedules.disable(call.given.schedule, by=call.by)
    said = (
        f"the schedule {one.id} starts nothing until it is enabled; what has not begun is cancelled"
    )
    call.write(document(one), [said])


@_SCHEDULES.command("remove", _NUMBER)
def remove(call: Call) -> None:
    """Remove a schedule; its crawl and its jobs stay, and what has not begun is cancelled."""
    number = call.given.schedule
    with call.graph() as graph:
        graph.schedules.remove(number, by=call.by)
    call.write(
        {"id": number}, [f"the schedule {number} is removed; what had not begun is cancelled"]
    )


@_SCHEDULES.command(
    "next",
    _NUMBER,
    Argument("count", nargs="?", type=parsing.count, metavar="N", default=10, help="times (10)"),
    Argument("--from", dest="after", type=parsing.point, metavar="MOMENT", help="and not now"),
)
def show_next(call: Call) -> None:
    """Print when a schedule is due next, in UTC and on the clock of its time zone."""
    given = call.given
    with call.graph() as graph:
        one = graph.schedules.get(given.schedule)
        times = graph.schedules.next(given.schedule, count=given.count, after=given.after)
    columns: printing.Columns = {
        "DUE": lambda due: due,
        one.time_zone.upper(): lambda due: wall_clocks.shown(due, one.time_zone),
    }
    call.write(
        [due.isoformat() for due in times],
        printing.table(times, columns) if times else [f"{one.rule} is due no more"],
    )


def _say(call: Call, one: Schedule, what: str) -> None:
    when = f"next at {printing.moment(one.next_at)}" if one.is_enabled else "but is disabled"
    call.write(document(one), [printing.clean(f"the schedule {one.id} {what}, {when}")])
