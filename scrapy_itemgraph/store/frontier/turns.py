"""Queues whose turn it is, why something of them may not be handed out now, and their next turn.

A row of `frontier_queues` is locked by who looks into the queue, so nobody else does at the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

_LOOK_AGAIN = 1  # seconds after which one is of which as much is held as was asked for
_SOON = 5  # seconds after which a queue is looked into again that is shut, by its limit say

FIND_SLOT = text("SELECT l.id FROM limits l WHERE l.kind = 'slot' AND l.name = :key")

_TURN = """
    SELECT q.id, q.slot_id, l.name AS key, coalesce(f.delay, d.default_delay) AS delay,
        f.last_served, f.is_deleting, coalesce(f.completed >= f.crawl_limit, false) AS is_full,
        f.blocked_until, coalesce(l.blocked_until > clock_timestamp(), false) AS is_slot_blocked,
        CAST(floor(extract(epoch FROM clock_timestamp())) AS bigint) AS now
    FROM queues q
    JOIN frontier_queues f ON f.queue_id = q.id
    JOIN limits l ON l.id = q.slot_id
    CROSS JOIN frontier d
    WHERE {which}
    FOR NO KEY UPDATE OF f SKIP LOCKED
"""
TURNS = text(
    _TURN.format(
        which="""q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL AND q.next_at <= :began
    ORDER BY q.next_at LIMIT :limit"""
    )
)
# The turn of one queue, whose `next_at` is a hint for who looks for any.
TURN = text(_TURN.format(which="q.crawl_id = :crawl AND q.slot_id = :slot AND q.holder IS NULL"))
# Queues that the chunk before was too small for.
CUT = text(_TURN.format(which="q.id = ANY (CAST(:queues AS int[])) AND q.holder IS NULL"))

HELD = text("""
    SELECT queue.id, (
        SELECT count(*) FROM (
            SELECT FROM work w
            WHERE w.queue_id = queue.id AND w.not_before > (SELECT clock_timestamp())
                AND w.tries > 0 AND w.kind_id = ANY (CAST(:kinds AS int[]))
            LIMIT :most) AS held) AS number
    FROM unnest(CAST(:queues AS int[])) AS queue(id)
""")

# Queues that have something to hand out.
READY = text(f"""
    SELECT queue.id FROM unnest(CAST(:queues AS int[])) AS queue(id)
    WHERE EXISTS (
        SELECT FROM unnest(CAST(:kinds AS int[])) AS open(kind_id)
        CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = queue.id AND w.kind_id = open.kind_id AND {IS_READY_BESIDE_OTHERS}
            LIMIT 1) AS first
        OFFSET 0)
""")  # noqa: S608 - our own condition

# One that a commit wakes just now is left to it.
NEXT_TURNS = text("""
    UPDATE queues q SET next_at = greatest(clock_timestamp(), to_timestamp(turn.second))
    FROM (
        SELECT q.id, turn.second
        FROM unnest(CAST(:queues AS int[]), CAST(:seconds AS bigint[])) AS turn(id, second)
        JOIN queues q ON q.id = turn.id
        FOR NO KEY UPDATE OF q SKIP LOCKED) AS turn
    WHERE q.id = turn.id
""")


class Turn(NamedTuple):
    """A queue that is locked, and what says whether something of it may be handed out.

    Moments are seconds since 1970. One that `is_full` has as many completed URLs as its limit.
    """

    id: int
    slot_id: int
    key: str
    delay: int
    last_served: int
    is_deleting: bool
    is_full: bool
    blocked_until: int
    is_slot_blocked: bool
    now: int

    @property
    def is_shut(self) -> bool:
        """Whether nothing may be handed out of it, however long it has waited."""
        return self.is_full or self.is_deleting or self.is_slot_blocked

    @property
    def opens_at(self) -> int:
        """From which second on it may be handed out of; 0: now."""
        least = max(self.blocked_until, self.last_served + self.delay)
        if least >= self.now:
            return min(least + 1, frontier.LAST_SECOND)
        return self.now + _SOON if self.is_shut else 0


def due(
    connection: Connection, crawl_id: int, key: str | None, began: datetime, limit: int
) -> list[Turn]:
    """Lock queues whose turn came before a moment, the first of them first; or the one with a key.

    Those that somebody else looks into just now are left to him.
    """
    if key is None:
        return _locked(connection, TURNS, crawl=crawl_id, began=began, limit=limit)
    slot = connection.execute(FIND_SLOT, {"key": key}).scalar()
    return [] if slot is None else _locked(connection, TURN, crawl=crawl_id, slot=slot)


def locked(connection: Connection, queue_ids: Collection[int]) -> list[Turn]:
    """Lock queues once more."""
    return _locked(connection, CUT, queues=list(queue_ids))


def _locked(connection: Connection, statement: Any, **given: Any) -> list[Turn]:
    return typed(connection.execute(statement, given), Turn)


def opened(
    connection: Connection, turns: Sequence[Turn], most: int, kinds: Sequence[int]
) -> list[Turn]:
    """Return the queues that something may be handed out of, fewer than `most` of it held."""
    found = [one for one in turns if not one.opens_at]
    if not most or not found:
        return found
    asked = {"queues": [one.id for one in found], "kinds": list(kinds), "most": most}
    held = {row.id: row.number for row in connection.execute(HELD, asked)}
    return [one for one in found if held[one.id] < most]


def ready(
    connection: Connection, turns: Sequence[Turn], kinds: Sequence[int]
) -> tuple[list[Turn], list[Turn]]:
    """Return the queues that have something to hand out, and those that have nothing."""
    asked = {"queues": [one.id for one in turns], "kinds": list(kinds)}
    found = set(connection.execute(READY, asked).scalars())
    return (
        [one for one in turns if one.id in found],
        [one for one in turns if one.id not in found],
    )


def move_on(
    connection: Connection,
    crawl_id: int,
    turns: Iterable[Turn],
    looked_into: Iterable[Turn],
    served: Collection[int],
    *,
    is_shared: bool,
) -> None:
    """Give queues their next turn, and let nobody look into those that are empty.

    In a crawl that spiders share, these look into the queues by the same turns, and keep to other
    delays and blocks: there no turn is put off for long.
    """
    tried = {one.id for one in looked_into}
    if empty := sorted(tried.difference(served)):
        queues.park(connection, crawl_id, empty)
    seconds: dict[int, int] = {}
    for one in turns:
        if one.id in served:
            seconds[one.id] = min(one.now + one.delay + 1, frontier.LAST_SECOND)
        elif one.id in tried:
            seconds[one.id] = one.now
        else:
            seconds[one.id] = one.opens_at or one.now + _LOOK_AGAIN
        if is_shared:
            seconds[one.id] = min(seconds[one.id], one.now + _SOON)
    if seconds:
        ordered = sorted(seconds)
        turned = {"queues": ordered, "seconds": [seconds[one] for one in ordered]}
        connection.execute(NEXT_TURNS, turned)
