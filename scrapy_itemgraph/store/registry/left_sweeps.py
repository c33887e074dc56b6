"""What a run leaves that its spider closed: its outstanding pages are held as `left`, step by step.

Pages of plain callbacks are held, for the next run begins anew and finds what it wants by its own
links. Work of tasks, and pages with a time to live, stay outstanding. No step is done before the
processes of that run have left it: what they still commit may find pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.tasks import callback_tag
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection, Row

_LAST = 2**63 - 1  # above all items
STEP = 1000  # rows of work that are looked at in a transaction

# `tags` are those of the callbacks whose pages have a time to live.
OPEN = text("""
    INSERT INTO sweeps (crawl_id, tags, left_run, after_item_id)
    SELECT :crawl, :tags, :run, :after WHERE NOT EXISTS (
        SELECT FROM sweeps s WHERE s.crawl_id = :crawl AND s.left_run = :run)
""")

IS_OPEN = text("""
    SELECT EXISTS (SELECT FROM sweeps WHERE crawl_id = :crawl AND left_run < :before)
""")

LOCK_NEXT = text("""
    SELECT * FROM sweeps WHERE crawl_id = :crawl AND left_run < :before
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

# The next work of all crawls: work has an index by item, and none by crawl and item.
WAITING = text("""
    SELECT w.item_id, w.crawl_id = :crawl AND w.token IS NULL AS is_meant FROM work w
    WHERE w.item_id > :after ORDER BY w.item_id LIMIT :limit
""")

# A page that never ran gets a result of the run before: a link in a later run frees it, and so does
# one in this run, should work open it again. A request's own time to live stands in its data.
HOLD = text("""
    INSERT INTO results (item_id, task_id, task_version, is_successful, created_at, run, hold)
    SELECT w.item_id, t.id, t.version, false, clock_timestamp(),
        greatest(CAST(:run AS int), 1) - 1, 'left'
    FROM unnest(CAST(:items AS bigint[])) AS given(id)
    JOIN items i ON i.id = given.id AND strpos(CAST(i.data AS text), '"itemgraph_ttl"') = 0
    CROSS JOIN LATERAL (
        SELECT * FROM work WHERE work.item_id = given.id AND work.token IS NULL OFFSET 0) AS w
    JOIN tasks t ON t.id = w.task_id AND t.is_callback AND NOT EXISTS (
        SELECT FROM task_tags tt WHERE tt.task_id = t.id AND tt.tag_name = ANY (:kept))
    ORDER BY w.item_id, t.id
    ON CONFLICT (item_id, task_id) DO UPDATE SET hold = 'left', run = excluded.run
        WHERE results.hold IS NULL
    RETURNING item_id
""")

HAS_LEFT = text("""
    SELECT EXISTS (
        SELECT FROM tasks t CROSS JOIN LATERAL (
            SELECT FROM results r WHERE r.task_id = t.id AND r.hold = 'left' LIMIT 1) AS held
        WHERE t.crawl_id = :crawl)
""")

ADVANCE = text("""
    UPDATE sweeps SET after_item_id = :after, held = held + :held,
        swept = least(swept, 4000000000000000000) + :count
    WHERE id = :sweep
""")

CLOSE = text("DELETE FROM sweeps WHERE id = :sweep")

# What is still outstanding has nobody start the crawl: it waits for the next start, which wakes its
# queues, or for new work, which wakes a queue that is parked.
PARK = text("""
    UPDATE queues q SET is_live = false
    FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    WHERE c.id = :crawl AND r.number = :run AND r.is_closed
        AND q.crawl_id = c.id AND q.is_live
""")


def open_(
    connection: Connection, crawl_id: int, run: int, *, incremental: Collection[str] | None
) -> None:
    """Have the outstanding pages of a run held, but for those of incremental callbacks (None: all).

    Where all are incremental, its step has nothing to hold, and only parks the queues.
    """
    given = {"tags": sorted(map(callback_tag, incremental or ())), "run": run}
    after = _LAST if incremental is None else 0
    connection.execute(OPEN, {"crawl": crawl_id, "after": after, **given})


def do_step(connection: Connection, crawl_id: int, *, before: int) -> bool:
    """Do a step for a run before the given one, unless another process does; tell if that goes on.

    The caller shares the crawl's lock.
    """
    here = {"crawl": crawl_id, "before": before}
    row = connection.execute(LOCK_NEXT, here).first()
    if row is not None:
        step(connection, crawl_id, row)
    return bool(connection.execute(IS_OPEN, here).scalar_one())


def has_left(connection: Connection, crawl_id: int) -> bool:
    """Tell whether pages of a crawl are left."""
    return bool(connection.execute(HAS_LEFT, {"crawl": crawl_id}).scalar_one())


def step(connection: Connection, crawl_id: int, row: Row[Any]) -> int:
    """Do a step of a sweep whose row is locked; return how many pages were held.

    The caller shares the crawl's lock.
    """
    at = {"crawl": crawl_id, "after": row.after_item_id, "limit": STEP}
    rows = connection.execute(WAITING, at).all()
    held: set[int] = set()
    if found := sorted({one.item_id for one in rows if one.is_meant}):
        locked = lock_items(connection, found)
        given = {"items": locked, "run": row.left_run, "kept": row.tags}
        held = set(connection.execute(HOLD, given).scalars())
        refresh.refresh(connection, held)
    if len(rows) < STEP:
        connection.execute(CLOSE, {"sweep": row.id})
        connection.execute(PARK, {"crawl": crawl_id, "run": row.left_run})
    else:
        advanced = {"sweep": row.id, "after": rows[-1].item_id, "held": len(held)}
        connection.execute(ADVANCE, {**advanced, "count": len(found)})
    return len(held)
