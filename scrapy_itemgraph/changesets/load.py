"""Reads and locks what a batch needs, with a number of statements that does not grow with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.changesets.state import TOMBSTONE, Item, Pair, Result, State, TaskRow
from scrapy_itemgraph.model.operations import Expire
from scrapy_itemgraph.postgres.engine import rest, slices
from scrapy_itemgraph.store.columns import text_array

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.operations import Operation

TASKS = text("""
    SELECT id, name, version, ttl, is_registered, is_callback FROM tasks WHERE crawl_id = :crawl
""")

LOCK = text("""
    SELECT i.id, i.name, i.data, s.name AS slot, i.created_by, i.nice, i.not_before, i.updated_at
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    JOIN limits s ON s.id = i.slot_id
    FOR NO KEY UPDATE OF i
""")

TAGS = text("""
    SELECT g.item_id, g.tag_name, g.value FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN tags g ON g.item_id = wanted.id
""")

NAMES = text("""
    SELECT a.item_id, a.name FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN aliases a ON a.item_id = wanted.id
""")

RESULTS = text("""
    SELECT r.item_id, r.task_id, r.task_version, r.metadata, r.is_successful, r.is_held,
        r.created_at, r.completed_at, r.invalidated_at, r.expires_at, r.due_at, r.ttl_overridden,
        false AS is_pending, false AS is_changed
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN results r ON r.item_id = wanted.id
""")

# Work that nobody has or is about to take: locked, it is claimed after us and sees what we did.
LOCK_UNCLAIMED = text("""
    SELECT w.item_id, w.task_id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN work w ON w.item_id = wanted.id
    WHERE w.token IS NULL
    FOR UPDATE OF w SKIP LOCKED
""")

WORK = text("""
    SELECT w.item_id, w.task_id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN work w ON w.item_id = wanted.id
""")


def load(
    connection: Connection,
    crawl_id: int,
    operations: Sequence[Operation],
    claimed_items: Collection[int],
    now: datetime,
) -> State:
    """Take or resolve all names, then lock and load the items that the operations may change.

    Raises:
        MovedNamesError: when a name changed hands meanwhile.

    """
    rows = connection.execute(TASKS, {"crawl": crawl_id})
    tasks = {row.name: TaskRow(*row) for row in rows}
    state = State(crawl_id=crawl_id, now=now, tasks=tasks)
    mentioned = batch_names.Mentioned.by(slices(connection, operations))
    keys = batch_names.keyed(connection, mentioned.existing | mentioned.takeable)
    rest(connection, len(keys))
    names = list(keys)
    rest(connection, len(names))
    if names:
        state.stored_owners = batch_names.resolve(connection, crawl_id, keys, names)
        batch_names.take(connection, state, mentioned, keys)
    rest(connection, len(names))
    state.owners = dict(state.stored_owners)
    owned = {state.owners.get(name) for name in mentioned.existing} - {None, TOMBSTONE}
    wanted = {*claimed_items, *(owner for owner in owned if owner is not None)}
    existing = [name for name in names if name in mentioned.existing] if mentioned.existing else []
    tombstones = [name for name in existing if state.owners.get(name) == TOMBSTONE]
    if tombstones:
        wanted_keys = text_array(keys[name] for name in tombstones)
        connection.execute(batch_names.LOCK_TOMBSTONES, {"crawl": crawl_id, "keys": wanted_keys})
    _load_items(connection, state, sorted(wanted))
    if existing and (owned or tombstones):
        batch_names.check_still(
            state, batch_names.resolve(connection, crawl_id, keys, existing), existing
        )
    if any(isinstance(operation, Expire) for operation in operations) and state.items:
        state.claimed_pairs = _claimed_pairs(connection, sorted(state.items))
    return state


def _claimed_pairs(connection: Connection, items: list[int]) -> set[Pair]:
    """Return the pairs that are claimed, or being claimed while we look."""
    given = {"items": items}
    free = {tuple(row) for row in connection.execute(LOCK_UNCLAIMED, given).all()}
    return {(row.item_id, row.task_id) for row in connection.execute(WORK, given)} - free


def _load_items(connection: Connection, state: State, item_ids: Sequence[int]) -> None:
    if not item_ids:
        return
    for row in connection.execute(LOCK, {"items": list(item_ids)}).all():
        state.items[row.id] = Item(*row)
    there = {"items": sorted(state.items)}
    for item_id, tag, value in connection.execute(TAGS, there).all():
        state.items[item_id].tags[tag] = value
    for item_id, name in connection.execute(NAMES, there).all():
        state.items[item_id].names.add(name)
        state.owners[name] = state.stored_owners[name] = item_id
    for item_id, task_id, *result in connection.execute(RESULTS, there).all():
        state.items[item_id].results[task_id] = Result(*result)
