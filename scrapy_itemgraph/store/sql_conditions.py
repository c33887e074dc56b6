"""Conditions in SQL: when a process is dead, work ready, a task stopped, a result fresh or due.

Statements that ask include them, so that there is one answer everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.moments import LATEST

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult

# Whether a worker may claim work and have limits: nobody who was given up for dead or has stopped,
# for nobody would take it over. Whoever buries it waits for us, or we for them.
LIVES = text("""
    SELECT p.id FROM processes p WHERE p.id = :worker AND p.stopped_at IS NULL FOR SHARE
""")

# Whether nobody holds the lock of a process `p`. Its holder shares it; to see whether the lock is
# free, this takes it alone until the end of the transaction.
LOCK_IS_FREE = "pg_try_advisory_xact_lock(CAST('processes'::regclass::oid AS int), p.id)"

# When the server began without anybody's lock: when it started; or, if it was a standby that has
# been promoted, after the last transaction of the server that had the locks.
LOCKLESS_AT = "greatest(pg_postmaster_start_time(), pg_last_xact_replay_timestamp())"

# Whether a process `p` is dead, of whatever kind it is. A free lock counts only if the process took
# it on this server, since the server started.
_IS_DEAD = """(p.stopped_at IS NOT NULL OR {lease_until} < {now}
            OR (coalesce(p.locked_at > {lockless_at}, false) AND {lock_is_free}))"""
IS_DEAD = _IS_DEAD.format(
    lease_until="p.lease_until",
    now="clock_timestamp()",
    lockless_at=LOCKLESS_AT,
    lock_is_free=LOCK_IS_FREE,
)

# The same, for who takes over what the dead had: leases that seem to be over since the server's
# clock jumped ahead, or nothing was heard of it, for `untrusted` seconds are not. Nobody could
# renew one while the server was down, so each stands as long anew from when it started.
IS_SURELY_DEAD = _IS_DEAD.format(
    lease_until="""greatest(p.lease_until,
                pg_postmaster_start_time() + (p.lease_until - p.seen_at))""",
    now="clock_timestamp() - make_interval(secs => :untrusted)",
    lockless_at=LOCKLESS_AT,
    lock_is_free=LOCK_IS_FREE,
)

# Whether depths of a crawl's pages are still to be worked out, and work is to follow from that.
HAS_DEPTH_WORK = """(EXISTS (SELECT FROM depth_work x WHERE x.crawl_id = :crawl)
            OR EXISTS (SELECT FROM depth_sweeps x WHERE x.crawl_id = :crawl))"""

# Whether PostgreSQL can read the data of an item `i`: a NUL, say, it cannot.
IS_READABLE = r"""(strpos(CAST(i.data AS text), '\u') = 0
                OR CAST(i.data AS text) !~ '\\u(0000|[dD][89a-fA-F])')"""

# Whether work `w` is neither claimed nor put off to a later time.
IS_READY = "w.token IS NULL AND w.not_before IS NULL"

# The same, and workers have not died on it: it may run beside other work.
IS_READY_BESIDE_OTHERS = f"{IS_READY} AND NOT w.is_suspect"

# The same, and two workers died on it, or stalled: it runs alone.
IS_READY_ALONE = f"{IS_READY} AND w.is_suspect"

# Whether a failure `f` is of an item that calls for the task `t`. It is asked of each failure
# (OFFSET 0): a planner might begin with all items that have the tag.
IS_CALLED_FOR = """EXISTS (
                        SELECT FROM tags g JOIN task_tags tt
                            ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
                        WHERE g.item_id = f.item_id AND tt.task_id = t.id OFFSET 0)"""

# Open failures `f` of a task `t`: false to false those that are no refusals, false to true all; a
# condition may be put in. Compared as rows, and in this order, which the index of open ones alone
# has: a planner that is asked for an equal task may look through the failures of all tasks.
OPEN_FAILURES = """
                SELECT f.* FROM failures f
                WHERE f.handled_at IS NULL
                    AND (f.task_id, f.is_refusal) >= (t.id, {first})
                    AND (f.task_id, f.is_refusal) <= (t.id, {last})
                    AND {condition}
                ORDER BY f.task_id, f.is_refusal, f.id"""
ALL_OPEN_FAILURES = OPEN_FAILURES.format(first=False, last=True, condition=True)

# Those that count for its `max_failures`: refusals do not, nor what is of items that do not call
# for the task any more.
COUNTED_FAILURES = OPEN_FAILURES.format(first=False, last=False, condition=IS_CALLED_FOR)

# Whether a task `t` has as many of them as stop it; unknown where nothing does.
IS_STOPPED = f"""t.max_failures <= (
            SELECT count(*) FROM ({COUNTED_FAILURES}
                LIMIT greatest(t.max_failures, 0)) AS counted)"""  # noqa: S608 - our own conditions

# Whether a pair is held whose result `r` is no success: by a failure or refusal, or given up.
IS_HELD = "r.is_held AND NOT r.is_successful"

# Whether it is held because its page said that it is no more, which is no failure.
IS_GONE = "r.is_held AND r.is_successful"

# Whether a result `r` of a task `t` stands, complete and not held, but for its expiry.
STANDS = """r.completed_at IS NOT NULL AND NOT r.is_held
                AND r.task_version = t.version AND r.invalidated_at IS NULL"""

# Whether it stands and has not expired, as far as that was noticed: `due_at` goes then.
IS_FRESH = f"""{STANDS}
                AND (r.expires_at IS NULL OR r.due_at IS NOT NULL)"""

# Whether a complete result `r` stands and never expires: an index has these by task and version.
IS_LASTING = """r.completed_at IS NOT NULL AND r.expires_at IS NULL
                AND r.invalidated_at IS NULL AND NOT r.is_held"""

# Whether it has no moment to come at which it expires, and does not last: the rest.
IS_LAPSED = """r.completed_at IS NOT NULL AND r.due_at IS NULL
                AND (r.expires_at IS NOT NULL OR r.invalidated_at IS NOT NULL OR r.is_held)"""

# When a complete result `r` of a task `t` without a schedule falls due; null: never.
# `model.due_times.next_due` says the same, for one result; this is for statements that may be about
# ten million.
NEXT_DUE = f"""CASE WHEN t.ttl IS NOT NULL
        THEN least(r.completed_at + t.ttl, timestamptz '{LATEST.isoformat()}') END"""


# At which times of the clock results of a task `t` expire; null: by its time to live.
SCHEDULE = "(SELECT ts.schedule FROM task_schedules ts WHERE ts.task_id = t.id)"


def seconds_until(moment: str) -> str:
    """Return in how many seconds a moment is; infinite for one that is.

    Infinite moments themselves cannot be subtracted before PostgreSQL 17.
    """
    return f"CAST(extract(epoch FROM {moment}) - extract(epoch FROM clock_timestamp()) AS float8)"


def seconds_since(moment: str) -> str:
    """Return how many seconds ago a moment was, likewise."""
    return f"CAST(extract(epoch FROM clock_timestamp()) - extract(epoch FROM {moment}) AS float8)"


def lives(connection: Connection, worker_id: int) -> bool:
    """Tell whether a worker may claim work and have limits, and keep it so until the end."""
    return send_lives(connection, worker_id).first() is not None


def send_lives(connection: Connection, worker_id: int) -> CursorResult[*tuple[Any, ...]]:
    """Ask for the same; the answer has a row if it lives."""
    return connection.execute(LIVES, {"worker": worker_id})


def is_stale(result: str = "r", task: str = "t") -> str:
    """Return whether a complete result must be made again; null where there is no result."""
    return f"""({result}.task_version <> {task}.version
                OR {result}.invalidated_at IS NOT NULL
                OR ({result}.expires_at IS NOT NULL AND {result}.due_at IS NULL))"""
