"""The end of a crawl that people steer: found by a worker, and never beside somebody who adds.

Whoever adds work shares the crawl's lock, and who ends the crawl has it alone. So either the work
is seen here, or who adds it sees the crawl ended and awakens it (`store.awakening`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import awakening, crawl_events, notify, queues
from scrapy_itemgraph.store.pruning import TRY_OWN_CRAWL
from scrapy_itemgraph.store.registry import left_sweeps, notices, runs
from scrapy_itemgraph.store.sql_conditions import ALL_OPEN_FAILURES, IS_READY, IS_STOPPED

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from sqlalchemy import Connection

MANY = 1000  # from which on what was left is not counted
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)  # when no result had fallen due
_MOST_AWAKENED = 100  # crawls of one look

# What any worker may claim, whatever its code.
OPEN_KINDS = text(f"""
    SELECT k.id FROM tasks t JOIN kinds k ON k.task_id = t.id
    WHERE t.crawl_id = :crawl AND t.is_enabled AND t.is_registered
        AND (t.max_failures IS NULL OR NOT {IS_STOPPED})
""")  # noqa: S608 - our own condition

LIVE_QUEUES = text("SELECT id FROM queues WHERE crawl_id = :crawl AND is_live ORDER BY id")

IS_FINISHED = text("SELECT is_finished FROM runs WHERE crawl_id = :crawl AND number = :run")

_SET_ASIDE = """(SELECT count(*) FROM (
            SELECT FROM tasks t CROSS JOIN LATERAL (
                SELECT FROM results r WHERE r.task_id = t.id AND r.hold = '{hold}'
                LIMIT :most) AS held
            WHERE t.crawl_id = :crawl LIMIT :most) AS counted) AS {hold}"""

LEFT = text(f"""
    SELECT (SELECT count(*) FROM (
            SELECT FROM queues q CROSS JOIN LATERAL (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND w.kind_id = ANY (CAST(:kinds AS int[])) AND {IS_READY}
                LIMIT :most) AS waits
            WHERE q.crawl_id = :crawl LIMIT :most) AS counted) AS blocked,
        (SELECT count(*) FROM (
            SELECT FROM queues q CROSS JOIN LATERAL (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND w.kind_id <> ALL (CAST(:kinds AS int[])) AND {IS_READY}
                LIMIT :most) AS waits
            WHERE q.crawl_id = :crawl LIMIT :most) AS counted) AS disabled,
        (SELECT count(*) FROM (
            SELECT FROM tasks t CROSS JOIN LATERAL ({ALL_OPEN_FAILURES}
                LIMIT :most) AS failures
            WHERE t.crawl_id = :crawl LIMIT :most) AS counted) AS failed,
        {_SET_ASIDE.format(hold="skipped")},
        {_SET_ASIDE.format(hold="stashed")},
        {_SET_ASIDE.format(hold="left")}
""")  # noqa: S608 - our own condition

IS_HELD = text("SELECT state IN ('paused', 'aborted') FROM crawls WHERE id = :crawl")

END = text("""
    UPDATE crawls SET state = 'finished', state_reason = :reason, next_at = NULL, crashes = 0
    WHERE id = :crawl AND state = 'active'
    RETURNING name
""")

UNLOCK_PLACES = text("""
    UPDATE places p SET locked_to = NULL, lock = NULL
    FROM runners r
    WHERE r.id = p.runner_id AND p.locked_to = :crawl AND p.lock = 'until finished'
    RETURNING r.name AS runner, p.number AS place
""")

# Crawls that have queues with work, or had some just now, each looked up after the one before it.
FINISHED_WITH_QUEUES = text("""
    WITH RECURSIVE awake AS (
        SELECT (SELECT min(q.crawl_id) FROM queues q WHERE q.is_live AND q.holder IS NULL) AS id
        UNION ALL
        SELECT (SELECT min(q.crawl_id) FROM queues q
            WHERE q.is_live AND q.holder IS NULL AND q.crawl_id > awake.id)
        FROM awake WHERE awake.id IS NOT NULL)
    SELECT awake.id FROM awake
    WHERE (SELECT c.state FROM crawls c WHERE c.id = awake.id) = 'finished'
    LIMIT :most
""")


def finish(
    connection: Connection, crawl_id: int, number: int, *, worker_id: int, until: datetime
) -> bool:
    """Note that a run is over, and with it the crawl, if nothing is left that anybody may claim.

    `until` is when results must have fallen due that become work. False where somebody commits to
    the crawl just now, so that nothing was noted: look again. Of a crawl that was paused or aborted
    meanwhile nothing is noted either: who has it go on finds the end again, and not another run.
    """
    here = {"crawl": crawl_id, "run": number}
    if not connection.execute(TRY_OWN_CRAWL, here).scalar():
        return False
    kinds = list(connection.execute(OPEN_KINDS, here).scalars())
    is_over = runs.remaining(connection, crawl_id, kinds=kinds, until=until).is_over
    if is_over:
        _park(connection, crawl_id)
    reason = _left(connection, crawl_id, kinds) if is_over else None
    crawl_events.lock_queue(connection)
    if connection.execute(IS_HELD, here).scalar():
        return True
    runs.finish(connection, crawl_id, number)
    if is_over and connection.execute(IS_FINISHED, here).scalar():
        _end(connection, crawl_id, f"worker {worker_id}", reason, run=number)
    return True


def close(
    connection: Connection,
    crawl_id: int,
    number: int,
    reason: str,
    *,
    worker_id: int,
    incremental: Collection[str] | None,
) -> bool:
    """Note that the spider has closed a run, and with it the crawl; what it leaves is swept.

    Pages of `incremental` callbacks (None: all) are not left: they wait for the next start. False
    where the run was over already. Of a crawl that was paused or aborted meanwhile the run alone is
    over.
    """
    crawl_events.lock_queue(connection)
    if not runs.close(connection, crawl_id, number, reason):
        return False
    left_sweeps.open_(connection, crawl_id, number, incremental=incremental)
    said = f"its spider closed the run: {reason}"
    _end(connection, crawl_id, f"worker {worker_id}", said, run=number)
    notify.tell_processes(connection, crawl_id)
    return True


def _park(connection: Connection, crawl_id: int) -> None:
    """Park the queues without work, so that who adds some wakes one."""
    live = list(connection.execute(LIVE_QUEUES, {"crawl": crawl_id}).scalars())
    if live:
        queues.park(connection, crawl_id, live)


def _left(connection: Connection, crawl_id: int, kinds: list[int]) -> str | None:
    """Return what is left that nobody may claim now; None where nothing is."""
    given = {"crawl": crawl_id, "kinds": kinds, "most": MANY}
    row = connection.execute(LEFT, given).one()
    parts = {
        "of websites that are blocked": row.blocked,
        "of tasks that are disabled, stopped or gone": row.disabled,
        f"failure{'' if row.failed == 1 else 's'} open": row.failed,
        "skipped": row.skipped,
        "stashed": row.stashed,
        "left by the spider": row.left,
    }
    said = [f"{_number(count)} {what}" for what, count in parts.items() if count]
    return f"left: {', '.join(said)}" if said else None


def _number(count: int) -> str:
    return f"{MANY:,} or more" if count >= MANY else f"{count:,}"


def _end(connection: Connection, crawl_id: int, by: str, reason: str | None, **detail: Any) -> None:
    name = connection.execute(END, {"crawl": crawl_id, "reason": reason}).scalar()
    if name is None:  # paused, say: a person's wish stands
        return
    crawl_events.note(
        connection, crawl_id, by, Event.FINISHED, state=State.FINISHED, reason=reason, **detail
    )
    for row in connection.execute(UNLOCK_PLACES, {"crawl": crawl_id}).all():
        crawl_events.note(
            connection, crawl_id, by, Event.UNLOCKED, runner=row.runner, place=row.place
        )
    notices.write(connection, crawl_id, Kind.FINISHED, crawl=name, reason=reason, **detail)


def awaken_missed(connection: Connection) -> int:
    """Awaken crawls at their end that have work all the same; return how many these were.

    Work that comes in awakens its crawl at once; this finds what came free otherwise: a website
    was unblocked, a task enabled. Results that fall due are none yet. To be called each minute.
    """
    engine.hot_path(connection)
    found = list(connection.execute(FINISHED_WITH_QUEUES, {"most": _MOST_AWAKENED}).scalars())
    return awakening.awaken(connection, [one for one in found if _has_work(connection, one)])


def _has_work(connection: Connection, crawl_id: int) -> bool:
    kinds = list(connection.execute(OPEN_KINDS, {"crawl": crawl_id}).scalars())
    return runs.remaining(connection, crawl_id, kinds=kinds, until=_LONG_AGO).claimable
