"""Sweeps: after a change of tasks or tags its items are refreshed, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store import failures, set_aside
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.registry import left_sweeps, rule_sweeps
from scrapy_itemgraph.store.registry.crawls import CRAWLS, OWN_ALL_CRAWLS, share_crawl
from scrapy_itemgraph.store.sql_conditions import IS_HELD
from scrapy_itemgraph.store.urls import marks
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection


SWEEP_STEP = 100
ANY_RUN = 2**31 - 1

# Where a task's change shows: its own tags, and those of the tasks that depend on it.
AFFECTED_TAGS = text("""
    SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = :task
    UNION
    SELECT tt.tag_name FROM task_dependencies d JOIN task_tags tt ON tt.task_id = d.task_id
    WHERE d.depends_on_id = :task
""")

OPEN_SWEEP = text("""
    INSERT INTO sweeps (crawl_id, task_id, tags, unhold) VALUES (:crawl, :task, :tags, :unhold)
""")

NEXT_SWEEP = text("""
    SELECT * FROM sweeps WHERE crawl_id = :crawl AND (:rules OR ruleset_id IS NULL)
        AND (left_run IS NULL OR left_run < :run)
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

SWEPT_ITEMS = text("""
    SELECT DISTINCT g.item_id
    FROM unnest(CAST(:tags AS text[])) AS swept(tag_name)
    CROSS JOIN LATERAL (
        SELECT tags.item_id FROM tags
        WHERE tags.crawl_id = :crawl AND tags.tag_name = swept.tag_name AND tags.item_id > :after
        ORDER BY tags.item_id LIMIT :limit) AS g
    ORDER BY g.item_id LIMIT :limit
""")

# Of items that no tag calls the task for any more, too: one may again.
HELD_ITEMS = text(f"""
    SELECT r.item_id FROM results r WHERE r.task_id = :task AND {IS_HELD} AND r.item_id > :after
    ORDER BY r.item_id LIMIT :limit
""")  # noqa: S608 - our own condition

HELD_PAIRS = text(f"""
    SELECT r.item_id, r.task_id FROM unnest(CAST(:items AS bigint[])) AS swept(id)
    JOIN results r ON r.item_id = swept.id AND r.task_id = :task
    WHERE {IS_HELD}
""")  # noqa: S608

ADVANCE_SWEEP = text("""
    UPDATE sweeps SET after_item_id = :after, swept = least(swept, 4000000000000000000) + :count
    WHERE id = :sweep
""")

CLOSE_SWEEP = text("DELETE FROM sweeps WHERE id = :sweep")

RENAME_TAG = text("""
    UPDATE tags g SET tag_name = :new
    WHERE g.crawl_id = :crawl AND g.tag_name = :old AND NOT EXISTS (
        SELECT FROM tags there WHERE there.item_id = g.item_id AND there.tag_name = :new)
""")

DROP_TAG = text("DELETE FROM tags WHERE crawl_id = :crawl AND tag_name = :old")


def open_sweep(
    connection: Connection,
    crawl_id: int,
    task_id: int | None,
    *,
    tags: Iterable[str] = (),
    unhold: bool = False,
) -> None:
    """Have the items refreshed that a task or its dependents are called for on, or `tags` are on.

    With `unhold`, failures of the task are handled and it may run again.
    """
    affected = connection.execute(AFFECTED_TAGS, {"task": task_id}).scalars()
    swept = sorted({*tags, *affected})
    row = {"crawl": crawl_id, "task": task_id, "tags": swept, "unhold": unhold}
    connection.execute(OPEN_SWEEP, row)


def sweep(
    connection: Connection,
    crawl_id: int,
    *,
    leaves_rules: bool = False,
    run: int = ANY_RUN,
) -> bool:
    """Do one step of the crawl's first open sweep, or else free some of its stash.

    Return whether there was something to do. Who cannot apply rules leaves them to others. A worker
    of a `run` leaves what that run left, as long as others are in it.
    """
    crawl = share_crawl(connection, crawl_id)
    asked = {"crawl": crawl_id, "rules": not leaves_rules, "run": run}
    row = connection.execute(NEXT_SWEEP, asked).first()
    if row is None:
        pages = crawl.dripfeed
        return pages is not None and set_aside.drip(connection, crawl_id, pages)
    if row.ruleset_id is not None:
        rule_sweeps.step(connection, crawl_id, row)
        return True
    if row.left_run is not None:
        left_sweeps.step(connection, crawl_id, row)
        return True
    step = {"crawl": crawl_id, "tags": row.tags, "after": row.after_item_id, "limit": SWEEP_STEP}
    items = list(connection.execute(SWEPT_ITEMS, step).scalars())
    if row.unhold:
        held_step = {"task": row.task_id, "after": row.after_item_id, "limit": SWEEP_STEP}
        held_items = connection.execute(HELD_ITEMS, held_step).scalars()
        items = sorted({*items, *held_items})[:SWEEP_STEP]
    locked = lock_items(connection, items)
    if row.unhold and locked:
        held = connection.execute(HELD_PAIRS, {"items": locked, "task": row.task_id}).all()
        pairs = [(pair.item_id, pair.task_id) for pair in held]
        failures.unhold(connection, pairs)
        failures.supersede(connection, pairs, by="version bump")
    urls = marks.Marking(connection, crawl_id, locked) if crawl.has_frontier else None
    if urls is not None:
        urls.mark(locked)
    refresh.refresh(connection, locked)
    if urls is not None:
        urls.count()
    if len(items) < SWEEP_STEP:
        connection.execute(CLOSE_SWEEP, {"sweep": row.id})
    else:
        advanced = {"sweep": row.id, "after": items[-1], "count": len(items)}
        connection.execute(ADVANCE_SWEEP, advanced)
    return True


def rename_tags(connection: Connection, renames: Mapping[str, str]) -> dict[str, int]:
    """Rename tags in the whole database; return how many items each old name was on."""
    if not renames:
        return {}
    connection.execute(OWN_ALL_CRAWLS)
    counts = dict.fromkeys(renames, 0)
    for crawl_id in list(connection.execute(CRAWLS).scalars()):
        for old, new in renames.items():
            if old == new:
                continue
            names = {"crawl": crawl_id, "old": old, "new": new}
            moved = connection.execute(RENAME_TAG, names).rowcount
            moved += connection.execute(DROP_TAG, names).rowcount
            counts[old] += moved
            if moved:
                sweep_row = {"crawl": crawl_id, "task": None, "tags": [new], "unhold": False}
                connection.execute(OPEN_SWEEP, sweep_row)
    return counts
