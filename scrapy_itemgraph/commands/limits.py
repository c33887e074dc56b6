"""Politeness, over all crawls: slots (websites) and other limits, blocks and delays."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model.rates import RateLimit, check_concurrency
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.store.admin.limit_changes import Changed
    from scrapy_itemgraph.store.admin.limit_reports import LimitState

SLOT = Argument("slot", help="a slot's name, a host as a rule, or a page's URL")
_MINUTE = 60.0


@command(
    Argument("--limit", metavar="N", type=parsing.count, default=100, help="slots at most (100)")
)
def slots(call: Call) -> None:
    """List slots that have work or anything set or learned, and all other limits.

    All crawls share them; with --crawl those that its work keeps to, and its work alone.
    """
    with call.graph() as graph:
        found = graph.limits.list(of_crawl=call.crawl is not None, limit=call.given.limit)
    call.write([asdict(one) for one in found], _slot_lines(found, call.given.limit))


def _slot_lines(found: Sequence[LimitState], limit: int) -> Iterator[str]:
    of_slots = [one for one in found if one.kind == "slot"]
    named = [one for one in found if one.kind != "slot"]
    if not found:
        yield "no slot has work, and nothing was set or learned of one"
    if named:
        yield from printing.table(named, {"LIMIT": "name", **_KEPT, "SET": _set})
    if named and of_slots:
        yield ""
    if of_slots:
        yield from printing.table(of_slots, _SLOTS)
    if len(of_slots) == limit:
        yield f"(the first {limit:,} slots; --limit shows more)"


def _holders(one: LimitState) -> str:
    several = [f"{held.worker} ({held.units})" for held in one.holders]
    return ", ".join(several) if several[1:] else _workers(one.holders)


def _workers(holders: Sequence[Any]) -> str:
    return ", ".join(str(held.worker) for held in holders)


def _set(one: LimitState) -> str:
    parts = [
        _seconds(one.set_gap),
        "" if one.set_concurrency is None else f"{one.set_concurrency} at once",
    ]
    return ", ".join(filter(None, parts))


def _known(one: LimitState) -> str:
    """Say what was set and learned of a slot."""
    parts = {
        "set": _set(one),
        "robots.txt": _seconds(one.crawl_delay),
        "throttled": _seconds(one.throttle),
        "answers in": _seconds(one.latency),
    }
    return ", ".join(f"{label} {value}" for label, value in parts.items() if value)


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}s" if value < _MINUTE else wording.format_period(value)


_KEPT: printing.Columns = {
    "DELAY": lambda one: _seconds(one.delay or None),
    "AT ONCE": "concurrency",
    "HELD BY": _holders,
    "WAITING": lambda one: _workers(one.waiting),
}
_SLOTS: printing.Columns = {
    "SLOT": "name",
    "WORK": "work",
    **_KEPT,
    "BLOCKED UNTIL": "blocked_until",
    "BY": "blocked_by",
    "KNOWN": _known,
}


@command(
    SLOT,
    Argument("--until", metavar="TIME", type=parsing.point, help="such as 2026-11-21T10:00Z"),
    Argument("--for", metavar="PERIOD", type=parsing.period, dest="period", help="such as 2h"),
)
def block(call: Call) -> None:
    """Let nothing start in a slot until a moment, or for a period.

    It holds for all crawls. A run leaves blocked work, and ends without it.
    """
    until, period = call.given.until, call.given.period
    if (until is None) == (period is None):
        raise UsageError("give one of --until TIME and --for PERIOD")
    with _graph(call) as graph:
        changed = graph.limits.block(call.given.slot, until=until, for_=period)
    limit = changed.limit
    _write(call, changed, f"{limit.name} is blocked until {printing.moment(limit.blocked_until)}")


@command(SLOT)
def unblock(call: Call) -> None:
    """End a slot's block, be it a person's or one that the site asked for."""
    with _graph(call) as graph:
        changed = graph.limits.unblock(call.given.slot)
    is_ = "is not blocked any more" if changed.is_changed else "was not blocked"
    _write(call, changed, f"{changed.limit.name} {is_}")


@command(SLOT, Argument("seconds", type=parsing.delay, help='at most a day, or "none"'))
def set_delay(call: Call) -> None:
    """Set the least seconds between two starts in a slot.

    It takes the place of what robots.txt asks for. A longer DOWNLOAD_DELAY holds all the
    same. With "none" it is as the settings and robots.txt say.
    """
    seconds = call.given.seconds
    with _graph(call) as graph:
        changed = graph.limits.set_delay(call.given.slot, seconds)
    limit = changed.limit
    if seconds is None:
        said = f"{limit.name} keeps the delay of the settings"
        if limit.crawl_delay is not None:
            said += f", and at least the {_seconds(limit.crawl_delay)} of its robots.txt"
    else:
        said = f"{limit.name} keeps a delay of {_seconds(limit.delay)}"
        if limit.delay > seconds:
            said += f", which the settings ask for, and which is more than {_seconds(seconds)}"
    _write(call, changed, said)


@command(
    Argument("name", help="as `slots` shows it, such as global or task:shop/parse"),
    Argument("rate", help='such as 10/s, 30/min or 1/10s, or "none"'),
    Argument("--concurrency", metavar="N", type=parsing.count, help="at once, at most"),
)
def set_limit(call: Call) -> None:
    """Set the rate of a limit, and how much of it runs at once.

    It takes the place of what the code says, at once and over restarts. What is left out,
    or "none", is as the code says. A slot is never kept looser than the settings say.
    """
    given = call.given
    rate = None if given.rate == "none" else given.rate
    try:
        if given.concurrency is not None:
            rate = RateLimit(rate, concurrency=check_concurrency(given.concurrency))
        elif rate is not None:
            rate = RateLimit.read(rate, "it")
    except ValueError as error:
        raise UsageError(f'argument RATE: {error}; or "none"') from None
    with _graph(call) as graph:
        changed = graph.limits.set_rate(given.name, rate)
    limit = changed.limit
    said = f"{limit.name} is as the code says" if rate is None else f"{limit.name}: {rate}"
    if limit.kind == "slot" and rate is not None:
        kept = f"{limit.concurrency} at once" if limit.concurrency is not None else ""
        delay = f"a delay of {_seconds(limit.delay)}" if limit.delay else ""
        said += f"; it keeps {' and '.join(filter(None, (delay, kept)))}"
    _write(call, changed, said)


def _graph(call: Call) -> Any:
    if call.crawl is not None:
        raise UsageError("limits are shared by all crawls; leave --crawl out")
    return call.graph()


def _write(call: Call, changed: Changed, said: str) -> None:
    document = {**asdict(changed.limit), "is_changed": changed.is_changed, "is_new": changed.is_new}
    lines = [said]
    if changed.is_new:
        lines.append(f"new: no work names this slot yet{changed.hint}")
    call.write(document, map(printing.clean, lines))
