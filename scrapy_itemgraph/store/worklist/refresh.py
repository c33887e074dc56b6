"""Keeps `work` equal to what is outstanding, for the items that a transaction touched.

Callers hold the locks of these items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.postgres.engine import SLICE, rest, slices
from scrapy_itemgraph.postgres.pipelining import Pipeline
from scrapy_itemgraph.store.columns import number_array
from scrapy_itemgraph.store.queues import find_or_make, wake
from scrapy_itemgraph.store.sql_conditions import is_stale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection, Row

# The outstanding pairs of some items, with the queue and kind of each (null: not made yet).
WANTED = text(f"""
    WITH called AS (
        SELECT DISTINCT i.id AS item_id, tt.task_id
        FROM unnest(CAST(:items AS bigint[])) AS touched(id)
        JOIN items i ON i.id = touched.id
        JOIN tags g ON g.item_id = i.id
        JOIN task_tags tt ON tt.crawl_id = i.crawl_id AND tt.tag_name = g.tag_name
    )
    SELECT i.id AS item_id, t.id AS task_id, i.crawl_id, q.id AS queue_id, k.id AS kind_id,
        kept.limit_ids,
        coalesce(t.slot_id, i.slot_id) AS slot_id,
        r.completed_at IS NOT NULL AS is_stale,
        coalesce(i.nice, t.nice) AS nice,
        CASE WHEN i.not_before > now() THEN i.not_before END AS not_before
    FROM called
    JOIN items i ON i.id = called.item_id
    JOIN tasks t ON t.id = called.task_id AND t.is_registered
    CROSS JOIN LATERAL (SELECT ARRAY(
        SELECT tl.limit_id FROM tag_limits tl
        WHERE tl.task_id = t.id AND NOT EXISTS (
            SELECT FROM unnest(tl.tags) AS needed(tag_name) WHERE NOT EXISTS (
                SELECT FROM tags g WHERE g.item_id = i.id AND g.tag_name = needed.tag_name))
        ORDER BY tl.limit_id) AS limit_ids) AS kept
    LEFT JOIN kinds k ON k.task_id = t.id AND k.limit_ids = kept.limit_ids
    LEFT JOIN queues q
        ON q.crawl_id = i.crawl_id AND q.slot_id = coalesce(t.slot_id, i.slot_id)
    LEFT JOIN results r ON r.item_id = i.id AND r.task_id = t.id
    WHERE NOT coalesce(r.is_held, false)
        AND (r.completed_at IS NULL
            OR {is_stale()})
        AND NOT EXISTS (
            SELECT FROM task_dependencies d
            JOIN tasks dt ON dt.id = d.depends_on_id
            LEFT JOIN results dr ON dr.item_id = i.id AND dr.task_id = dt.id
            WHERE d.task_id = t.id
                AND (dr.completed_at IS NULL
                    OR dr.is_held
                    OR {is_stale("dr", "dt")}))
""")  # noqa: S608 - our own conditions

# The work that stands of some items.
STANDING = text("""
    SELECT w.item_id, w.task_id, w.queue_id, w.kind_id, w.is_stale, w.nice, w.is_refiled,
        w.token IS NOT NULL AS is_claimed
    FROM unnest(CAST(:items AS bigint[])) AS touched(id)
    JOIN work w ON w.item_id = touched.id
""")


# A kind that was never needed before: its limits as text, for arrays of arrays must be even.
MAKE_KINDS = text("""
    INSERT INTO kinds (task_id, limit_ids)
    SELECT made.task_id, CAST(made.limit_ids AS int[])
    FROM unnest(CAST(:tasks AS int[]), CAST(:limits AS text[])) AS made(task_id, limit_ids)
    ON CONFLICT DO NOTHING
""")

FIND_KINDS = text("""
    SELECT k.task_id, k.limit_ids, k.id
    FROM unnest(CAST(:tasks AS int[]), CAST(:limits AS text[])) AS wanted(task_id, limit_ids)
    JOIN kinds k ON k.task_id = wanted.task_id AND k.limit_ids = CAST(wanted.limit_ids AS int[])
""")


INSERT_WORK = text("""
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT * FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:crawls AS int[]),
        CAST(:queues AS int[]), CAST(:kinds AS int[]), CAST(:stale AS bool[]),
        CAST(:nice AS int[]), CAST(:not_before AS timestamptz[]))
    ON CONFLICT DO NOTHING
""")

# Unclaimed work that no longer stands; what a claim is looking at just now is left for WITHDRAW.
WITHDRAW_AT_ONCE = text("""
    DELETE FROM work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
        JOIN work w ON w.item_id = gone.item_id AND w.task_id = gone.task_id
        WHERE w.token IS NULL
        FOR UPDATE OF w SKIP LOCKED))
""")

WITHDRAW = text("""
    DELETE FROM work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
        JOIN work w ON w.item_id = gone.item_id AND w.task_id = gone.task_id
        WHERE w.token IS NULL
        FOR UPDATE OF w))
""")

# Unclaimed work whose queue, kind or place changed.
MOVE_WORK = text("""
    UPDATE work w
    SET queue_id = moved.queue_id, kind_id = moved.kind_id, is_stale = moved.is_stale,
        nice = moved.nice
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:queues AS int[]),
        CAST(:kinds AS int[]), CAST(:stale AS bool[]), CAST(:nice AS int[]))
        AS moved(item_id, task_id, queue_id, kind_id, is_stale, nice)
    WHERE w.item_id = moved.item_id AND w.task_id = moved.task_id AND w.token IS NULL
""")


def refresh(
    connection: Connection,
    item_ids: Iterable[int],
    *,
    new: Iterable[Sequence[int]] = (),
) -> None:
    """Make the work of these (locked) items what is outstanding of them.

    Args:
        connection: The caller's transaction.
        item_ids: Items that may have work.
        new: Items that this transaction made, and which have none, in groups that are alike in
            all that decides about work: slot, tags, nice, not before. What is outstanding of
            the first of a group is so of all.

    """
    groups = {group[0]: group for group in new}
    missing: list[tuple[int, _Place]] = []
    awake: set[int] = set()
    for part in slices(connection, sorted({*item_ids, *groups})):
        places, moved = _refresh(connection, list(part), groups)
        awake.update(place.queue_id for place in (*places, *moved))
        for place in places:
            item = place.work.item_id
            missing += [(number, place) for number in groups.get(item, (item,))]
            rest(connection, len(missing))
    missing.sort(key=_by_item)
    with Pipeline(connection, len(missing)) as ahead:
        for at in range(0, len(missing), SLICE):
            ahead.execute(INSERT_WORK, _columns(missing[at : at + SLICE]))
    wake(connection, awake)


def _by_item(row: tuple[int, _Place]) -> tuple[int, int]:
    return row[0], row[1].work.task_id


def _refresh(
    connection: Connection, items: list[int], new: Collection[int]
) -> tuple[list[_Place], list[_Place]]:
    """Move and withdraw work of some items; return what of it is missing, and what was moved."""
    wanted = {(row.item_id, row.task_id): row for row in _rows(connection, WANTED, items)}
    old = [item for item in items if item not in new]
    standing = {(row.item_id, row.task_id): row for row in _rows(connection, STANDING, old)}
    queues = find_or_make(connection, wanted.values())
    kinds = _kinds(connection, wanted.values())
    missing: list[_Place] = []
    moved: list[_Place] = []
    for pair, row in sorted(wanted.items()):
        there = standing.get(pair)
        queue = queues[row.crawl_id, row.slot_id]
        if there is None:
            missing.append(_Place(row, queue, kinds[_kind(row)]))
        elif not there.is_claimed:
            queue = there.queue_id if there.is_refiled else queue
            place = _Place(row, queue, kinds[_kind(row)])
            if place.differs(there):
                moved.append(place)
    if moved:
        connection.execute(MOVE_WORK, _columns([(place.work.item_id, place) for place in moved]))
    withdraw(
        connection,
        [pair for pair, row in standing.items() if pair not in wanted and not row.is_claimed],
    )
    return missing, moved


def withdraw(connection: Connection, pairs: Collection[tuple[int, int]]) -> None:
    """Delete unclaimed work; a claim that holds a row for the moment is waited for."""
    if not pairs:
        return
    gone = {"items": [item for item, _ in pairs], "tasks": [task for _, task in pairs]}
    if connection.execute(WITHDRAW_AT_ONCE, gone).rowcount < len(pairs):
        connection.execute(WITHDRAW, gone)


def _rows(connection: Connection, statement: Any, items: list[int]) -> Sequence[Row[Any]]:
    return connection.execute(statement, {"items": items}).all() if items else ()


def _kind(row: Row[Any]) -> tuple[int, tuple[int, ...]]:
    return row.task_id, tuple(row.limit_ids)


def _kinds(
    connection: Connection, rows: Iterable[Row[Any]]
) -> dict[tuple[int, tuple[int, ...]], int]:
    kinds = {_kind(row): row.kind_id for row in rows}
    unmade = sorted(key for key, kind in kinds.items() if kind is None)
    if unmade:
        limits = [f"{{{','.join(map(str, limit_ids))}}}" for _, limit_ids in unmade]
        keys = {"tasks": [task for task, _ in unmade], "limits": limits}
        connection.execute(MAKE_KINDS, keys)
        kinds |= {_kind(row): row.id for row in connection.execute(FIND_KINDS, keys)}
    return kinds


@dataclass(frozen=True, slots=True)
class _Place:
    """Outstanding work, and the queue and kind it belongs into."""

    work: Row[Any]
    queue_id: int
    kind_id: int

    def differs(self, standing: Row[Any]) -> bool:
        work = self.work
        return (self.queue_id, self.kind_id, work.is_stale, work.nice) != (
            standing.queue_id,
            standing.kind_id,
            standing.is_stale,
            standing.nice,
        )


def _columns(rows: Sequence[tuple[int, _Place]]) -> dict[str, Any]:
    numbers = number_array
    return {
        "items": numbers([item for item, _ in rows]),
        "tasks": numbers([place.work.task_id for _, place in rows]),
        "crawls": numbers([place.work.crawl_id for _, place in rows]),
        "queues": numbers([place.queue_id for _, place in rows]),
        "kinds": numbers([place.kind_id for _, place in rows]),
        "stale": numbers([int(place.work.is_stale) for _, place in rows]),
        "nice": numbers([place.work.nice for _, place in rows]),
        "not_before": [place.work.not_before for _, place in rows],
    }
