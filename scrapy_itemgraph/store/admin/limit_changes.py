"""What people change of limits: blocks, delays, rates.

A change reaches the workers that have the limit, and those that would use it. Each function returns
a `Changed`, and refuses with an OperationError or NotFoundError, as `ItemGraph` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import moments, periods
from scrapy_itemgraph.model.rates import LONGEST_GAP, RateLimit, usable_gap
from scrapy_itemgraph.postgres.engine import NOW
from scrapy_itemgraph.store.admin.limit_names import FoundLimit, find, find_slot
from scrapy_itemgraph.store.admin.limit_reports import LimitState, state
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.notify import notify

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

# A person's block replaces a person's; one that the site asked for is not made shorter.
BLOCK = text("""
    UPDATE limits SET blocked_by = 'person', blocked_until = CASE
        WHEN blocked_by <> 'person' THEN greatest(blocked_until, :until) ELSE :until END
    WHERE id = :limit
""")

UNBLOCK = text("""
    UPDATE limits SET blocked_by = NULL, blocked_until = NULL
    WHERE id = :limit AND blocked_until > clock_timestamp()
""")

# A gap that was kept because of what was set or learned is not what the settings say; a holder
# says anew what it keeps.
SET_GAP = text("""
    UPDATE limits
    SET set_gap = CAST(:gap AS float8),
        gap = CASE WHEN is_free THEN nullif(gap, floor) ELSE gap END,
        delay = CASE WHEN is_free THEN nullif(delay, floor) ELSE delay END
    FROM (
        SELECT id, coalesce(set_gap, crawl_delay) AS floor, kind = 'slot' AND NOT EXISTS (
            SELECT FROM holdings h WHERE h.limit_id = l.id AND h.units > 0) AS is_free
        FROM limits l WHERE l.id = :limit) AS kept
    WHERE limits.id = kept.id AND set_gap IS DISTINCT FROM CAST(:gap AS float8)
""")

SET_CONCURRENCY = text("""
    UPDATE limits SET set_concurrency = CAST(:concurrency AS int)
    WHERE id = :limit AND set_concurrency IS DISTINCT FROM CAST(:concurrency AS int)
""")

# Queues of a slot may be looked into now; who has one for itself keeps it.
LOOK_AGAIN = text("""
    UPDATE queues SET next_at = clock_timestamp()
    WHERE slot_id = :limit AND next_at > clock_timestamp()
""")

# Crawls that have work of a slot, or tasks that keep to a limit.
CONCERNED = text("""
    SELECT q.crawl_id FROM queues q WHERE q.slot_id = :limit AND q.is_live
    UNION
    SELECT t.crawl_id FROM tasks t
    WHERE :limit = ANY (t.limit_ids) OR EXISTS (
        SELECT FROM tag_limits g WHERE g.task_id = t.id AND g.limit_id = :limit)
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A limit after a change; `is_new` when nothing had named the slot, `hint` what it resembles.

    `is_changed` tells whether anything was otherwise before.
    """

    limit: LimitState
    is_changed: bool
    is_new: bool
    hint: str


def block(
    connection: Connection,
    slot: str,
    *,
    until: datetime | None = None,
    for_: timedelta | None = None,
) -> Changed:
    """Let nothing start in a slot until a moment, or for a period from now."""
    end = _end(connection, until, for_)
    found = find_slot(connection, slot)
    connection.execute(BLOCK, {"limit": found.id, "until": end})
    return _changed(connection, found, is_changed=True)


def unblock(connection: Connection, slot: str) -> Changed:
    """End a block, whoever asked for it."""
    found = find_slot(connection, slot, may_create=False)
    number = connection.execute(UNBLOCK, {"limit": found.id}).rowcount
    return _changed(connection, found, is_changed=number > 0)


def set_delay(connection: Connection, slot: str, seconds: float | None) -> Changed:
    """Set the least seconds between two starts in a slot; None: as settings and robots.txt say."""
    gap = None if seconds is None else usable_gap(_delay(seconds)) or None
    found = find_slot(connection, slot, may_create=gap is not None)
    number = connection.execute(SET_GAP, {"limit": found.id, "gap": gap}).rowcount
    return _changed(connection, found, is_changed=number > 0)


def set_limit(connection: Connection, name: str, rate: RateLimit | str | None) -> Changed:
    """Set a limit's rate and concurrency; a part that `rate` leaves out is as the code says."""
    try:
        read = None if rate is None else RateLimit.read(rate, "rate")
    except ValueError as error:
        raise OperationError(str(error)) from None
    found = find(connection, name, may_create=read is not None)
    gap = {"limit": found.id, "gap": None if read is None else read.gap}
    at_once = {"limit": found.id, "concurrency": None if read is None else read.concurrency}
    number = connection.execute(SET_GAP, gap).rowcount
    number += connection.execute(SET_CONCURRENCY, at_once).rowcount
    return _changed(connection, found, is_changed=number > 0)


def _changed(connection: Connection, found: FoundLimit, *, is_changed: bool) -> Changed:
    if is_changed:
        _reach_workers(connection, found.id)
    return Changed(
        limit=state(connection, found),
        is_changed=is_changed,
        is_new=found.is_new,
        hint=found.hint,
    )


def _reach_workers(connection: Connection, limit_id: int) -> None:
    """Let a change be known: to who has the limit, and to who had put its work off."""
    holdings.tell_holders(connection, [limit_id])
    connection.execute(LOOK_AGAIN, {"limit": limit_id})
    for crawl_id in list(connection.execute(CONCERNED, {"limit": limit_id}).scalars()):
        notify(connection, crawl_id)


def _end(connection: Connection, until: datetime | None, for_: timedelta | None) -> datetime:
    if (until is None) == (for_ is None):
        raise OperationError("say until when a slot is blocked, or for how long: one of the two")
    now: datetime = connection.execute(NOW).scalar_one()
    if for_ is not None:
        try:
            return now + periods.parse_period(for_, "the period")
        except ValueError as error:
            raise OperationError(str(error)) from None
    until = moments.check(until, "until")
    if until <= now:
        raise OperationError(
            f"{until:%Y-%m-%d %H:%M:%S %Z} is past: the database has {now:%Y-%m-%d %H:%M:%S %Z}; "
            "to end a block use unblock"
        )
    if until - now > periods.LONGEST:
        raise OperationError(f"{until:%Y-%m-%d} is more than a hundred years away")
    return until


def _delay(seconds: float) -> float:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 < seconds <= LONGEST_GAP):
        raise OperationError(
            f"a delay of {seconds!r} seconds is not above 0 and at most {LONGEST_GAP:,.0f} (a day);"
            " to leave a site alone for longer use block, and None (none) takes a delay back"
        )
    return float(seconds)
