"""Items that are added in bulk: what `apply` does with operations that do nothing but create items.

Nothing is looked up first, no draft is made that could be dropped: names are taken, and what others
have is known. It means the same as `apply`, which a property test holds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.changesets.state import slot_of
from scrapy_itemgraph.model import frontier, input_checks, item_names, moments
from scrapy_itemgraph.model.operations import CreateItem, tag_values
from scrapy_itemgraph.model.work import NEW, Note
from scrapy_itemgraph.postgres import copying
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.event_loop import LARGE_CHUNK
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.depths import links
from scrapy_itemgraph.store.urls import marks
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.operations import Operation, Tags
    from scrapy_itemgraph.store.registry.crawls import SharedCrawl


ITEMS = """items (name, data, created_by, nice, not_before, id, slot_id, crawl_id, created_at,
    updated_at)"""
OUTSIDE_ITEMS = ITEMS.replace(")", ", is_from_outside)")
TAGS = "tags (item_id, tag_name, value, crawl_id)"


class Addition(NamedTuple):
    """An item to be created, as it will be written."""

    slot: str
    not_before: datetime | timedelta | None
    row: str  # the first columns of ITEMS
    tag_rows: tuple[str, ...]  # what follows the item in rows of TAGS, but for the crawl
    alike: Hashable  # what decides about its work
    may_be_url: bool  # of a frontier


class Names(NamedTuple):
    """Names to be taken by one statement, sorted by key, and both as arrays."""

    names: tuple[str, ...]
    keys_array: str
    names_array: str


class Additions:
    """Items to be created, made ready without a database: most of what a client has to do.

    Another thread can make them while a transaction runs. `creations` are all of them, in their
    order; of one name the first counts. `notes` are those of items that are all new.
    """

    def __init__(self, creations: Sequence[CreateItem]) -> None:
        self.creations = creations
        self.by_name: dict[str, Addition] = {}
        # By the id of what is given, for most items are given the same.
        self._tags: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for one in creations:
            if one.id not in self.by_name:
                self.by_name[one.id] = self._addition(one)
        # Sorted by key: see store.items.TAKE_NAMES.
        hex_key = item_names.hex_key
        keys = sorted((hex_key(one), one) for one in self.by_name)
        self.keys = {name: key for key, name in keys}
        self.parts = [
            _names(keys[at : at + LARGE_CHUNK]) for at in range(0, len(keys), LARGE_CHUNK)
        ]
        self.notes = _notes(creations, set())

    def _addition(self, one: CreateItem) -> Addition:
        names, rows = self._texts(one.tags)
        nice = copying.NULL if one.nice is None else one.nice
        data = copying.field(input_checks.write_json(one.data))
        row = f"{copying.field(one.id)}\t{data}\t{copying.field(one.created_by)}\t{nice}\t"
        slot, start = slot_of(one), one.not_before
        alike = slot, one.nice, start, names
        return Addition(slot, start, row, rows, alike, frontier.TAG in names)

    def _texts(self, tags: Tags) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of tags, and all that is written of them."""
        if (known := self._tags.get(id(tags))) is None:
            values = dict(sorted(tag_values(tags).items()))
            texts = (f"{copying.field(tag)}\t{_json(value)}" for tag, value in values.items())
            known = self._tags[id(tags)] = tuple(values), tuple(texts)
        return known


def _names(pairs: Sequence[tuple[str, str]]) -> Names:
    keys, names = zip(*pairs, strict=True)
    return Names(names, text_array(keys), text_array(names))


def _json(value: Any) -> str:
    return copying.field(None if value is None else input_checks.write_json(value))


def of(operations: Iterable[Operation]) -> Additions | None:
    """Return checked operations if they do no more than create items, each with one name."""
    creations: list[CreateItem] = []
    for one in operations:
        if type(one) is not CreateItem or one.aliases or one.fail_if_exists or one.merge_tags:
            return None
        creations.append(one)
    return Additions(creations)


def add(
    connection: Connection,
    given: Additions,
    *,
    crawl: SharedCrawl,
    is_from_outside: bool = False,
) -> list[Note]:
    """Create the items whose names are free, in their order; return a note of each.

    Items that came over HTTP are marked as from outside.
    """
    crawl_id, now = crawl.id, crawl.now
    drawn = connection.execute(stored_items.NEXT_IDS, {"count": len(given.by_name)}).scalars()
    numbers = dict(zip(given.by_name, drawn, strict=True))
    known = _take(connection, crawl_id, given, numbers)
    if crawl.tracks_depth:
        _begin_paths(connection, crawl_id, given, numbers, known)
    new = [(numbers[name], one) for name, one in given.by_name.items() if name not in known]
    _write(connection, new, crawl_id, now, is_from_outside=is_from_outside)
    if crawl.has_frontier:
        marks.mark(connection, crawl_id, [number for number, one in new if one.may_be_url])
    groups: dict[Hashable, list[int]] = {}
    for number, one in new:
        groups.setdefault(one.alike, []).append(number)
    refresh.add_new(connection, groups.values(), crawl)
    return _notes(given.creations, known) if known else given.notes


def _take(
    connection: Connection, crawl_id: int, given: Additions, numbers: dict[str, int]
) -> set[str]:
    """Take names, each for its number, sorted by key; return those that others have."""
    lost: set[str] = set()
    for names, keys_array, names_array in given.parts:
        taken = {
            "crawl": crawl_id,
            "keys": keys_array,
            "names": names_array,
            "items": number_array([numbers[name] for name in names]),
        }
        lost.update(connection.execute(stored_items.TAKE_NAMES, taken).scalars())
    if lost:
        # Raises for two of one key.
        batch_names.resolve(connection, crawl_id, given.keys, list(lost))
    return lost


def _begin_paths(
    connection: Connection,
    crawl_id: int,
    given: Additions,
    numbers: Mapping[str, int],
    known: Collection[str],
) -> None:
    """Let a path begin at each page that is added, one that is there already included."""
    new = {number for name, number in numbers.items() if name not in known}
    there = links.owners(connection, crawl_id, [given.keys[name] for name in known])
    links.record(connection, crawl_id, links.Found(roots={*new, *there.values()}, new=new))


def _write(
    connection: Connection,
    new: Sequence[tuple[int, Addition]],
    crawl_id: int,
    now: datetime,
    *,
    is_from_outside: bool,
) -> None:
    """Write items with their tags."""
    slots = stored_slots.intern_slots(connection, {one.slot for _, one in new})
    end = "\tt\n" if is_from_outside else "\n"
    ends = {slot: f"\t{slot_id}\t{crawl_id}\t{now}\t{now}{end}" for slot, slot_id in slots.items()}
    rows = [
        f"{one.row}{_moment(one.not_before, now)}\t{number}{ends[one.slot]}" for number, one in new
    ]
    copying.copy(connection, OUTSIDE_ITEMS if is_from_outside else ITEMS, "".join(rows))
    tags = [f"{number}\t{row}\t{crawl_id}\n" for number, one in new for row in one.tag_rows]
    copying.copy(connection, TAGS, "".join(tags))


def _moment(start: datetime | timedelta | None, now: datetime) -> str:
    if start is None:
        return copying.NULL
    return str(moments.later(now, start) if isinstance(start, timedelta) else start)


def _notes(creations: Sequence[CreateItem], known: set[str]) -> list[Note]:
    """Return a note of each; one whose name is known, or was given before, is known."""
    notes: list[Note] = []
    seen = set(known)
    for one in creations:
        label = "known" if one.id in seen else NEW
        seen.add(one.id)
        shown = item_names.label(one.id, one.data)
        notes.append(Note(one.verb, label, one.id, shown))
    return notes
