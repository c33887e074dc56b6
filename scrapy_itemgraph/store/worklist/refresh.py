"""Keeps `work` equal to what is outstanding, for the items that a transaction touched.

Callers hold the locks of these items.
"""

from __future__ import annotations

from heapq import merge
from itertools import filterfalse, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlalchemy import text

from scrapy_itemgraph.postgres import copying
from scrapy_itemgraph.postgres.arrays import number_array
from scrapy_itemgraph.postgres.event_loop import (
    CHUNK,
    chunks,
    clear_gradually,
    gradually,
    sorted_chunks,
    yield_after,
)
from scrapy_itemgraph.store.queues import find_or_make, wake
from scrapy_itemgraph.store.sql_conditions import is_stale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, TextClause

    from scrapy_itemgraph.model.work import Pair

# The outstanding pairs of some items, with the queue and kind of each (null: not made yet).
_WANTED = f"""
    WITH called AS (
        SELECT DISTINCT i.id AS item_id, tt.task_id
        FROM unnest(CAST(:items AS bigint[])) AS touched(id)
        CROSS JOIN LATERAL (
            SELECT id, crawl_id FROM items WHERE items.id = touched.id OFFSET 0) AS i
        CROSS JOIN LATERAL (
            SELECT tag_name FROM tags WHERE tags.item_id = i.id OFFSET 0) AS g
        JOIN task_tags tt ON tt.crawl_id = i.crawl_id AND tt.tag_name = g.tag_name
    )
    SELECT i.id AS item_id, t.id AS task_id, i.crawl_id, coalesce(t.slot_id, i.slot_id) AS slot_id,
        kept.limit_ids, q.id AS queue_id, k.id AS kind_id,
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
    LEFT JOIN LATERAL (
        SELECT id FROM queues
        WHERE queues.crawl_id = i.crawl_id
            AND queues.slot_id = coalesce(t.slot_id, i.slot_id) OFFSET 0) AS q ON true
    LEFT JOIN results r ON r.item_id = i.id AND r.task_id = t.id
    WHERE NOT coalesce(r.is_held, false) AND r.hold IS NULL{{in_depth}}
        AND (r.completed_at IS NULL
            OR {is_stale()})
        AND NOT EXISTS (
            SELECT FROM task_dependencies d
            JOIN tasks dt ON dt.id = d.depends_on_id
            LEFT JOIN results dr ON dr.item_id = i.id AND dr.task_id = dt.id
            WHERE d.task_id = t.id
                AND (dr.completed_at IS NULL
                    OR dr.is_held OR dr.hold IS NOT NULL
                    OR {is_stale("dr", "dt")}))
"""  # noqa: S608 - our own conditions

WANTED = text(_WANTED.format(in_depth=""))

# The same where pages have a least depth, and those that are deeper than the crawl's limit wait. A
# page without a row was found before depths were tracked, and is not looked at yet.
WANTED_IN_DEPTH = text(
    _WANTED.format(
        in_depth="""
        AND coalesce((SELECT d.depth FROM depths d WHERE d.item_id = i.id), 0) <= (
            SELECT coalesce(c.depth_limit, 2147483647) FROM crawls c WHERE c.id = i.crawl_id)""",
    )
)

TRACKS_DEPTH = text("""
    SELECT i.tracks_depth FROM unnest(CAST(:items AS bigint[])) AS touched(id)
    CROSS JOIN LATERAL (
        SELECT c.tracks_depth FROM items i JOIN crawls c ON c.id = i.crawl_id
        WHERE i.id = touched.id OFFSET 0) AS i
    LIMIT 1
""")

# The work that stands of some items.
STANDING = text("""
    SELECT w.item_id, w.task_id, w.token IS NOT NULL AS is_claimed, w.is_refiled, w.queue_id,
        w.kind_id, w.is_stale, w.nice
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

WORK = "work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)"

# Unclaimed work that no longer stands, but for what somebody has locked just now.
WITHDRAW = text("""
    DELETE FROM work WHERE ctid = ANY (ARRAY(
        SELECT w.ctid
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
        JOIN work w ON w.item_id = gone.item_id AND w.task_id = gone.task_id
        WHERE w.token IS NULL
        FOR UPDATE OF w SKIP LOCKED))
""")

# Waits for who has it locked: it is claimed then, or it is put off, and ours to withdraw. A
# statement that did both would not see a row that was put off while it waited.
AWAIT = text("""
    SELECT w.item_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
    JOIN work w ON w.item_id = gone.item_id AND w.task_id = gone.task_id
    WHERE w.token IS NULL
    FOR UPDATE OF w
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


class Tracking(Protocol):
    """A crawl of which it is known whether its pages have a least depth."""

    @property
    def tracks_depth(self) -> bool:
        """Whether they have."""


class _Work(NamedTuple):
    """Outstanding work, as it is to stand."""

    item_id: int
    task_id: int
    crawl_id: int
    queue_id: int
    kind_id: int
    is_stale: bool
    nice: int
    not_before: datetime | None


def refresh(
    connection: Connection,
    item_ids: Iterable[int],
    *,
    new: Iterable[Sequence[int]] = (),
    crawl: Tracking | None = None,
) -> None:
    """Make the work of these (locked) items what is outstanding of them.

    Args:
        connection: The caller's transaction.
        item_ids: Items that may have work.
        new: Items that this transaction made, and which have none, in groups that are alike in
            all that decides about work: slot, tags, nice, not before. What is outstanding of
            the first of a group is so of all.
        crawl: The crawl of the items; None: it is asked whether that tracks depth.

    """
    touched = set(item_ids)
    groups: dict[int, Sequence[int]] = {group[0]: group for group in gradually(connection, new)}
    numbers = [*touched, *filterfalse(touched.__contains__, groups)]
    singles: list[tuple[int, _Work]] = []
    runs: list[Iterable[tuple[int, _Work]]] = [singles]  # each sorted
    awake: set[int] = set()
    wanted = _wanted(connection, numbers, crawl)
    for part in sorted_chunks(connection, numbers, CHUNK):
        added, moved = _refresh(connection, part, groups, wanted)
        awake.update(work.queue_id for work in (*added, *moved))
        for work in sorted(added):
            if len(group := groups.get(work.item_id, ())) > 1:
                runs.append(zip(sorted(group), repeat(work), strict=False))
                yield_after(connection, len(group))
            else:
                singles.append((work.item_id, work))
    missing = merge(*runs, key=_by_item)
    while rows := list(islice(missing, CHUNK)):
        connection.execute(INSERT_WORK, _columns(rows))
    wake(connection, awake)
    clear_gradually(connection, singles, groups, awake)


def _wanted(connection: Connection, items: Sequence[int], crawl: Tracking | None) -> TextClause:
    """Return the statement that says what is outstanding of items of one crawl."""
    if crawl is not None:
        is_tracked = crawl.tracks_depth
    else:
        is_tracked = bool(items) and connection.scalar(TRACKS_DEPTH, {"items": items[:CHUNK]})
    return WANTED_IN_DEPTH if is_tracked else WANTED


def add_new(connection: Connection, groups: Iterable[Sequence[int]], crawl: Tracking) -> None:
    """Make the work of items that this transaction made, as `refresh` with `new` does, by COPY.

    It is for many of them, in a connection that no event loop waits for.
    """
    new = {group[0]: group for group in groups}
    added: list[_Work] = []
    wanted = _wanted(connection, (), crawl)
    for part in chunks(connection, sorted(new)):
        added += _refresh(connection, part, new, wanted)[0]
    runs = [zip(sorted(new[work.item_id]), repeat(work), strict=False) for work in added]
    texts = {work: _columns_text(work) for work in added}
    rows = [f"{item}\t{texts[work]}" for item, work in merge(*runs, key=_by_item)]
    copying.copy(connection, WORK, "".join(rows))
    wake(connection, {work.queue_id for work in added})


def _by_item(row: tuple[int, _Work]) -> tuple[int, int]:
    return row[0], row[1].task_id


def _refresh(
    connection: Connection, items: list[int], new: Collection[int], statement: TextClause
) -> tuple[Collection[_Work], Collection[_Work]]:
    """Move and withdraw work of some items; return what of it is missing, and what was moved."""
    wanted = connection.execute(statement, {"items": items})
    old = [item for item in items if item not in new]
    found = connection.execute(STANDING, {"items": old}) if old else None
    rows, standing = wanted.all(), () if found is None else found.all()
    queues = find_or_make(connection, {(row.crawl_id, row.slot_id): row.queue_id for row in rows})
    kinds = find_or_make_kinds(
        connection, {(row.task_id, tuple(row.limit_ids)): row.kind_id for row in rows}
    )
    missing = {
        (item, task): _Work(
            item, task, crawl, queues[crawl, slot], kinds[task, tuple(limits)], stale, nice, start
        )
        for item, task, crawl, slot, limits, _, _, stale, nice, start in rows
    }
    moved: list[_Work] = []
    gone: list[Pair] = []
    for item, task, is_claimed, is_refiled, queue, kind, stale, nice in standing:
        work = missing.pop((item, task), None)
        if is_claimed:
            continue
        if work is None:
            gone.append((item, task))
            continue
        work = work._replace(queue_id=queue) if is_refiled else work
        if (work.queue_id, work.kind_id, work.is_stale, work.nice) != (queue, kind, stale, nice):
            moved.append(work)
    if moved:
        connection.execute(MOVE_WORK, _columns([(work.item_id, work) for work in sorted(moved)]))
    withdraw(connection, gone)
    return missing.values(), moved


def withdraw(connection: Connection, pairs: Collection[Pair]) -> None:
    """Delete unclaimed work; who holds a row for the moment is waited for."""
    if not pairs:
        return
    gone = {"items": [item for item, _ in pairs], "tasks": [task for _, task in pairs]}
    if connection.execute(WITHDRAW, gone).rowcount < len(pairs):
        connection.execute(AWAIT, gone)
        connection.execute(WITHDRAW, gone)


def find_or_make_kinds(
    connection: Connection, kinds: Mapping[tuple[int, tuple[int, ...]], int | None]
) -> dict[tuple[int, tuple[int, ...]], int]:
    """Return the numbers of kinds by task and limits, made where they have none."""
    known = {key: kind for key, kind in kinds.items() if kind is not None}
    unmade = sorted(kinds.keys() - known.keys())
    if unmade:
        limits = [f"{{{','.join(map(str, limit_ids))}}}" for _, limit_ids in unmade]
        keys = {"tasks": [task for task, _ in unmade], "limits": limits}
        connection.execute(MAKE_KINDS, keys)
        found = connection.execute(FIND_KINDS, keys)
        known |= {(task, tuple(limit_ids)): kind for task, limit_ids, kind in found}
    return known


def _columns_text(work: _Work) -> str:
    """Return what follows the item in a row of WORK."""
    start = copying.NULL if work.not_before is None else work.not_before.isoformat()
    fields = (*work[1:5], int(work.is_stale), work.nice, start)
    return "\t".join(map(str, fields)) + "\n"


def _columns(rows: Sequence[tuple[int, _Work]]) -> dict[str, Any]:
    numbers = number_array
    return {
        "items": numbers([item for item, _ in rows]),
        "tasks": numbers([work.task_id for _, work in rows]),
        "crawls": numbers([work.crawl_id for _, work in rows]),
        "queues": numbers([work.queue_id for _, work in rows]),
        "kinds": numbers([work.kind_id for _, work in rows]),
        "stale": numbers([int(work.is_stale) for _, work in rows]),
        "nice": numbers([work.nice for _, work in rows]),
        "not_before": [work.not_before for _, work in rows],
    }
