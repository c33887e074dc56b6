"""Pruning: rows that nobody needs any more are deleted, at most a thousand in a transaction.

Whichever worker has time does it, one at a time; nobody is waited for, and what others have locked
is left for the next time. What goes, and when, is a table in the docs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.cookies import MOST_COOKIES, RANKED

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection, TextClause

STEP = 1000
MOST_RUNS = 100  # of a crawl, that are kept
MOST_EVENTS = 1000  # likewise
LOCK = int.from_bytes(b"itgprune", "big")  # the advisory lock of whoever prunes

TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock)")

AN_HOUR_AGO = "(SELECT clock_timestamp()) - interval '1 hour'"
A_DAY_AGO = "(SELECT clock_timestamp()) - interval '1 day'"
A_MONTH_AGO = "(SELECT clock_timestamp()) - interval '30 days'"
A_YEAR_AGO = "(SELECT clock_timestamp()) - interval '1 year'"

# Domains with more cookies than a claim ever reads.
CROWDED = text("""
    SELECT crawl_id, jar, domain FROM cookies
    GROUP BY crawl_id, jar, domain HAVING count(*) > :most LIMIT 1
""")
SURPLUS = text(f"""
    DELETE FROM cookies WHERE ctid = ANY (ARRAY(
        SELECT c.ctid FROM cookies c
        WHERE c.crawl_id = :crawl AND c.jar = :jar AND c.domain = :domain
        ORDER BY {RANKED} OFFSET :most LIMIT :limit
        FOR UPDATE SKIP LOCKED))
""")  # noqa: S608 - our own order

# A commit that found a queue is still to put its work there; while one runs, no queue is deleted.
# One of a frontier stays, empty as it may be: with it its delay, block and limit would go.
TRY_OWN_CRAWL = text(
    "SELECT pg_try_advisory_xact_lock(CAST('crawls'::regclass::oid AS int), :crawl)"
)
IDLE_QUEUES = text("""
    SELECT q.id FROM queues q
    WHERE q.crawl_id = :crawl AND NOT q.is_live AND q.holder IS NULL
        AND q.next_at < (SELECT clock_timestamp()) - interval '30 days'
        AND q.id NOT IN (SELECT w.queue_id FROM work w WHERE w.crawl_id = :crawl)
        AND NOT EXISTS (SELECT FROM frontier_queues f WHERE f.queue_id = q.id)
    LIMIT :limit
""")
# After the lock and in a statement of its own: it must see what was committed meanwhile.
QUEUES = text("""
    DELETE FROM queues WHERE ctid = ANY (ARRAY(
        SELECT q.ctid FROM queues q
        WHERE q.id = ANY (CAST(:queues AS int[])) AND NOT q.is_live AND q.holder IS NULL
            AND q.id NOT IN (
                SELECT w.queue_id FROM work w WHERE w.queue_id = ANY (CAST(:queues AS int[])))
            AND NOT EXISTS (SELECT FROM frontier_queues f WHERE f.queue_id = q.id)
        FOR UPDATE SKIP LOCKED))
""")


# Oldest first; what a feed has not written stays, and what one made whole may need again.
JOURNAL = text("""
    DELETE FROM journal WHERE id IN (
        SELECT id FROM (
            SELECT j.id, j.created_at FROM journal j WHERE j.crawl_id = :crawl
            ORDER BY j.id LIMIT :limit) AS oldest
        WHERE oldest.created_at < clock_timestamp() - CAST(:period AS interval)
            AND NOT EXISTS (SELECT FROM feeds f JOIN feed_items i
                ON i.feed_id = f.id AND i.journal_id = oldest.id WHERE f.crawl_id = :crawl))
""")


# Those before the last so many of the crawl.
EVENTS = text("""
    DELETE FROM crawl_events WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM crawl_events e
        WHERE e.crawl_id = :crawl AND e.id <= (
            SELECT o.id FROM crawl_events o WHERE o.crawl_id = :crawl
            ORDER BY o.id DESC OFFSET :most LIMIT 1)
        ORDER BY e.id LIMIT :limit
        FOR UPDATE SKIP LOCKED))
""")


@dataclass(frozen=True, slots=True)
class Rule:
    """A table, and which of its rows `x` nobody needs; in their order, if any."""

    table: str
    unneeded: str

    @property
    def statement(self) -> TextClause:
        """What deletes a step of them."""
        return text(f"""
            DELETE FROM {self.table} WHERE ctid = ANY (ARRAY(
                SELECT x.ctid FROM {self.table} x {self.unneeded}
                LIMIT :limit
                FOR UPDATE OF x SKIP LOCKED))
        """)  # noqa: S608 - our own conditions


RULES = (
    # A cookie that expired or was deleted is kept for a day, so that other processes drop it too.
    Rule("cookies", f"WHERE x.expires_at < {A_DAY_AGO} ORDER BY x.expires_at"),
    Rule("spider_state", f"WHERE x.value IS NULL AND x.changed_at < {A_DAY_AGO}"),
    Rule("commit_tokens", f"WHERE x.committed_at < {A_DAY_AGO}"),
    Rule("failures", f"WHERE x.handled_at < {A_MONTH_AGO} ORDER BY x.handled_at"),
    # The highest number of a crawl stays, because the next group gets the one after it.
    Rule(
        "failure_groups",
        f"""WHERE x.last_seen < {A_YEAR_AGO} AND EXISTS (SELECT FROM failure_groups o
                WHERE o.crawl_id = x.crawl_id AND o.number > x.number)
            ORDER BY x.last_seen""",
    ),
    Rule("task_minutes", f"WHERE x.minute < {A_DAY_AGO} ORDER BY x.minute"),
    Rule("slot_latencies", f"WHERE x.told_at < {A_DAY_AGO} ORDER BY x.told_at"),
    Rule("limit_minutes", f"WHERE x.minute < {AN_HOUR_AGO} ORDER BY x.minute"),
    # What a worker that is gone had of limits that nobody has asked for since.
    Rule(
        "holdings",
        f"""LEFT JOIN processes p ON p.id = x.worker_id
            WHERE p.id IS NULL OR p.stopped_at < {A_DAY_AGO}""",
    ),
    Rule("jobs", f"WHERE x.ended_at < {A_MONTH_AGO} ORDER BY x.ended_at"),
    Rule("crawl_events", f"WHERE x.crawl_id IS NULL AND x.at < {A_MONTH_AGO} ORDER BY x.id"),
    Rule(
        "notices",
        f"WHERE x.created_at < {A_MONTH_AGO} AND x.holds IS NOT TRUE ORDER BY x.created_at",
    ),
    Rule("runs", f"JOIN crawls c ON c.id = x.crawl_id WHERE x.number <= c.run - {MOST_RUNS}"),
    # Not the workers of a run that is not over: a start looks at them. Nobody is given their
    # numbers again.
    Rule(
        "processes",
        f"""LEFT JOIN crawls c ON c.id = x.crawl_id
            LEFT JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
            WHERE x.stopped_at < {A_MONTH_AGO}
                AND (c.id IS NULL OR r.is_finished OR x.started_at < r.started_at)
                AND NOT EXISTS (SELECT FROM holdings h WHERE h.worker_id = x.id)
                AND NOT EXISTS (SELECT FROM work k WHERE k.worker_id = x.id AND k.token IS NOT NULL)
                AND NOT EXISTS (SELECT FROM logins l WHERE l.worker_id = x.id)
            ORDER BY x.id""",  # noqa: S608 - our own conditions
    ),
)


def prune(connection: Connection, rule: Rule) -> int:
    """Delete a step of what a rule is about, in the whole database; return how many rows."""
    if not _is_mine(connection):
        return 0
    engine.hot_path(connection)
    return connection.execute(rule.statement, {"limit": STEP}).rowcount


def prune_surplus(connection: Connection) -> int:
    """Delete a step of the cookies of one domain that no claim reads, there are so many."""
    if not _is_mine(connection):
        return 0
    row = connection.execute(CROWDED, {"most": MOST_COOKIES}).first()
    if row is None:
        return 0
    given = {"crawl": row.crawl_id, "jar": row.jar, "domain": row.domain}
    given |= {"most": MOST_COOKIES, "limit": STEP}
    return connection.execute(SURPLUS, given).rowcount


def prune_queues(connection: Connection, crawl_id: int) -> int:
    """Delete a step of a crawl's queues that have had no work for long; none while it commits."""
    if not _is_mine(connection):
        return 0
    given = {"crawl": crawl_id, "limit": STEP}
    idle = list(connection.execute(IDLE_QUEUES, given).scalars())
    if not idle or not connection.execute(TRY_OWN_CRAWL, {"crawl": crawl_id}).scalar_one():
        return 0
    return connection.execute(QUEUES, {"queues": idle}).rowcount


def prune_journal(connection: Connection, crawl_id: int, period: timedelta) -> int:
    """Delete a step of the scraped items that a crawl has kept for longer than a period."""
    if not _is_mine(connection):
        return 0
    given = {"crawl": crawl_id, "period": period, "limit": STEP}
    return connection.execute(JOURNAL, given).rowcount


def prune_events(connection: Connection, crawl_id: int) -> int:
    """Delete a step of what happened to a crawl, but for the last thousand events of it."""
    if not _is_mine(connection):
        return 0
    engine.hot_path(connection)
    given = {"crawl": crawl_id, "most": MOST_EVENTS, "limit": STEP}
    return connection.execute(EVENTS, given).rowcount


def _is_mine(connection: Connection) -> bool:
    is_mine: bool = connection.execute(TRY_LOCK, {"lock": LOCK}).scalar_one()
    return is_mine
