"""Names of a batch: resolved, taken where they are free before anything is decided, and written."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.changesets.state import TOMBSTONE
from scrapy_itemgraph.changesets.taken_names import FREEING
from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.event_loop import (
    LARGE_CHUNK,
    chunks,
    clear_gradually,
    gradually,
)
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.tools.parted_dict import mapping_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.changesets.state import State
    from scrapy_itemgraph.model.operations import Operation

RESOLVE = text("""
    SELECT a.key, a.name, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    CROSS JOIN LATERAL (
        SELECT * FROM aliases WHERE crawl_id = :crawl AND aliases.key = wanted.key OFFSET 0) AS a
""")

# Names that stay taken after a deletion have no item whose lock would cover them.
LOCK_TOMBSTONES = text("""
    SELECT a.key FROM (
        SELECT CAST(:crawl AS int) AS crawl_id, key FROM unnest(CAST(:keys AS uuid[])) AS given(key)
        OFFSET 0) AS wanted
    JOIN aliases a ON a.crawl_id = wanted.crawl_id AND a.key = wanted.key
    WHERE a.item_id IS NULL
    FOR NO KEY UPDATE OF a
""")

# The crawl is a column of what is joined, which OFFSET 0 keeps so: of a crawl that the statistics
# do not know, all names would be read and each be looked for in the batch.
SET_OWNERS = text("""
    UPDATE aliases a SET item_id = new.item_id
    FROM (
        SELECT CAST(:crawl AS int) AS crawl_id, given.*
        FROM unnest(CAST(:keys AS uuid[]), CAST(:items AS bigint[])) AS given(key, item_id)
        OFFSET 0) AS new
    WHERE a.crawl_id = new.crawl_id AND a.key = new.key
""")

ADD_NAMES = text("""
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, * FROM unnest(CAST(:keys AS uuid[]), CAST(:names AS text[]),
        CAST(:items AS bigint[]))
""")


class MovedNamesError(Exception):
    """A name went to another item while its owner was waited for, or that got a new slot.

    The batch begins anew.
    """


@dataclass(frozen=True, slots=True)
class Mentioned:
    """The names that a batch's operations speak of, and the classes of these.

    `again` has the names of requests whose results of runs before the given number are to become
    stale, `changed` those whose results from before a moment are. `created` maps each name to the
    item that it would name, `mains` has the items' own names in the order of mention, `others` are
    names that others may take, and `creations` is how often items may be created.
    """

    existing: set[str]
    again: MutableMapping[str, int]
    changed: MutableMapping[str, datetime]
    created: MutableMapping[str, str]
    mains: list[str]
    others: set[str]
    creations: int
    kinds: AbstractSet[type[Operation]]

    @property
    def frees_names(self) -> bool:
        """Whether a name may be freed."""
        return not self.kinds.isdisjoint(FREEING)

    @property
    def names(self) -> Iterator[str]:
        """All names; one may be there twice."""
        return chain(self.created, self.existing, self.others)

    @property
    def count(self) -> int:
        """How many these are."""
        return len(self.created) + len(self.existing) + len(self.others)

    def may_take(self, name: str) -> bool:
        """Tell whether a name may be taken."""
        return name in self.created or name in self.others

    @classmethod
    def by(cls, operations: Iterable[Operation], count: int = 0) -> Mentioned:
        """Collect the names of about `count` operations."""
        existing: set[str] = set()
        others: set[str] = set()
        creations = _Creations(count)
        again: MutableMapping[str, int] = mapping_for(count)
        changed: MutableMapping[str, datetime] = mapping_for(count)
        kinds: set[type[Operation]] = set()
        for operation in operations:
            if isinstance(operation, EnqueueRequest):  # a page may yield a great many
                creations.add(operation.id)
                if operation.again is not None:
                    again[operation.id] = max(operation.again, again.get(operation.id, 0))
                if (moment := operation.changed_at) is not None:
                    changed[operation.id] = max(moment, changed.get(operation.id, moment))
                continue
            kinds.add(type(operation))
            existing |= operation.named()
            if isinstance(operation, CreateItem):
                creations.add(operation.id)
                for name in operation.aliases:
                    creations.owners.setdefault(name, operation.id)
                continue
            others |= operation.claimed_names()
            if isinstance(operation, UpdateData) and operation.upsert and operation.id:
                creations.add(operation.id)
        return cls(
            existing,
            again,
            changed,
            creations.owners,
            creations.mains,
            others,
            creations.count,
            kinds,
        )


class _Creations:
    """The names of items that may be created, as `Mentioned` has them."""

    def __init__(self, count: int) -> None:
        self.owners: MutableMapping[str, str] = mapping_for(count)
        self.mains: list[str] = []
        self.count = 0
        self._aliases: set[str] = set()  # names of items that were others' aliases before

    def add(self, name: str) -> None:
        """Add an item's own name."""
        self.count += 1
        owner = self.owners.get(name)
        if owner is None:
            self.owners[name] = name
            self.mains.append(name)
        elif owner != name and name not in self._aliases:
            self._aliases.add(name)
            self.mains.append(name)


def keyed(
    connection: Connection, given: Iterable[str], count: int
) -> tuple[list[str], MutableMapping[str, str]]:
    """Return so many names in the order of their keys, and the key of each.

    All who take or lock names do so in that order.
    """
    buckets: list[set[tuple[str, str]]] = [set() for _ in range(count // LARGE_CHUNK + 1)]
    for name in gradually(connection, given):
        key = item_names.hex_key(name)
        buckets[int(key[:8], 16) * len(buckets) >> 32].add((key, name))
    names: list[str] = []
    keys: MutableMapping[str, str] = mapping_for(count)
    for (bucket,) in chunks(connection, buckets, 1):
        for key, name in sorted(bucket):
            names.append(name)
            keys[name] = key
        bucket.clear()  # not all at once in the end
    return names, keys


def resolve(
    connection: Connection, crawl_id: int, keys: Mapping[str, str], names: Sequence[str]
) -> MutableMapping[str, int | None]:
    """Return who has names, by their numbers or TOMBSTONE; a name that nobody has is not in it."""
    owners: MutableMapping[str, int | None] = mapping_for(len(names))
    for part in chunks(connection, names, LARGE_CHUNK):
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


class Taking:
    """The names of a batch that are free, being taken: each for the item it would be created for.

    They are ours until the transaction ends, but nobody's until an operation gives them. The steps
    are done in order; `take` reads the numbers that were drawn, `settle` who was quicker.
    """

    def __init__(
        self,
        connection: Connection,
        state: State,
        mentioned: Mentioned,
        names: Sequence[str],
        keys: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._state = state
        self._mentioned = mentioned
        self._names = names
        self._keys = keys
        self._mains: list[str] = []
        self._drawn: list[CursorResult[*tuple[Any, ...]]] = []
        self._sent: list[CursorResult[*tuple[Any, ...]]] = []

    def draw_numbers(self) -> None:
        """Ask for a number for each item that may be created, in the order of mention.

        That is before it is known which exist, for one answer is quicker than two.
        """
        self._mains = self._mentioned.mains
        # A name that is freed may be created more than once, each time as another item.
        spares = self._mentioned.creations if self._mentioned.frees_names else 0
        for drawn in chunks(self._connection, range(len(self._mains) + spares), LARGE_CHUNK):
            self._drawn.append(
                self._connection.execute(stored_items.NEXT_IDS, {"count": len(drawn)})
            )

    def take(self) -> None:
        """Take the names that nobody has."""
        connection, state, mentioned = self._connection, self._state, self._mentioned
        stored = state.stored_owners
        free = [
            name
            for name in gradually(connection, self._names)
            if name not in stored and mentioned.may_take(name)
        ]
        numbers: list[int] = []
        for (answer,) in chunks(connection, self._drawn, 1):
            numbers += answer.scalars()
        self._number(numbers)
        for part in chunks(connection, free):
            owners = [state.candidates.get(mentioned.created.get(name, "")) for name in part]
            given = {
                "crawl": state.crawl_id,
                "keys": text_array([self._keys[name] for name in part]),
                "names": text_array(part),
                "items": number_array(owners),
            }
            state.reserved.update(zip(part, owners, strict=True))
            self._sent.append(connection.execute(stored_items.TAKE_NAMES, given))
        clear_gradually(connection, free, numbers)

    def _number(self, numbers: Sequence[int]) -> None:
        """Give the items that may be created their numbers."""
        state, frees_names = self._state, self._mentioned.frees_names
        for place, name in enumerate(gradually(self._connection, self._mains)):
            if frees_names or name not in state.stored_owners:
                state.candidates[name] = numbers[place]
        state.spares = list(numbers[len(self._mains) :])
        self._drawn.clear()

    def settle(self) -> None:
        """Find out who was quicker, if anybody."""
        state = self._state
        late: list[str] = []
        for (answer,) in chunks(self._connection, self._sent, 1):
            late += answer.scalars()
        self._sent.clear()
        for name in late:
            del state.reserved[name]
        if late:
            found = resolve(self._connection, state.crawl_id, self._keys, late)
            state.stored_owners.update(found)


def check_still(
    connection: Connection, state: State, keys: Mapping[str, str], names: Sequence[str]
) -> None:
    """Raise MovedNamesError if a name is another's by now than when the items were looked up."""
    for part in chunks(connection, names, LARGE_CHUNK):
        now = resolve(connection, state.crawl_id, keys, part)
        for name in part:
            if name not in state.reserved and now.get(name) != state.stored_owners.get(name):
                raise MovedNamesError(name)


def write(connection: Connection, state: State) -> bool:
    """Bring `aliases` from what is stored, with the names reserved by us, to what is now owned.

    Returns whether a name is free that others had stored.
    """
    dropped: list[str] = []
    added: list[str] = []
    changed: list[str] = []
    stored, reserved = state.stored_owners, state.reserved
    for names in (reserved, state.owners):
        for name in gradually(connection, names):
            there = stored.get(name)
            if name in reserved:
                there = reserved[name] or TOMBSTONE
            owner = state.owner(name)
            is_seen = names is state.owners and name in reserved
            if owner == there or is_seen:
                continue
            (dropped if owner is None else added if there is None else changed).append(name)
    if dropped:
        connection.execute(
            stored_items.DROP_NAMES, {"crawl": state.crawl_id, "keys": _keys(dropped)}
        )
    if changed:
        owners = [state.owners[name] or None for name in changed]
        connection.execute(
            SET_OWNERS, {"crawl": state.crawl_id, "keys": _keys(changed), "items": owners}
        )
    if added:
        connection.execute(
            ADD_NAMES,
            {
                "crawl": state.crawl_id,
                "keys": _keys(added),
                "names": added,
                "items": [state.owners[name] or None for name in added],
            },
        )
    return any(name in state.stored_owners for name in dropped)


def _keys(names: Iterable[str]) -> list[Any]:
    return [item_names.name_key(name) for name in names]
