"""Queues: a crawl's work of one slot; and the numbers of slots.

All functions take a connection and never commit.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection

# Whether something may go now is looked at again after so long, whatever was said.
_LONGEST = timedelta(minutes=5)

FIND_SLOTS = text("""
    SELECT s.name, s.id FROM unnest(CAST(:names AS text[])) AS wanted(name)
    JOIN limits s ON s.kind = 'slot' AND s.name = wanted.name
""")

MAKE_SLOTS = text("""
    INSERT INTO limits (name) SELECT * FROM unnest(CAST(:names AS text[])) ON CONFLICT DO NOTHING
""")

# In the order of their ids, so that nobody waits in a circle.
LOCK_LIMITS = text("""
    SELECT l.id FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN limits l ON l.id = wanted.id
    FOR NO KEY UPDATE OF l
""")

MAKE_QUEUE = text("""
    INSERT INTO queues (crawl_id, slot_id) VALUES (:crawl, :slot) ON CONFLICT DO NOTHING
""")

FIND_QUEUE = text("SELECT id FROM queues WHERE crawl_id = :crawl AND slot_id = :slot")

# Queues of slots that a worker has for itself now: nobody else looks into them.
HOLD = text("""
    UPDATE queues q SET holder = :worker
    FROM unnest(CAST(:queues AS int[])) AS held(id)
    WHERE q.id = held.id
""")

# A worker's queues of slots that it has for itself, and which the queues do not say yet.
UNHELD = text("""
    SELECT q.id FROM unnest(CAST(:slots AS int[])) AS slot(id)
    CROSS JOIN LATERAL (
        SELECT * FROM queues WHERE queues.slot_id = slot.id OFFSET 0) AS q
    WHERE q.holder IS NULL
        AND q.crawl_id = (SELECT w.crawl_id FROM workers w WHERE w.id = :worker)
""")

# All crawls' queues of slots.
OF_SLOTS = text("""
    SELECT q.id, slot.seconds
    FROM unnest(CAST(:slots AS int[]), CAST(:seconds AS float8[])) AS slot(id, seconds)
    CROSS JOIN LATERAL (SELECT * FROM queues WHERE queues.slot_id = slot.id OFFSET 0) AS q
""")

# In the order in which commits lock queues to wake them.
LOCK = text("""
    SELECT q.id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    JOIN queues q ON q.id = wanted.id
    FOR NO KEY UPDATE OF q
""")

# Queues of slots that somebody gave up, or may use from a moment on.
FREE = text("""
    UPDATE queues q SET holder = NULL, next_at = freed.at
    FROM (
        SELECT queue.id, clock_timestamp() + make_interval(secs => queue.seconds) AS at
        FROM unnest(CAST(:queues AS int[]), CAST(:seconds AS float8[])) AS queue(id, seconds)
        ) AS freed
    WHERE q.id = freed.id AND (q.holder IS NOT NULL OR q.next_at > freed.at)
    RETURNING q.crawl_id, q.is_live
""")

# Queues whose slot may not be used before a while.
PUT_OFF = text("""
    UPDATE queues q
    SET next_at = greatest(q.next_at, clock_timestamp() + make_interval(secs => later.seconds))
    FROM (
        SELECT q.id, later.seconds
        FROM unnest(CAST(:queues AS int[]), CAST(:seconds AS float8[])) AS later(id, seconds)
        JOIN queues q ON q.id = later.id AND q.holder IS NULL
        FOR NO KEY UPDATE OF q SKIP LOCKED) AS later
    WHERE q.id = later.id
""")

# Queues whose turn is later than anybody puts it off: the server's clock was set back.
MEND = text("""
    UPDATE queues q SET next_at = clock_timestamp()
    WHERE q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL
        AND q.next_at > (SELECT clock_timestamp()) + CAST(:longest AS interval)
""")

# In how many seconds it is the turn of the next queue that nobody has for itself.
NEXT_TURN = text("""
    SELECT extract(epoch FROM q.next_at - clock_timestamp()) FROM queues q
    WHERE q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL
    ORDER BY q.next_at LIMIT 1
""")

NOTIFY = text("SELECT pg_notify('itemgraph', CAST(:crawl AS text))")


def intern_slots(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of slots by name, and make those that are new."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = _find(connection, wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        connection.execute(MAKE_SLOTS, {"names": missing})
        found |= _find(connection, missing)
    return found


def lock_limits(connection: Connection, limit_ids: Iterable[int]) -> None:
    """Lock limits, slots among them, in the order in which all do."""
    connection.execute(LOCK_LIMITS, {"limits": sorted(limit_ids)}).all()


def intern(connection: Connection, crawl_id: int, slot_id: int) -> int:
    """Return the number of a crawl's queue of a slot, made when it is new."""
    key = {"crawl": crawl_id, "slot": slot_id}
    connection.execute(MAKE_QUEUE, key)
    return int(connection.execute(FIND_QUEUE, key).scalar_one())


def hold(connection: Connection, queue_ids: Collection[int], worker_id: int) -> None:
    """Have queues for one worker alone."""
    if queue_ids:
        connection.execute(HOLD, {"queues": sorted(queue_ids), "worker": worker_id})


def hold_of_slots(connection: Connection, slots: Iterable[int], worker_id: int) -> None:
    """Have the queues of slots for one worker alone."""
    given = {"slots": list(slots), "worker": worker_id}
    if given["slots"]:
        hold(connection, list(connection.execute(UNHELD, given).scalars()), worker_id)


def free(connection: Connection, slots: Mapping[int, float]) -> None:
    """Let everybody look into the queues of slots again, so many seconds from now."""
    if not slots:
        return
    given = {"slots": list(slots), "seconds": list(slots.values())}
    found = sorted((row.id, row.seconds) for row in connection.execute(OF_SLOTS, given))
    if not found:
        return
    numbers = [number for number, _ in found]
    connection.execute(LOCK, {"queues": numbers}).all()
    freed = {"queues": numbers, "seconds": [seconds for _, seconds in found]}
    rows = connection.execute(FREE, freed).all()
    for crawl in sorted({row.crawl_id for row in rows if row.is_live}):
        notify(connection, crawl)


def put_off(connection: Connection, seconds: Mapping[int, float]) -> None:
    """Let nobody look into queues for so many seconds, five minutes at most."""
    if seconds:
        longest = _LONGEST.total_seconds()
        numbers = sorted(seconds)
        given = {"queues": numbers, "seconds": [min(seconds[one], longest) for one in numbers]}
        connection.execute(PUT_OFF, given)


def mend(connection: Connection, crawl_id: int) -> None:
    """Let queues be looked into again whose turn a clock that was set back has put far off."""
    connection.execute(MEND, {"crawl": crawl_id, "longest": 2 * _LONGEST})


def next_turn(connection: Connection, crawl_id: int) -> float | None:
    """Return in how many seconds the next queue may be looked into that nobody has."""
    seconds = connection.execute(NEXT_TURN, {"crawl": crawl_id}).scalar()
    return None if seconds is None else max(0.0, float(seconds))


def notify(connection: Connection, crawl_id: int) -> None:
    """Tell the idle workers of a crawl that there may be work."""
    connection.execute(NOTIFY, {"crawl": crawl_id})


def _find(connection: Connection, names: list[str]) -> dict[str, int]:
    return {row.name: row.id for row in connection.execute(FIND_SLOTS, {"names": names})}
