"""What people see of limits: how each is kept, who has it, and who waits for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.limit_names import limit_name
from scrapy_itemgraph.store.limits.sharing import STORED_TERMS, StoredTerms
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row, TextClause

    from scrapy_itemgraph.store.admin.limit_names import FoundLimit

_OF_TERMS = len(fields(StoredTerms))
_OF_LIMIT = f"""
    {STORED_TERMS}, l.throttle, l.latency, l.last_at,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_until END AS blocked_until,
    CASE WHEN l.blocked_until > clock_timestamp() THEN l.blocked_by END AS blocked_by
"""

# Slots that matter now, those with the most work first; of one crawl all that it had work for: a
# queue is kept for 30 days. Work is what a claim could take, apart from limits; per queue it is
# counted up to a number that nobody reads to the end.
SLOTS = text(f"""
    WITH waiting AS MATERIALIZED (
        SELECT q.slot_id, sum(head.number) AS number
        FROM queues q CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND {IS_READY_BESIDE_OTHERS}
                LIMIT :many) AS counted) AS head
        WHERE (CAST(:crawl AS int) IS NULL OR q.crawl_id = :crawl)
            AND (CAST(:only AS int) IS NULL OR q.slot_id = :only)
        GROUP BY q.slot_id)
    SELECT {_OF_LIMIT}, CAST(least(coalesce(w.number, 0), :many) AS bigint) AS work
    FROM limits l LEFT JOIN waiting w ON w.slot_id = l.id
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
    SELECT {_OF_LIMIT}, CAST(NULL AS bigint) AS work
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
    some shorter; `work` counts what waits in a slot, up to 100,000: then `is_counted` is false.
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
    given = {"crawl": crawl_id, "only": None, "many": counting.MOST, "limit": limit}
    return [*_states(connection, NAMED, given), *_states(connection, SLOTS, given)]


def state(connection: Connection, found: FoundLimit) -> LimitState:
    """Return one limit as it is kept."""
    given = {"crawl": None, "only": found.id, "many": counting.MOST, "limit": 1}
    (one,) = _states(connection, SLOTS if found.kind == "slot" else NAMED, given)
    return one


def _states(
    connection: Connection, statement: TextClause, given: dict[str, Any]
) -> list[LimitState]:
    bound = {name: given[name] for name in statement._bindparams}  # noqa: SLF001
    rows = connection.execute(statement, bound).all()
    holders: dict[int, list[Holder]] = defaultdict(list)
    for limit_id, *holder in connection.execute(HOLDERS, {"limits": [row.id for row in rows]}):
        holders[limit_id].append(Holder(*holder))
    return [_limit_state(row, holders[row.id]) for row in rows]


def _limit_state(row: Row[Any], holders: list[Holder]) -> LimitState:
    terms, columns = StoredTerms(*row[:_OF_TERMS]).in_force, row._asdict()
    del columns["id"]
    columns |= {
        "name": limit_name(row.kind, row.name),
        "delay": terms.mean_delay,
        "gap": terms.gap,
        "concurrency": terms.concurrency,
        "is_counted": row.work is None or row.work < counting.MOST,
        "holders": tuple(holder for holder in holders if holder.units),
        "waiting": tuple(holder for holder in holders if not holder.units),
    }
    return LimitState(**columns)
