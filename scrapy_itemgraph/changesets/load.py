"""Reads and locks what a batch needs, with a number of statements that does not grow with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.changesets.state import TOMBSTONE, Blob, Item, Result, TaskRow
from scrapy_itemgraph.model.due_times import stored_expiry
from scrapy_itemgraph.model.operations import AttachBlob, DetachBlob, Expire, MergeItem, RenameItem
from scrapy_itemgraph.postgres.arrays import array, number_array, text_array
from scrapy_itemgraph.postgres.event_loop import (
    CHUNK,
    LARGE_CHUNK,
    chunks,
    clear_gradually,
    gradually,
    sorted_chunks,
)
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store.sql_conditions import IS_STOPPED, SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection, CursorResult, TextClause

    from scrapy_itemgraph.changesets.state import State
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.work import Pair

TASKS = text(f"""
    SELECT t.id, t.name, t.version, t.ttl, t.is_registered, t.is_callback,
        t.is_callback AND t.max_failures IS NOT NULL AND {IS_STOPPED} AS is_stopped,
        {SCHEDULE} AS schedule
    FROM tasks t WHERE t.crawl_id = :crawl
""")  # noqa: S608 - our own conditions

# No join with what may change meanwhile: of an item that another commit gives another slot while
# we wait for its lock, PostgreSQL would find that it joins no more, and leave the item out.
LOCK = text("""
    SELECT i.id, i.name, i.data, (SELECT s.name FROM limits s WHERE s.id = i.slot_id) AS slot,
        i.created_by, i.nice, i.not_before, i.updated_at, i.has_blobs, i.is_from_outside
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
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
        coalesce(r.run, 1) AS run, coalesce(r.hold = 'left', false) AS is_left,
        false AS is_pending, false AS is_changed, r.led_to,
        CAST(r.validators AS text) AS validators
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN results r ON r.item_id = wanted.id
""")

OF_EARLIER_RUNS = text("""
    SELECT DISTINCT wanted.id
    FROM unnest(CAST(:items AS bigint[]), CAST(:bounds AS int[])) AS wanted(id, run)
    JOIN results r ON r.item_id = wanted.id
    WHERE coalesce(r.run, 1) < wanted.run
""")

OF_BEFORE = text("""
    SELECT DISTINCT wanted.id
    FROM unnest(CAST(:items AS bigint[]), CAST(:bounds AS timestamptz[])) AS wanted(id, moment)
    JOIN results r ON r.item_id = wanted.id
    WHERE r.completed_at < wanted.moment AND r.invalidated_at IS NULL AND NOT r.is_held
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

_OF_BLOBS = frozenset({AttachBlob, DetachBlob, MergeItem, RenameItem})


def send_tasks(connection: Connection, crawl_id: int) -> CursorResult[*tuple[Any, ...]]:
    """Ask for a crawl's tasks; `read_tasks` reads the answer."""
    return connection.execute(TASKS, {"crawl": crawl_id})


def read_tasks(answer: CursorResult[*tuple[Any, ...]]) -> dict[str, TaskRow]:
    """Return a crawl's tasks by name."""
    return {row.name: _task(row) for row in answer}


def _task(row: Any) -> TaskRow:
    *columns, schedule = row
    found = TaskRow(*columns)
    return found if schedule is None else replace(found, expiry=stored_expiry(schedule))


def load(
    connection: Connection,
    state: State,
    operations: Sequence[Operation],
    claimed_items: Collection[int],
) -> None:
    """Take or resolve all names, then lock and load the items that the operations may change.

    Raises:
        MovedNamesError: when a name changed hands meanwhile.

    """
    crawl_id = state.crawl_id
    mentioned = batch_names.Mentioned.by(gradually(connection, operations, CHUNK), len(operations))
    names, keys = batch_names.keyed(connection, mentioned.names, mentioned.count)
    taking = batch_names.Taking(connection, state, mentioned, names, keys)
    if names:
        taking.draw_numbers()
        state.stored_owners = batch_names.resolve(connection, crawl_id, keys, names)
        taking.take()
    if mentioned.existing or mentioned.again or mentioned.changed:
        taking.settle()  # who has a name that is spoken of has to be known first
    old = _old(connection, state, OF_EARLIER_RUNS, mentioned.again)
    old |= _old(connection, state, OF_BEFORE, mentioned.changed)
    existing = _in_use(connection, names, mentioned.existing | old)
    owned, tombstones = _owners(connection, state, existing)
    for part in chunks(connection, tombstones, LARGE_CHUNK):
        wanted_keys = text_array(keys[name] for name in part)
        connection.execute(batch_names.LOCK_TOMBSTONES, {"crawl": crawl_id, "keys": wanted_keys})
    wanted = owned | set(claimed_items)
    items = [_send_items(connection, part) for part in sorted_chunks(connection, wanted, CHUNK)]
    taking.settle()
    for (rows,) in chunks(connection, items, 1):
        _read_items(rows, state)
    items.clear()
    _check_owners(connection, state, names)
    if not mentioned.kinds.isdisjoint(_OF_BLOBS):
        _read_blobs(connection, state)
    if owned or tombstones:
        batch_names.check_still(connection, state, keys, existing)
    if Expire in mentioned.kinds and state.items:
        for numbers in sorted_chunks(connection, state.items, CHUNK):
            state.claimed_pairs |= _claimed_pairs(connection, numbers)
    clear_gradually(connection, keys, mentioned.existing, mentioned.again, mentioned.created)
    clear_gradually(connection, mentioned.others, mentioned.changed)


def _old(
    connection: Connection, state: State, statement: TextClause, bounds: Mapping[str, Any]
) -> set[str]:
    """Return the names of requests whose items have a result before the given run or moment.

    Only these are locked: most links lead to what this run has seen.
    """
    owners = state.stored_owners
    of_items: dict[int, Any] = {}
    for name in gradually(connection, bounds):
        owner = owners.get(name)
        if owner is not None and owner != TOMBSTONE:
            of_items[owner] = max(bounds[name], of_items.get(owner, bounds[name]))
    old: set[int] = set()
    for items in sorted_chunks(connection, of_items):
        given = {"items": number_array(items), "bounds": array([of_items[one] for one in items])}
        old.update(connection.execute(statement, given).scalars())
    return {
        name for name in gradually(connection, bounds if old else ()) if owners.get(name) in old
    }


def _in_use(connection: Connection, names: Sequence[str], existing: Collection[str]) -> list[str]:
    """Return those of the names, in their order, that are spoken of as existing."""
    return [name for name in gradually(connection, names if existing else ()) if name in existing]


def _owners(
    connection: Connection, state: State, names: Sequence[str]
) -> tuple[set[int], list[str]]:
    """Return the numbers of the items that have names, and the names that only stay taken."""
    owned: set[int] = set()
    tombstones: list[str] = []
    for name in gradually(connection, names):
        owner = state.stored_owners.get(name)
        if owner == TOMBSTONE:
            tombstones.append(name)
        elif owner is not None:
            owned.add(owner)
    return owned, tombstones


def _claimed_pairs(connection: Connection, items: list[int]) -> set[Pair]:
    """Return the pairs that are claimed, or being claimed while we look."""
    given = {"items": items}
    free = {tuple(row) for row in connection.execute(LOCK_UNCLAIMED, given).all()}
    return {(row.item_id, row.task_id) for row in connection.execute(WORK, given)} - free


class _Rows(NamedTuple):
    """What was asked for of some items."""

    items: CursorResult[*tuple[Any, ...]]
    tags: CursorResult[*tuple[Any, ...]]
    names: CursorResult[*tuple[Any, ...]]
    results: CursorResult[*tuple[Any, ...]]


def _send_items(connection: Connection, item_ids: Sequence[int]) -> _Rows:
    """Lock items and ask for all that they have, as of when they are locked."""
    given = {"items": number_array(item_ids)}
    return _Rows(*(connection.execute(one, given) for one in (LOCK, TAGS, NAMES, RESULTS)))


def _read_items(rows: _Rows, state: State) -> None:
    items = state.items
    for row in rows.items.all():
        if row.slot is None:  # the slot was made after the statement began
            raise batch_names.MovedNamesError(row.name)
        items[row.id] = Item(*row)
    for item_id, tag, value in rows.tags:
        items[item_id].tags[tag] = value
    for item_id, name in rows.names:
        items[item_id].names.add(name)
        state.stored_owners[name] = item_id
    for item_id, task_id, *result in rows.results:
        items[item_id].results[task_id] = Result(*result)


def _check_owners(connection: Connection, state: State, names: Sequence[str]) -> None:
    """Raise MovedNamesError if an item lost one of the names between their look-up and its lock."""
    items, owners = state.items, state.stored_owners
    for name in gradually(connection, names if items else ()):
        item = items.get(owners.get(name) or 0)
        if item is not None and name not in item.names:
            raise batch_names.MovedNamesError(name)


def _read_blobs(connection: Connection, state: State) -> None:
    """Read the blobs of the items that have some."""
    having = [item.id for item in state.items.values() if item.has_blobs]
    for part in chunks(connection, having):
        for row in connection.execute(stored_blobs.OF_ITEMS, {"items": number_array(part)}):
            item = state.items[row.item_id]
            blob = Blob(row.content_id, row.mime, row.attached_at)
            item.blobs = {**item.blobs, row.name: blob}
