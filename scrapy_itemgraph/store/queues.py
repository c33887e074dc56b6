"""Queues: a crawl's work of one slot, whose turn it is, and which sleep for they are empty."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres.event_loop import sorted_chunks
from scrapy_itemgraph.store import awakening
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.notify import notify
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS, seconds_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

# Whether something may go now is looked at again after so long, whatever was said.
_LONGEST = timedelta(minutes=5)


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
        AND q.crawl_id = (SELECT p.crawl_id FROM processes p WHERE p.id = :worker)
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
NEXT_TURN = text(f"""
    SELECT {seconds_until("q.next_at")} FROM queues q
    WHERE q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL
    ORDER BY q.next_at LIMIT 1
""")  # noqa: S608 - our own condition

# Queues that were never needed before.
MAKE_QUEUES = text("""
    INSERT INTO queues (crawl_id, slot_id)
    SELECT * FROM unnest(CAST(:crawls AS int[]), CAST(:slots AS int[]))
    ON CONFLICT DO NOTHING
""")

FIND_QUEUES = text("""
    SELECT q.crawl_id, q.slot_id, q.id
    FROM unnest(CAST(:crawls AS int[]), CAST(:slots AS int[])) AS wanted(crawl_id, slot_id)
    JOIN queues q USING (crawl_id, slot_id)
""")

# Waits for whoever parks these queues as empty, and holds others off; claims go on.
HOLD_QUEUES = text("""
    SELECT q.id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    JOIN queues q ON q.id = wanted.id
    FOR KEY SHARE OF q
""")

SLEEPING_QUEUES = text("""
    SELECT q.id FROM queues q
    WHERE q.id = ANY (CAST(:queues AS int[])) AND NOT q.is_live
    FOR NO KEY UPDATE OF q
""")

WAKE_QUEUES = text("""
    UPDATE queues q SET is_live = true, next_at = greatest(q.next_at, now())
    WHERE q.id = ANY (CAST(:queues AS int[])) AND NOT q.is_live
    RETURNING q.crawl_id,
        (SELECT c.state = 'finished' FROM crawls c WHERE c.id = q.crawl_id) AS has_ended
""")


class Turn(NamedTuple):
    """A queue whose turn it is, and its slot."""

    id: int
    slot_id: int
    next_at: datetime
    slot: str


# Queues whose turn it is, the first of them first; a single one is not moved on. The time stands in
# a subquery because a volatile function is no bound of an index scan, here and below.
TURNS = text("""
    SELECT q.id, q.slot_id, q.next_at, l.name AS slot FROM queues q
    JOIN limits l ON l.id = q.slot_id
    WHERE q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL
        AND q.next_at <= (SELECT clock_timestamp())
        AND q.slot_id <> ALL (CAST(:passed_over AS int[]))
    ORDER BY q.next_at
    LIMIT :limit
""")

# The same of the queues that this worker has for itself.
OWN_TURNS = text("""
    SELECT q.id, q.slot_id, q.next_at, l.name AS slot FROM queues q
    JOIN limits l ON l.id = q.slot_id
    WHERE q.crawl_id = :crawl AND q.is_live AND q.holder = :worker
        AND q.slot_id = ANY (CAST(:own AS int[]))
    ORDER BY q.next_at
    LIMIT :limit
""")

# Moves the turn of queues on, to the end and in the order given (rows are updated in the order in
# which they lie on disk); one that another claim moves just now is left to it.
MOVE_TURNS = text("""
    UPDATE queues moved
    SET next_at = (SELECT clock_timestamp()) - make_interval(secs => 1e-6 * (
        cardinality(CAST(:queues AS int[]))
        - array_position(CAST(:queues AS int[]), moved.id)))
    WHERE moved.ctid = ANY (ARRAY(
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
PARK = text(f"""
    UPDATE queues q SET is_live = false
    FROM unnest(CAST(:queues AS int[])) AS wanted(id)
    WHERE q.id = wanted.id AND NOT EXISTS (
        SELECT FROM tasks t JOIN kinds k ON k.task_id = t.id
        CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = q.id AND w.kind_id = k.id
                AND {IS_READY_BESIDE_OTHERS}
            LIMIT 1) AS first
        WHERE t.crawl_id = q.crawl_id AND t.id <> ALL (CAST(:closed AS int[])))
""")  # noqa: S608 - our own conditions

# Queues whose turn is still to come; they are locked in the order in which commits lock them.
LOOK_AGAIN = text("""
    UPDATE queues q SET next_at = clock_timestamp()
    FROM (
        SELECT q.id FROM unnest(CAST(:queues AS int[])) AS wanted(id)
        JOIN queues q ON q.id = wanted.id
        WHERE q.next_at > (SELECT clock_timestamp())
        FOR NO KEY UPDATE OF q) AS again
    WHERE q.id = again.id
""")

WAKE_ALL = text("UPDATE queues SET is_live = true WHERE crawl_id = :crawl AND NOT is_live")


def intern(connection: Connection, crawl_id: int, slot_id: int) -> int:
    """Return the number of a crawl's queue of a slot, made when it is new."""
    return _made(connection, [(crawl_id, slot_id)])[crawl_id, slot_id]


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
    freed = columns(found, queues=0, seconds=1)
    connection.execute(LOCK, {"queues": freed["queues"]}).all()
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
    return None if seconds is None else max(0.0, seconds)


def wake(connection: Connection, queue_ids: Iterable[int]) -> None:
    """Wake queues that got work if they were parked as empty, and tell idle workers.

    A crawl that had come to its end is active again then, if people steer it.
    Called after the work was written: who parks a queue has it alone, so either it sees our work,
    or we see it parked.
    """
    woken: dict[int, bool] = {}  # crawls, and whether they had come to their end
    for queues in sorted_chunks(connection, set(queue_ids)):
        connection.execute(HOLD_QUEUES, {"queues": queues})
        asleep = list(connection.execute(SLEEPING_QUEUES, {"queues": queues}).scalars())
        if asleep:
            rows = connection.execute(WAKE_QUEUES, {"queues": asleep})
            woken.update((row.crawl_id, bool(row.has_ended)) for row in rows)
    for crawl in sorted(woken):
        notify(connection, crawl)
    awakening.awaken(connection, [crawl for crawl, has_ended in woken.items() if has_ended])


def find_or_make(
    connection: Connection, queues: Mapping[tuple[int, int], int | None]
) -> dict[tuple[int, int], int]:
    """Return the numbers of queues by crawl and slot, made where they have none."""
    known = {key: queue for key, queue in queues.items() if queue is not None}
    unmade = sorted(queues.keys() - known.keys())
    return known | _made(connection, unmade) if unmade else known


def _made(connection: Connection, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Make queues by crawl and slot, sorted, where they are not there; return their numbers."""
    given = columns(keys, crawls=0, slots=1)
    connection.execute(MAKE_QUEUES, given)
    return {(row.crawl_id, row.slot_id): row.id for row in connection.execute(FIND_QUEUES, given)}


def park(connection: Connection, crawl_id: int, queues: Sequence[int]) -> None:
    """Take queues out of the turns that are without work of an open kind; it is looked again."""
    locked = list(connection.execute(LOCK_EMPTY, {"queues": list(queues)}).scalars())
    if locked:
        closed = list(connection.execute(CLOSED_TASKS, {"crawl": crawl_id}).scalars())
        connection.execute(PARK, {"queues": locked, "closed": closed})


def wake_crawl(connection: Connection, crawl_id: int) -> None:
    """Let claims look into all queues of a crawl again."""
    connection.execute(WAKE_ALL, {"crawl": crawl_id})
    notify(connection, crawl_id)


def look_again(connection: Connection, queue_ids: Sequence[int]) -> None:
    """Have queues, in the order of their ids, looked into again as soon as somebody asks."""
    if queue_ids:
        connection.execute(LOOK_AGAIN, {"queues": queue_ids})
