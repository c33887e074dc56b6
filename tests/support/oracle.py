"""The oracle: the worklist of the notes as plain SQL, and the other invariants of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from scrapy_itemgraph.model import slots

if TYPE_CHECKING:
    from sqlalchemy import Connection

# The notes' worklist (design §4, SRAP-14…21): what tags call for, whose result is missing or no
# longer good, and whose dependencies are all good. `due_at` is null once an expiry was staged.
OUTSTANDING = sa.text("""
    WITH task_states AS (
        SELECT r.item_id, r.task_id, r.is_held OR r.hold IS NOT NULL AS is_held,
            r.completed_at IS NOT NULL AS has_run,
            r.completed_at IS NULL
                OR r.task_version IS DISTINCT FROM t.version
                OR r.invalidated_at IS NOT NULL
                OR (r.expires_at IS NOT NULL AND r.due_at IS NULL) AS is_candidate
        FROM results r JOIN tasks t ON t.id = r.task_id
        WHERE t.crawl_id = :crawl
    ),
    candidates AS (
        SELECT DISTINCT ON (i.id, t.id) i.id AS item_id, t.id AS task_id
        FROM items i
        INNER JOIN tags g ON g.item_id = i.id
        INNER JOIN task_tags m ON m.crawl_id = i.crawl_id AND m.tag_name = g.tag_name
        INNER JOIN tasks t ON t.id = m.task_id
        WHERE i.crawl_id = :crawl AND t.is_registered
    ),
    unsatisfied AS (
        SELECT c.item_id, c.task_id
        FROM candidates c
        INNER JOIN task_dependencies d ON d.task_id = c.task_id
        LEFT JOIN task_states s ON s.item_id = c.item_id AND s.task_id = d.depends_on_id
        WHERE s.item_id IS NULL OR s.is_candidate OR s.is_held
    ),
    worklist AS (
        SELECT c.item_id, c.task_id, false AS is_stale
        FROM candidates c LEFT JOIN task_states s USING (item_id, task_id)
        WHERE s.item_id IS NULL OR (NOT s.has_run AND NOT s.is_held)
        UNION
        SELECT c.item_id, c.task_id, true
        FROM candidates c INNER JOIN task_states s USING (item_id, task_id)
        WHERE s.has_run AND s.is_candidate AND NOT s.is_held
    )
    SELECT w.item_id, w.task_id, w.is_stale FROM worklist w
    WHERE NOT EXISTS (SELECT FROM unsatisfied u
        WHERE u.item_id = w.item_id AND u.task_id = w.task_id)
    AND NOT EXISTS (SELECT FROM depths p JOIN crawls c ON c.id = p.crawl_id
        WHERE p.item_id = w.item_id AND c.tracks_depth AND p.depth > c.depth_limit)
""")

# Items that a sweep has yet to reach, or that are to be refreshed for their depth or the limit.
SWEPT_LATER = sa.text("""
    SELECT DISTINCT g.item_id FROM sweeps s
    JOIN tags g ON g.crawl_id = s.crawl_id AND g.tag_name = ANY (s.tags)
    WHERE s.crawl_id = :crawl AND g.item_id > s.after_item_id
    UNION
    SELECT w.item_id FROM depth_work w WHERE w.crawl_id = :crawl AND w.kind = 0
    UNION
    SELECT i.id FROM items i JOIN depth_sweeps s ON s.crawl_id = i.crawl_id
    WHERE i.crawl_id = :crawl
""")

WORK = sa.text("""
    SELECT w.*, k.task_id AS kind_of, q.crawl_id AS queue_of, q.slot_id AS queue_slot, q.is_live,
        i.id IS NOT NULL AS has_item, coalesce(t.slot_id, i.slot_id) AS slot_id,
        coalesce(i.nice, t.nice) AS own_nice, t.is_enabled AND t.is_registered AS is_open
    FROM work w
    JOIN tasks t ON t.id = w.task_id
    JOIN kinds k ON k.id = w.kind_id
    JOIN queues q ON q.id = w.queue_id
    LEFT JOIN items i ON i.id = w.item_id
    WHERE w.crawl_id = :crawl
""")

NAMES = sa.text("""
    SELECT a.name, a.item_id, i.name AS canonical
    FROM aliases a LEFT JOIN items i ON i.id = a.item_id AND i.crawl_id = a.crawl_id
    WHERE a.crawl_id = :crawl
""")
ITEMS = sa.text("""
    SELECT i.id, i.name, i.data, s.name AS slot FROM items i JOIN limits s ON s.id = i.slot_id
    WHERE i.crawl_id = :crawl
""")
LEFT = sa.text("""
    SELECT * FROM (
        SELECT item_id, 'tag ' || tag_name FROM tags
        UNION ALL SELECT item_id, 'result of task ' || task_id FROM results
        UNION ALL SELECT item_id, 'blob ' || name FROM blobs
        UNION ALL SELECT item_id, 'name ' || name FROM aliases WHERE item_id IS NOT NULL
        UNION ALL SELECT coalesce(moved_to, item_id), 'depth ' || depth FROM depths
        UNION ALL SELECT parent_id, 'links' FROM links) AS rows
    WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = rows.item_id)
""")

# Open failures of pairs that are not held, and expiries that are neither staged nor due.
UNHELD_FAILURES = sa.text("""
    SELECT f.item_id, f.task_id FROM failures f
    JOIN tasks t ON t.id = f.task_id
    LEFT JOIN results r ON r.item_id = f.item_id AND r.task_id = f.task_id
    WHERE t.crawl_id = :crawl AND f.handled_at IS NULL AND r.is_held IS NOT TRUE
""")
WRONG_DUES = sa.text("""
    SELECT r.item_id, r.task_id FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE t.crawl_id = :crawl AND r.due_at IS DISTINCT FROM r.expires_at
        AND r.due_at IS NOT NULL
""")

# Work of a run that its spider closed wakes nobody before the next start; nor does it beside the
# new work that has opened such a run again, until a process joins that.
MAY_SLEEP = sa.text("""
    SELECT EXISTS (
        SELECT FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
        WHERE c.id = :crawl AND (r.is_closed OR (r.continued_at IS NOT NULL AND NOT EXISTS (
            SELECT FROM processes p
            WHERE p.crawl_id = c.id AND p.started_at >= r.continued_at))))
""")

# Of runs: one that its spider closed is over, only the last one is ever opened again, and what was
# left by one is of a plain callback and was done before that, so that a link frees it.
WRONG_RUNS = sa.text("""
    SELECT 'closed, but not over: run ' || r.number FROM runs r
    WHERE r.crawl_id = :crawl AND r.is_closed AND NOT r.is_finished
    UNION ALL
    SELECT 'opened again, but not the last: run ' || r.number
    FROM runs r JOIN crawls c ON c.id = r.crawl_id
    WHERE r.crawl_id = :crawl AND r.number < c.run
        AND r.continued_at IS NOT NULL AND NOT r.is_finished
    UNION ALL
    SELECT 'left, but of a task: item ' || r.item_id FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE t.crawl_id = :crawl AND r.hold = 'left' AND NOT t.is_callback
    UNION ALL
    SELECT 'left for good: item ' || r.item_id
    FROM tasks t JOIN results r ON r.task_id = t.id JOIN crawls c ON c.id = t.crawl_id
    WHERE t.crawl_id = :crawl AND r.hold = 'left' AND r.run >= c.run
    UNION ALL
    SELECT 'led to a known page, but not done: item ' || r.item_id
    FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE t.crawl_id = :crawl AND r.led_to IS NOT NULL AND r.completed_at IS NULL
""")


def assert_worklist_is_true(connection: Connection, crawl_id: int) -> None:
    """Check invariants 1 and 2, and that unclaimed work stands where it belongs."""
    assert_names_are_true(connection, crawl_id)
    assert_rows_have_items(connection)
    crawl = {"crawl": crawl_id}
    swept = set(connection.execute(SWEPT_LATER, crawl).scalars())
    outstanding = {(r.item_id, r.task_id): r for r in connection.execute(OUTSTANDING, crawl)}
    standing = {(r.item_id, r.task_id): r for r in connection.execute(WORK, crawl)}

    missing = [p for p in outstanding if p not in standing and p[0] not in swept]
    assert not missing, f"outstanding, but no work: {missing}"

    unclaimed = {p: row for p, row in standing.items() if row.token is None and p[0] not in swept}
    needless = [pair for pair in unclaimed if pair not in outstanding]
    assert not needless, f"unclaimed work that is not outstanding: {needless}"

    for pair, row in unclaimed.items():
        assert row.has_item, f"work {pair} of no item"
        assert row.is_stale == outstanding[pair].is_stale, f"work {pair} has the wrong rank"
        assert row.kind_of == row.task_id, f"work {pair} has another task's kind"
        assert row.queue_of == crawl_id, f"work {pair} stands in another crawl's queue"
        assert row.nice == row.own_nice, f"work {pair} has the wrong nice"
        assert row.is_refiled or row.queue_slot == row.slot_id, f"work {pair} in the wrong queue"
    asleep = [
        (row.item_id, row.task_id)
        for row in standing.values()
        if row.token is None and row.not_before is None and not row.is_suspect and row.is_open
        if not row.is_live
    ]
    asleep = [] if connection.scalar(MAY_SLEEP, crawl) else asleep
    assert not asleep, f"work that no claim would find, as its queue is parked: {asleep}"

    unheld = connection.execute(UNHELD_FAILURES, crawl).all()
    assert not unheld, f"open failures of pairs that are not held: {unheld}"
    assert not connection.execute(WRONG_DUES, crawl).all()
    wrong = connection.execute(WRONG_RUNS, crawl).scalars().all()
    assert not wrong, f"of runs: {wrong}"


def assert_rows_have_items(connection: Connection) -> None:
    """Check that the item of every name, tag and result is there; no foreign key does."""
    left = connection.execute(LEFT).all()
    assert not left, f"rows of items that are gone: {left}"


def assert_names_are_true(connection: Connection, crawl_id: int) -> None:
    """Check invariant 1: every item has its own id as alias, and no alias points to nowhere."""
    names = connection.execute(NAMES, {"crawl": crawl_id}).all()
    items = connection.execute(ITEMS, {"crawl": crawl_id}).all()
    owners = {row.name: row.item_id for row in names}

    selfless = [item.name for item in items if owners.get(item.name) != item.id]
    assert not selfless, f"items without their self-alias: {selfless}"
    # Single-level: an alias holds an item's number, so a chain could only end at no item.
    broken = [row.name for row in names if row.item_id is not None and row.canonical is None]
    assert not broken, f"aliases of items that are gone: {broken}"
    misplaced = [item.name for item in items if item.slot != slots.slot_of(item.data)]
    assert not misplaced, f"items whose slot is not that of their data: {misplaced}"
