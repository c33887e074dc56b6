"""What people see of limits: how each is kept, who has it, and who waits for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.limit_names import limit_name
from scrapy_itemgraph.store.limits.sharing import STORED_TERMS, StoredTerms
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Row, TextClause

    from scrapy_itemgraph.store.admin.limit_names import FoundLimit

_OF_TERMS = len(fields(StoredTerms))
_OF_LIMIT = f"""
    {STORED_TERMS}, l.throttle, l.latency, l.last_at,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_until END AS blocked_until,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_by END AS blocked_by
"""

_IS_OF_QUEUE = """
            (CAST(:crawl AS int) IS NULL OR q.crawl_id = :crawl)
            AND (CAST(:only AS int) IS NULL OR q.slot_id = :only)"""
QUEUES = text(f"SELECT count(*) FROM queues q WHERE {_IS_OF_QUEUE}")  # noqa: S608 - our own

# Slots that matter now, those with the most work first; of one crawl all that it had work for: a
# queue is kept for 30 days. Work is what a claim could take, apart from limits; per queue up to
# `many` is counted, and where there is more a sample tells of all.
SLOTS = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT q.slot_id, sum(head.number) AS number, bool_or(head.number > :many) AS is_cut
        FROM queues q CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND {IS_READY_BESIDE_OTHERS}
                LIMIT :many + 1) AS counted) AS head
        WHERE {_IS_OF_QUEUE}
        GROUP BY q.slot_id),
    sampled AS MATERIALIZED (
        SELECT q.slot_id, sum(w.number) / CAST(:share AS float8) AS number
        FROM (
            SELECT w.queue_id, count(*) AS number
            FROM work w TABLESAMPLE SYSTEM (100 * :share) REPEATABLE (0)
            WHERE (SELECT bool_or(is_cut) FROM waiting) AND {IS_READY_BESIDE_OTHERS}
            GROUP BY w.queue_id) AS w
        JOIN queues q ON q.id = w.queue_id
        WHERE {_IS_OF_QUEUE}
        GROUP BY q.slot_id)
    SELECT {_OF_LIMIT}, coalesce(w.is_cut, false) AS is_cut,
        CAST(CASE WHEN w.is_cut THEN greatest(w.number, s.number)
            ELSE coalesce(w.number, 0) END AS bigint) AS work
    FROM limits l LEFT JOIN waiting w ON w.slot_id = l.id LEFT JOIN sampled s ON s.slot_id = l.id
    WHERE l.kind = 'slot' AND l.name <> ''
        AND (CAST(:crawl AS int) IS NULL OR w.slot_id IS NOT NULL)
        AND CASE WHEN CAST(:only AS int) IS NOT NULL THEN l.id = :only
            ELSE CAST(:crawl AS int) IS NOT NULL OR w.number > 0
                OR l.set_gap IS NOT NULL OR l.set_concurrency IS NOT NULL
                OR l.crawl_delay IS NOT NULL OR l.throttle IS NOT NULL
                OR l.blocked_until > clock_timestamp()
                OR EXISTS (SELECT FROM holdings h WHERE h.limit_id = l.id) END
    ORDER BY work DESC, l.last_at DESC NULLS LAST, l.name
    LIMIT :limit
""")  # noqa: S608 - our own columns

# Limits with a name that a task keeps to, somebody has, or a person set.
NAMED = text(f"""
    SELECT {_OF_LIMIT}, false AS is_cut, CAST(NULL AS bigint) AS work
    FROM limits l
    WHERE l.kind <> 'slot' AND CASE WHEN CAST(:only AS int) IS NOT NULL THEN l.id = :only
        ELSE EXISTS (
                SELECT FROM tasks t
                WHERE t.is_registered AND (CAST(:crawl AS int) IS NULL OR t.crawl_id = :crawl)
                    AND (l.id = ANY (t.limit_ids) OR EXISTS (
                        SELECT FROM tag_limits g
                        WHERE g.task_id = t.id AND g.limit_id = l.id)))
            OR CAST(:crawl AS int) IS NULL AND (
                l.set_gap IS NOT NULL OR l.set_concurrency IS NOT NULL
                OR EXISTS (SELECT FROM holdings h WHERE h.limit_id = l.id)) END
    ORDER BY l.kind, l.name
""")  # noqa: S608

# Who has limits, and who waits for them; one that has not asked for long is none of these.
HOLDERS = text("""
    SELECT h.limit_id, h.worker_id AS worker, c.name AS crawl, p.host, p.process_id, h.units,
        h.since, h.until AS free_at
    FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN holdings h ON h.limit_id = wanted.id
    LEFT JOIN processes p ON p.id = h.worker_id
    LEFT JOIN crawls c ON c.id = p.crawl_id
    WHERE h.units > 0 OR h.asked_at > clock_timestamp() - interval '10 seconds'
    ORDER BY h.since, h.worker_id
""")


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that has something of a limit, or waits for it: then it has no units.

    `free_at` is set of one that died: when its requests have ended.
    """

    worker: int
    crawl: str | None
    host: str | None
    process_id: int | None
    units: int
    since: datetime
    free_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """A limit as it is kept, what was set and learned of it, and who has it.

    `delay` are the seconds between two starts on average, `gap` the least, for jitter makes
    some shorter; `work` counts what waits in a slot; where `is_counted` is false it is an estimate.
    """

    name: str
    kind: str
    delay: float
    gap: float
    concurrency: int | None
    set_gap: float | None
    set_concurrency: int | None
    crawl_delay: float | None
    throttle: float | None
    latency: float | None
    last_at: datetime | None
    blocked_until: datetime | None
    blocked_by: str | None
    work: int | None
    is_counted: bool
    holders: tuple[Holder, ...]
    waiting: tuple[Holder, ...]


def listed(
    connection: Connection, *, crawl_id: int | None = None, limit: int = 100
) -> list[LimitState]:
    """Return limits with names, and slots that have work, a holder, or anything set or learned.

    With `crawl_id` those that this crawl's work keeps to, or kept to within 30 days, and of slots
    its work alone; those with as much work follow each other by their last start, the latest first.
    """
    given = {"crawl": crawl_id, "only": None, "limit": limit}
    return [*_states(connection, NAMED, given), *_states(connection, SLOTS, given)]


def state(connection: Connection, found: FoundLimit) -> LimitState:
    """Return one limit as it is kept."""
    given = {"crawl": None, "only": found.id, "limit": 1}
    (one,) = _states(connection, SLOTS if found.kind == "slot" else NAMED, given)
    return one


def _states(
    connection: Connection, statement: TextClause, given: dict[str, Any]
) -> list[LimitState]:
    if statement is SLOTS:
        given = {**given, **_how_far(connection, given)}
    bound = {name: given[name] for name in statement._bindparams}  # noqa: SLF001
    rows = connection.execute(statement, bound).all()
    holders: dict[int, list[Holder]] = defaultdict(list)
    for limit_id, *holder in connection.execute(HOLDERS, {"limits": [row.id for row in rows]}):
        holders[limit_id].append(Holder(*holder))
    return [_limit_state(row, holders[row.id]) for row in rows]


def _how_far(connection: Connection, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return up to how much work of a queue is counted, and what share of all a sample has."""
    queues = connection.execute(QUEUES, {name: given[name] for name in ("crawl", "only")}).scalar()
    return {
        "many": min(counting.MOST, max(counting.LEAST, counting.AT_FIRST // max(queues or 0, 1))),
        "share": counting.sampled_share(connection, "work"),
    }


def _limit_state(row: Row[Any], holders: list[Holder]) -> LimitState:
    terms, columns = StoredTerms(*row[:_OF_TERMS]).in_force, row._asdict()
    del columns["id"]
    is_cut = columns.pop("is_cut")
    columns |= {
        "name": limit_name(row.kind, row.name),
        "delay": terms.mean_delay,
        "gap": terms.gap,
        "concurrency": terms.concurrency,
        "work": counts.rounded(row.work) if is_cut else row.work,
        "is_counted": not is_cut,
        "holders": tuple(holder for holder in holders if holder.units),
        "waiting": tuple(holder for holder in holders if not holder.units),
    }
    return LimitState(**columns)
