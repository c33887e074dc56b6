"""Claims: work taken by workers, and given back.

All functions take a connection and never commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph import attempts, refresh
from scrapy_itemgraph.types import Claim, ItemSnapshot, Outcome

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

SUSPECT_DEATHS = 2
_ROUNDS = 10

# Whether a worker may claim: nobody who was given up for dead or has stopped, for nobody would take
# its claims over. Whoever buries it waits for us, or we for them.
LIVES = text("""
    SELECT w.id FROM workers w WHERE w.id = :worker AND w.stopped_at IS NULL FOR SHARE
""")

# Queues whose turn it is, the first of them first; a single one is not moved on. The time stands in
# a subquery because a volatile function is no bound of an index scan, here and below.
TURNS = text("""
    SELECT q.id FROM queues q
    WHERE q.crawl_id = :crawl AND q.is_live AND q.next_at <= (SELECT clock_timestamp())
    ORDER BY q.next_at
    LIMIT :limit
""")

# What this worker may claim now: kinds of its tasks, declared as it knows them, not stopped.
OPEN_KINDS = text("""
    SELECT k.id, k.task_id,
        EXISTS (SELECT FROM tasks x WHERE x.crawl_id = :crawl AND x.is_item_exclusive
            AND x.is_registered) AS any_exclusive,
        t.is_item_exclusive
    FROM unnest(CAST(:tasks AS int[]), CAST(:definitions AS uuid[])) AS mine(task_id, definition)
    JOIN tasks t ON t.id = mine.task_id AND t.definition = mine.definition
    JOIN kinds k ON k.task_id = t.id
    WHERE t.is_enabled AND t.is_registered
        AND (t.max_failures IS NULL OR t.max_failures > (
            SELECT count(*) FROM (
                SELECT FROM failures f
                WHERE f.task_id = t.id AND f.handled_at IS NULL AND NOT f.is_refusal
                    AND EXISTS (
                        SELECT FROM tags g JOIN task_tags tt
                            ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
                        WHERE g.item_id = f.item_id AND tt.task_id = t.id)
                LIMIT t.max_failures) AS counted))
""")

# The first work of each (queue, kind), locked.
HEADS = text("""
    SELECT w.item_id, w.task_id, w.queue_id, w.is_stale, w.nice, w.seq, w.tries, w.deaths
    FROM unnest(CAST(:queues AS int[])) AS turn(queue_id)
    CROSS JOIN unnest(CAST(:kinds AS int[])) AS open(kind_id)
    CROSS JOIN LATERAL (
        SELECT * FROM work
        WHERE work.queue_id = turn.queue_id AND work.kind_id = open.kind_id
            AND work.token IS NULL AND work.not_before IS NULL AND work.deaths < 2
        ORDER BY work.is_stale, work.nice, work.seq
        LIMIT :share
        FOR UPDATE SKIP LOCKED) AS w
""")

# The same where a task wants its items for itself: passes over what may not run beside claims that
# stand, so that it does not fill the limit. Whether that is so is decided later, after locks.
HEADS_BESIDE_CLAIMS = text("""
    SELECT w.item_id, w.task_id, w.queue_id, w.is_stale, w.nice, w.seq, w.tries, w.deaths
    FROM unnest(CAST(:queues AS int[])) AS turn(queue_id)
    CROSS JOIN unnest(CAST(:kinds AS int[]), CAST(:alone AS bool[])) AS open(kind_id, wants_alone)
    CROSS JOIN LATERAL (
        SELECT * FROM work
        WHERE work.queue_id = turn.queue_id AND work.kind_id = open.kind_id
            AND work.token IS NULL AND work.not_before IS NULL AND work.deaths < 2
            AND NOT EXISTS (
                SELECT FROM work c JOIN tasks t ON t.id = c.task_id
                WHERE c.item_id = work.item_id AND c.token IS NOT NULL
                    AND (open.wants_alone OR t.is_item_exclusive))
        ORDER BY work.is_stale, work.nice, work.seq
        LIMIT :share
        FOR UPDATE SKIP LOCKED) AS w
""")

# The first work that two workers died on.
SUSPECT = text("""
    SELECT w.item_id, w.task_id, w.queue_id, w.is_stale, w.nice, w.seq, w.tries, w.deaths
    FROM work w
    WHERE w.crawl_id = :crawl AND w.kind_id = ANY (CAST(:kinds AS int[]))
        AND w.token IS NULL AND w.not_before IS NULL AND w.deaths >= 2
    ORDER BY w.is_stale, w.nice, w.seq
    LIMIT 1
    FOR UPDATE SKIP LOCKED
""")

# Items that nobody else is deciding about, for tasks that want an item for themselves.
FREE_ITEMS = text("""
    SELECT i.id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    FOR NO KEY UPDATE OF i SKIP LOCKED
""")

# Claims that stand on these items; read after FREE_ITEMS, in a statement of its own.
STANDING_CLAIMS = text("""
    SELECT w.item_id, bool_or(t.is_item_exclusive) AS is_exclusive
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN work w ON w.item_id = wanted.id AND w.token IS NOT NULL
    JOIN tasks t ON t.id = w.task_id
    GROUP BY w.item_id
""")

TAKE = text("""
    UPDATE work w
    SET token = :token, worker_id = :worker, claimed_at = clock_timestamp()
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS taken(item_id, task_id)
    WHERE w.item_id = taken.item_id AND w.task_id = taken.task_id
    RETURNING w.item_id, w.task_id, w.claimed_at, w.is_refiled, w.request,
        (SELECT s.name FROM queues q JOIN slots s ON s.id = q.slot_id
            WHERE q.id = w.queue_id) AS slot,
        (SELECT r.invalidated_at FROM results r
            WHERE r.item_id = w.item_id AND r.task_id = w.task_id) AS invalidated_at
""")

# The items of claims, as they are committed.
SNAPSHOTS = text("""
    SELECT i.id, i.name, i.data, i.created_by, i.created_at, i.updated_at,
        ARRAY(SELECT a.name FROM aliases a WHERE a.item_id = i.id ORDER BY a.name) AS names,
        (SELECT json_object_agg(g.tag_name, g.value) FROM tags g WHERE g.item_id = i.id) AS tags
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
""")

# Moves the turn of queues on; one that another claim moves just now is left to it.
MOVE_TURNS = text("""
    UPDATE queues SET next_at = clock_timestamp() WHERE ctid = ANY (ARRAY(
        SELECT q.ctid FROM unnest(CAST(:queues AS int[])) AS wanted(id)
        JOIN queues q ON q.id = wanted.id
        FOR NO KEY UPDATE OF q SKIP LOCKED))
""")

# Queues that seem empty and that nobody is putting work into.
LOCK_EMPTY = text("""
    SELECT q.id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    JOIN queues q ON q.id = wanted.id
    FOR UPDATE OF q SKIP LOCKED
""")

# Tasks that cannot be claimed; one that somebody is opening just now is not among them, and who
# opens one later waits for us, and then wakes its queues.
CLOSED_TASKS = text("""
    SELECT t.id FROM tasks t
    WHERE t.crawl_id = :crawl AND NOT (t.is_enabled AND t.is_registered)
    FOR SHARE SKIP LOCKED
""")

# Parks queues without work of an open kind; looks again, in a statement of its own.
PARK = text("""
    UPDATE queues q SET is_live = false
    FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    WHERE q.id = wanted.id AND NOT EXISTS (
        SELECT FROM tasks t JOIN kinds k ON k.task_id = t.id
        CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = q.id AND w.kind_id = k.id
                AND w.token IS NULL AND w.not_before IS NULL AND w.deaths < 2
            LIMIT 1) AS first
        WHERE t.crawl_id = q.crawl_id AND t.id <> ALL (CAST(:closed AS int[])))
""")

# Takes the token off claims that are given back or tried again; the fence is in the row itself.
GIVE_BACK = text("""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL,
        tries = w.tries + ended.tries, not_before = ended.not_before
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]),
        CAST(:tries AS int[]), CAST(:not_before AS timestamptz[]))
        AS ended(item_id, task_id, token, tries, not_before)
    WHERE w.item_id = ended.item_id AND w.task_id = ended.task_id AND w.token = ended.token
    RETURNING w.item_id, w.task_id, w.queue_id
""")

REFILE = text("""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL, queue_id = :queue, is_refiled = true
    WHERE w.item_id = :item AND w.task_id = :task AND w.token = :token
""")


DROP = text("""
    DELETE FROM work w
    USING unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
    WHERE w.item_id = gone.item_id AND w.task_id = gone.task_id
""")


# Waits for a claim of this worker that is under way, and holds further ones off.
HOLD_WORKER = text("SELECT w.id FROM workers w WHERE w.id = :worker FOR NO KEY UPDATE")

UNCLAIM = text("""
    UPDATE work w SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE w.worker_id = :worker AND w.token = :token
    RETURNING w.item_id, w.queue_id
""")

RELEASE_ALL = text("""
    UPDATE work w SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE w.worker_id = :worker AND w.token IS NOT NULL
    RETURNING w.item_id, w.queue_id
""")


def claim(
    connection: Connection,
    *,
    crawl_id: int,
    worker_id: int,
    tasks: Mapping[int, tuple[str, str, uuid.UUID]],
    token: uuid.UUID,
    limit: int,
    alone: bool = False,
) -> list[Claim]:
    """Claim up to `limit` pieces of work, round robin over the crawl's queues.

    `tasks` maps the ids of the worker's tasks to (name, version, definition). With `alone`, one
    piece that two workers died on. `token` is a new one for each call.
    """
    if connection.execute(LIVES, {"worker": worker_id}).first() is None:
        return []
    kinds = open_kinds(connection, crawl_id, tasks)
    if not kinds:
        return []
    if alone:
        found = connection.execute(
            SUSPECT, {"crawl": crawl_id, "kinds": [kind.id for kind in kinds]}
        ).all()
    else:
        found = _find(connection, crawl_id, kinds, limit)
    if any(kind.any_exclusive for kind in kinds):
        found = _exclusive(connection, found, _exclusive_tasks(kinds))
    return _take(connection, found, worker_id, token, tasks)


def unclaim(connection: Connection, token: uuid.UUID, worker_id: int) -> int:
    """Undo a claim whose answer was lost; return how much it had taken."""
    connection.execute(HOLD_WORKER, {"worker": worker_id})
    rows = connection.execute(UNCLAIM, {"worker": worker_id, "token": token}).all()
    reopen(connection, [row.item_id for row in rows], [row.queue_id for row in rows])
    return len(rows)


def open_kinds(
    connection: Connection, crawl_id: int, tasks: Mapping[int, tuple[str, str, uuid.UUID]]
) -> Sequence[Row[Any]]:
    """Return the kinds of work that a worker with these tasks may claim now."""
    definitions = [definition for _, _, definition in tasks.values()]
    given = {"crawl": crawl_id, "tasks": list(tasks), "definitions": definitions}
    return connection.execute(OPEN_KINDS, given).all()


def _find(
    connection: Connection, crawl_id: int, kinds: Sequence[Row[Any]], limit: int
) -> Sequence[Row[Any]]:
    """Return locked candidates in the order in which they should start."""
    looked_for = max(limit, 2)  # A single queue is told from the first of several.
    for _ in range(_ROUNDS):
        turns = connection.execute(TURNS, {"crawl": crawl_id, "limit": looked_for})
        live = turns.scalars().all()
        if not live:
            return []
        queues = live[:limit]
        found = _first(connection, queues, kinds, -(-limit // len(queues)))[:limit]
        used = {row.queue_id for row in found}
        empty = [queue for queue in queues if queue not in used]
        if empty:
            _park(connection, crawl_id, empty)
        if len(live) > 1:
            connection.execute(MOVE_TURNS, {"queues": queues})
        if found or len(live) < looked_for:
            return found
    return []


def _first(
    connection: Connection, queues: Sequence[int], kinds: Sequence[Row[Any]], share: int
) -> list[Row[Any]]:
    """Return the first work of queues, none that may not run beside claims or what goes before."""
    given = {"queues": queues, "kinds": [kind.id for kind in kinds], "share": share}
    if not any(kind.any_exclusive for kind in kinds):
        return _round_robin(connection.execute(HEADS, given).all(), queues, share)
    given["alone"] = [kind.is_item_exclusive for kind in kinds]
    heads = connection.execute(HEADS_BESIDE_CLAIMS, given).all()
    # Of each kind, so that what is dropped leaves enough.
    ordered = _round_robin(heads, queues, share * len(kinds))
    return _beside(ordered, _exclusive_tasks(kinds), {})


def _round_robin(heads: Sequence[Row[Any]], queues: Sequence[int], rounds: int) -> list[Row[Any]]:
    """Order candidates: each queue's first, then each queue's second, and so on."""
    by_queue: dict[int, list[Row[Any]]] = {queue: [] for queue in queues}
    for row in sorted(heads, key=lambda row: (row.is_stale, row.nice, row.seq)):
        by_queue[row.queue_id].append(row)
    return [rows[turn] for turn in range(rounds) for rows in by_queue.values() if turn < len(rows)]


def _park(connection: Connection, crawl_id: int, queues: Sequence[int]) -> None:
    locked = list(connection.execute(LOCK_EMPTY, {"queues": list(queues)}).scalars())
    if locked:
        closed = list(connection.execute(CLOSED_TASKS, {"crawl": crawl_id}).scalars())
        connection.execute(PARK, {"queues": locked, "closed": closed})


def _exclusive(
    connection: Connection, found: Sequence[Row[Any]], exclusive: Collection[int]
) -> list[Row[Any]]:
    """Keep candidates that do not run beside others of their item where one wants it alone."""
    items = sorted({row.item_id for row in found})
    free = set(connection.execute(FREE_ITEMS, {"items": items}).scalars())
    claimed = {
        row.item_id: row.is_exclusive
        for row in connection.execute(STANDING_CLAIMS, {"items": items})
    }
    return _beside([row for row in found if row.item_id in free], exclusive, claimed)


def _beside(
    rows: Iterable[Row[Any]], exclusive: Collection[int], claimed: dict[int, bool]
) -> list[Row[Any]]:
    """Keep rows that may run beside the claims of their items, by item, and beside each other."""
    kept = []
    for row in rows:
        wants_alone = row.task_id in exclusive
        others = claimed.get(row.item_id)
        if others is None or not (others or wants_alone):
            kept.append(row)
            claimed[row.item_id] = wants_alone
    return kept


def _exclusive_tasks(kinds: Iterable[Row[Any]]) -> set[int]:
    return {kind.task_id for kind in kinds if kind.is_item_exclusive}


def _take(
    connection: Connection,
    found: Sequence[Row[Any]],
    worker_id: int,
    token: uuid.UUID,
    tasks: Mapping[int, tuple[str, str, uuid.UUID]],
) -> list[Claim]:
    if not found:
        return []
    pairs = {"items": [r.item_id for r in found], "tasks": [r.task_id for r in found]}
    rows = connection.execute(TAKE, {"token": token, "worker": worker_id, **pairs}).all()
    taken = {(row.item_id, row.task_id): row for row in rows}
    items = snapshots(connection, pairs["items"])
    gone = [row for row in found if row.item_id not in items]
    if gone:
        connection.execute(
            DROP, {"items": [r.item_id for r in gone], "tasks": [r.task_id for r in gone]}
        )
    return [
        Claim(
            item_id=row.item_id,
            task_id=row.task_id,
            task=tasks[row.task_id][0],
            version=tasks[row.task_id][1],
            token=token,
            attempt=row.tries + 1,
            claimed_at=taken[row.item_id, row.task_id].claimed_at,
            slot=taken[row.item_id, row.task_id].slot,
            invalidated_at=taken[row.item_id, row.task_id].invalidated_at,
            is_refiled=taken[row.item_id, row.task_id].is_refiled,
            request=taken[row.item_id, row.task_id].request,
            is_alone=row.deaths >= SUSPECT_DEATHS,
            item=items[row.item_id],
        )
        for row in found
        if row.item_id in items
    ]


def snapshots(connection: Connection, item_ids: Iterable[int]) -> dict[int, ItemSnapshot]:
    """Read items as they are committed, by id."""
    rows = connection.execute(SNAPSHOTS, {"items": sorted(set(item_ids))}).all()
    return {
        row.id: ItemSnapshot(
            id=row.name,
            aliases=tuple(name for name in row.names if name != row.name),
            tags=row.tags or {},
            data=row.data,
            created_by=row.created_by,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in rows
    }


def release(connection: Connection, claims: Sequence[Claim], worker_id: int) -> int:
    """Give claims back in their place, with their tries; return how many were still ours."""
    given = give_back(
        connection, [Return(claim=one, outcome=Outcome.RELEASED) for one in claims], worker_id
    )
    reopen(connection, [row.item_id for row in given], [row.queue_id for row in given])
    return len(given)


def release_all(connection: Connection, worker_id: int) -> int:
    """Give back whatever a worker still has; return how much that was."""
    connection.execute(HOLD_WORKER, {"worker": worker_id})
    rows = connection.execute(RELEASE_ALL, {"worker": worker_id}).all()
    reopen(connection, [row.item_id for row in rows], [row.queue_id for row in rows])
    return len(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A claim that is given back, or tried again from a moment on; the error is JSON."""

    claim: Claim
    outcome: Outcome
    error: str | None = None
    not_before: datetime | None = None


def give_back(
    connection: Connection, returns: Sequence[Return], worker_id: int | None
) -> Sequence[Row[Any]]:
    """Take the token off claims; return (item, task, queue) of those that were still ours.

    The caller locks and refreshes their items and wakes their queues: see `reopen`.
    """
    if not returns:
        return []
    rows = connection.execute(
        GIVE_BACK,
        {
            "items": [one.claim.item_id for one in returns],
            "tasks": [one.claim.task_id for one in returns],
            "tokens": [one.claim.token for one in returns],
            "tries": [int(one.outcome is Outcome.RETRY) for one in returns],
            "not_before": [one.not_before for one in returns],
        },
    ).all()
    ours = {(row.item_id, row.task_id) for row in rows}
    attempts.record(
        connection,
        [
            attempts.Attempt.of(one.claim, one.outcome, worker_id, error=one.error)
            for one in returns
            if (one.claim.item_id, one.claim.task_id) in ours
        ],
    )
    return rows


def reopen(connection: Connection, item_ids: Sequence[int], queue_ids: Iterable[int]) -> None:
    """Let work that lost its token be found again, or be gone if it no longer stands."""
    refresh.lock_items(connection, item_ids)
    refresh.refresh(connection, item_ids)
    refresh.wake(connection, queue_ids)


def refile(connection: Connection, one: Claim, queue_id: int, worker_id: int) -> bool:
    """Give a claim back into another queue, that of the slot its request really has."""
    row = {"item": one.item_id, "task": one.task_id, "token": one.token, "queue": queue_id}
    if not connection.execute(REFILE, row).rowcount:
        return False
    attempts.record(connection, [attempts.Attempt.of(one, Outcome.RELEASED, worker_id)])
    reopen(connection, [one.item_id], [queue_id])
    return True
