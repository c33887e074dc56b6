"""Reads and locks what a batch needs, with a number of statements that does not grow with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.changesets.state import TOMBSTONE, Item, Pair, Result, State, TaskRow
from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import (
    CreateItem,
    DeleteAlias,
    DeleteItem,
    EnqueueRequest,
    Expire,
    UpdateData,
)
from scrapy_itemgraph.postgres.engine import SLICE, WIDE, rest, slices
from scrapy_itemgraph.postgres.pipelining import Pipeline
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.columns import number_array, text_array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.operations import Operation

TASKS = text("""
    SELECT id, name, version, ttl, is_registered, is_callback FROM tasks WHERE crawl_id = :crawl
""")

RESOLVE = text("""
    SELECT a.key, a.name, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    CROSS JOIN LATERAL (
        SELECT * FROM aliases WHERE crawl_id = :crawl AND aliases.key = wanted.key OFFSET 0) AS a
""")

NEXT_IDS = text("SELECT nextval('items_id_seq') FROM generate_series(1, :count)")

# Names that stay taken after a deletion have no item whose lock would cover them.
LOCK_TOMBSTONES = text("""
    SELECT a.key FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    JOIN aliases a ON a.crawl_id = :crawl AND a.key = wanted.key
    WHERE a.item_id IS NULL
    FOR NO KEY UPDATE OF a
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
    SELECT r.* FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
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


class MovedNamesError(Exception):
    """A name went to another item while its owner was waited for; the batch begins anew."""


@dataclass(frozen=True, slots=True)
class Mentioned:
    """The names that a batch's operations speak of."""

    existing: AbstractSet[str]
    takeable: AbstractSet[str]
    created: Mapping[str, str]
    creations: Sequence[str]
    frees_names: bool

    @classmethod
    def by(cls, parts: Iterable[Sequence[Operation]]) -> Mentioned:
        """Collect the names of operations, which are given in parts.

        `created` maps each name to the item it would name.
        """
        existing: set[str] = set()
        takeable: set[str] = set()
        created: dict[str, str] = {}
        creations: list[str] = []
        frees_names = False
        for operation in chain.from_iterable(parts):
            if isinstance(operation, EnqueueRequest):  # a page may yield a great many
                takeable.add(operation.id)
                creations.append(operation.id)
                created.setdefault(operation.id, operation.id)
                if operation.again_before is not None:
                    existing.add(operation.id)
                continue
            existing |= operation.named()
            takeable |= operation.claimed_names()
            if isinstance(operation, CreateItem):
                creations.append(operation.id)
                for name in (operation.id, *operation.aliases):
                    created.setdefault(name, operation.id)
            elif isinstance(operation, UpdateData) and operation.upsert and operation.id:
                creations.append(operation.id)
                created.setdefault(operation.id, operation.id)
            frees_names = frees_names or isinstance(operation, (DeleteItem, DeleteAlias))
        return cls(existing, takeable, created, creations, frees_names)


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
    mentioned = Mentioned.by(slices(connection, operations))
    keys = _keyed(connection, mentioned.existing | mentioned.takeable)
    rest(connection, len(keys))
    names = list(keys)
    rest(connection, len(names))
    if names:
        state.stored_owners = _resolve(connection, crawl_id, keys, names)
        _take_names(connection, state, mentioned, keys)
    rest(connection, len(names))
    state.owners = dict(state.stored_owners)
    owned = {state.owners.get(name) for name in mentioned.existing} - {None, TOMBSTONE}
    wanted = {*claimed_items, *(owner for owner in owned if owner is not None)}
    existing = [name for name in names if name in mentioned.existing] if mentioned.existing else []
    tombstones = [name for name in existing if state.owners.get(name) == TOMBSTONE]
    if tombstones:
        wanted_keys = text_array(keys[name] for name in tombstones)
        connection.execute(LOCK_TOMBSTONES, {"crawl": crawl_id, "keys": wanted_keys})
    _load_items(connection, state, sorted(wanted))
    if existing and (owned or tombstones):
        _check_still(state, _resolve(connection, crawl_id, keys, existing), existing)
    if any(isinstance(operation, Expire) for operation in operations) and state.items:
        state.claimed_pairs = _claimed_pairs(connection, sorted(state.items))
    return state


def _claimed_pairs(connection: Connection, items: list[int]) -> set[Pair]:
    """Return the pairs that are claimed, or being claimed while we look."""
    given = {"items": items}
    free = {tuple(row) for row in connection.execute(LOCK_UNCLAIMED, given).all()}
    return {(row.item_id, row.task_id) for row in connection.execute(WORK, given)} - free


def _keyed(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return names with their keys, in the order of their keys, as all sort them everywhere."""
    buckets: list[list[tuple[str, str]]] = [[] for _ in range(len(names) // WIDE + 1)]
    for part in slices(connection, list(names), WIDE):
        for name in part:
            key = item_names.hex_key(name)
            buckets[int(key[:8], 16) * len(buckets) >> 32].append((key, name))
    keys: dict[str, str] = {}
    for (bucket,) in slices(connection, buckets, 1):
        keys.update((name, key) for key, name in sorted(bucket))
        bucket.clear()  # not all at once in the end
    return keys


def _resolve(
    connection: Connection, crawl_id: int, keys: Mapping[str, str], names: Sequence[str]
) -> dict[str, int | None]:
    owners: dict[str, int | None] = {}
    for part in slices(connection, names, WIDE):
        wanted = text_array([keys[name] for name in part])
        found = connection.execute(RESOLVE, {"crawl": crawl_id, "keys": wanted}).all()
        by_key = {keys[name]: name for name in part} if found else {}
        for row in found:
            if (other := by_key[row.key.hex]) != row.name:
                raise DatabaseError(
                    f"the ids {other!r} and {row.name!r} have the same key; rename one of them"
                )
            owners[row.name] = TOMBSTONE if row.item_id is None else row.item_id
    return owners


def _take_names(
    connection: Connection, state: State, mentioned: Mentioned, keys: Mapping[str, str]
) -> None:
    """Take the names that are free, each for the item that would be created with it."""
    takeable = [name for name in keys if name in mentioned.takeable]
    rest(connection, len(takeable))
    free = [name for name in takeable if name not in state.stored_owners]
    rest(connection, len(free))
    may_be_created = set(takeable if mentioned.frees_names else free)
    rest(connection, len(may_be_created))
    mains = [name for name in dict.fromkeys(mentioned.creations) if name in may_be_created]
    rest(connection, len(mains))
    # A name that is freed may be created more than once, each time as another item.
    spares = len(mentioned.creations) if mentioned.frees_names else 0
    numbers: list[int] = []
    for drawn in slices(connection, range(len(mains) + spares), WIDE):
        numbers += connection.execute(NEXT_IDS, {"count": len(drawn)}).scalars()
    state.candidates = dict(zip(mains, numbers, strict=False))
    state.spares = numbers[len(mains) :]
    rest(connection, len(mains))
    # Ours until the transaction ends, but nobody's until an operation gives them.
    late: list[str] = []
    with Pipeline(connection, len(free)) as ahead:
        for at in range(0, len(free), SLICE):
            part = free[at : at + SLICE]
            owners = [state.candidates.get(mentioned.created.get(name, "")) for name in part]
            given = {
                "crawl": state.crawl_id,
                "keys": text_array([keys[name] for name in part]),
                "names": text_array(part),
                "items": number_array(owners),
            }
            state.reserved.update(zip(part, owners, strict=True))
            ahead.execute(
                stored_items.TAKE_NAMES, given, then=lambda lost: late.extend(lost.scalars())
            )
    for name in late:
        del state.reserved[name]
    if late:
        state.stored_owners |= _resolve(connection, state.crawl_id, keys, late)


def _check_still(state: State, now: Mapping[str, int | None], names: Sequence[str]) -> None:
    for name in names:
        if name not in state.reserved and now.get(name) != state.owners.get(name):
            raise MovedNamesError(name)


def _load_items(connection: Connection, state: State, item_ids: Sequence[int]) -> None:
    if not item_ids:
        return
    for row in connection.execute(LOCK, {"items": list(item_ids)}).all():
        state.items[row.id] = Item(*row)
    there = {"items": sorted(state.items)}
    for row in connection.execute(TAGS, there).all():
        state.items[row.item_id].tags[row.tag_name] = row.value
    for row in connection.execute(NAMES, there).all():
        state.items[row.item_id].names.add(row.name)
        state.owners[row.name] = state.stored_owners[row.name] = row.item_id
    for row in connection.execute(RESULTS, there).all():
        state.items[row.item_id].results[row.task_id] = Result(
            version=row.task_version,
            metadata=row.metadata,
            is_successful=row.is_successful,
            is_held=row.is_held,
            created_at=row.created_at,
            completed_at=row.completed_at,
            invalidated_at=row.invalidated_at,
            expires_at=row.expires_at,
            due_at=row.due_at,
            ttl_overridden=row.ttl_overridden,
            is_changed=False,
        )
