"""Items that are added in bulk: what `apply` does with operations that do nothing but create items.

Nothing is looked up first, no draft is made that could be dropped: names are taken, and what others
have is known. It means the same as `apply`, which a property test holds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_itemgraph.changesets import batch_names, flush
from scrapy_itemgraph.changesets.state import State, slot_of
from scrapy_itemgraph.model import input_checks, item_names
from scrapy_itemgraph.model.operations import CreateItem, tag_values
from scrapy_itemgraph.model.work import NEW, Note
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.engine import SLICE, WIDE
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.operations import Operation, Tags

    _TagTexts = tuple[tuple[str, str | None], ...]  # names, with their values as JSON


class Addition(NamedTuple):
    """An item to be created, as it will be written."""

    operation: CreateItem
    slot: str
    text: str  # its data, as JSON
    tags: _TagTexts
    alike: Hashable  # what decides about its work


class Additions:
    """Items to be created, made ready without a database: most of what a client has to do.

    Another thread can make them while a transaction runs. `creations` are all of them, in their
    order; of one name the first counts.
    """

    def __init__(self, creations: Sequence[CreateItem]) -> None:
        self.creations = creations
        self.by_name: dict[str, Addition] = {}
        # By the id of what is given, for most items are given the same.
        self._tags: dict[int, tuple[tuple[str, ...], _TagTexts]] = {}
        for one in creations:
            if one.id not in self.by_name:
                self.by_name[one.id] = self._addition(one)
        # Sorted by key: see store.items.TAKE_NAMES.
        hex_key = item_names.hex_key
        self.keys = {name: key for key, name in sorted((hex_key(one), one) for one in self.by_name)}

    def _addition(self, one: CreateItem) -> Addition:
        (names, tags), slot = self._texts(one.tags), slot_of(one)
        alike = slot, one.nice, one.not_before, names
        return Addition(one, slot, input_checks.write_json(one.data), tags, alike)

    def _texts(self, tags: Tags) -> tuple[tuple[str, ...], _TagTexts]:
        """Return the names of tags, and all that is written of them."""
        if (known := self._tags.get(id(tags))) is None:
            values = dict(sorted(tag_values(tags).items()))
            texts = tuple((tag, _json(value)) for tag, value in values.items())
            known = self._tags[id(tags)] = tuple(values), texts
        return known


def _json(value: Any) -> str | None:
    return None if value is None else input_checks.write_json(value)


def of(operations: Iterable[Operation]) -> Additions | None:
    """Return checked operations if they do no more than create items, each with one name."""
    creations: list[CreateItem] = []
    for one in operations:
        if type(one) is not CreateItem or one.aliases or one.fail_if_exists or one.merge_tags:
            return None
        creations.append(one)
    return Additions(creations)


def add(connection: Connection, given: Additions, *, crawl_id: int, now: datetime) -> list[Note]:
    """Create the items whose names are free, in their order; return a note of each."""
    drawn = connection.execute(stored_items.NEXT_IDS, {"count": len(given.by_name)}).scalars()
    numbers = dict(zip(given.by_name, drawn, strict=True))
    known = _take(connection, crawl_id, given.keys, numbers)
    new = [(numbers[name], one) for name, one in given.by_name.items() if name not in known]
    _write(connection, new, State(crawl_id=crawl_id, now=now, tasks={}))
    groups: dict[Hashable, list[int]] = {}
    for number, one in new:
        groups.setdefault(one.alike, []).append(number)
    refresh.refresh(connection, (), new=groups.values())
    return _notes(given, known)


def _take(
    connection: Connection, crawl_id: int, keys: dict[str, str], numbers: dict[str, int]
) -> set[str]:
    """Take names, each for its number, sorted by key; return those that others have."""
    pairs = list(keys.items())
    lost: set[str] = set()
    for at in range(0, len(pairs), WIDE):
        part = pairs[at : at + WIDE]
        taken = {
            "crawl": crawl_id,
            "keys": text_array([key for _, key in part]),
            "names": text_array([name for name, _ in part]),
            "items": number_array([numbers[name] for name, _ in part]),
        }
        lost.update(connection.execute(stored_items.TAKE_NAMES, taken).scalars())
    if lost:
        batch_names.resolve(connection, crawl_id, keys, list(lost))  # raises for two of one key
    return lost


def _write(connection: Connection, new: Sequence[tuple[int, Addition]], state: State) -> None:
    """Write items with their tags."""
    slot_ids = stored_slots.intern_slots(connection, {one.slot for _, one in new})
    for at in range(0, len(new), SLICE):
        part = new[at : at + SLICE]
        rows = [
            (number, slot, made.id, made.created_by, made.nice, not_before, text)
            for number, (made, slot, text, _, _) in part
            for not_before in [_moment(made.not_before, state.now)]
        ]
        flush.insert_items(connection, rows, state, slot_ids)
        tags = [(number, tag, value) for number, one in part for tag, value in one.tags]
        flush.add_tags(connection, tags, state)


def _moment(start: datetime | timedelta | None, now: datetime) -> datetime | None:
    return now + start if isinstance(start, timedelta) else start


def _notes(given: Additions, known: set[str]) -> list[Note]:
    notes: list[Note] = []
    seen = set(known)
    for one in given.creations:
        label = "known" if one.id in seen else NEW
        seen.add(one.id)
        shown = item_names.label(one.id, one.data)
        notes.append(Note(one.verb, label, one.id, shown))
    return notes
