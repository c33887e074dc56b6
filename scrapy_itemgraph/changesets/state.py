"""What a batch knows of the graph while it runs: names, items, results, in memory.

Each changeset works on a `Draft` over the batch's `State`; a draft that fails is dropped, one that
succeeds becomes part of the state. Nothing here touches the database.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scrapy_itemgraph.model import input_checks, operations, slots
from scrapy_itemgraph.model.operations import tag_values
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.tools.parted_dict import mapping_for

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from uuid import UUID

    from scrapy_itemgraph.model.due_times import Expiry
    from scrapy_itemgraph.model.operations import CreateItem, Operation
    from scrapy_itemgraph.model.work import Pair
    from scrapy_itemgraph.store.slots import SentLimits

K = TypeVar("K")
V = TypeVar("V")

_TURN = timedelta(microseconds=1)  # between two changesets of a batch

# Those that change what requests are made of: data, names, tags, metadata.
_MARKING = frozenset(
    {
        operations.CreateItem,
        operations.UpdateData,
        operations.RenameItem,
        operations.MergeItem,
        operations.CreateAlias,
        operations.AddTag,
        operations.UpdateMetadata,
        operations.StoreResult,
    }
)

TOMBSTONE = 0
"""Owner of a name that stays taken after its item was deleted; item ids begin at 1."""


@dataclass(slots=True)
class Result:
    """A row of `results`; `is_pending` while the execution that completes it still runs.

    `run` is the number of the run in which it was completed or held last; what is left was
    outstanding when the spider closed that run. `is_freed`: it was left, and is free again.
    """

    version: str
    metadata: dict[str, Any] = field(default_factory=dict)
    is_successful: bool = False
    is_held: bool = False
    created_at: datetime | None = None
    completed_at: datetime | None = None
    invalidated_at: datetime | None = None
    expires_at: datetime | None = None
    due_at: datetime | None = None
    ttl_overridden: bool = False
    run: int = 1
    is_left: bool = False
    is_pending: bool = False
    is_changed: bool = True
    led_to: UUID | None = None
    validators: str | None = None  # as JSON
    is_freed: bool = False

    def is_fresh(self, version: str) -> bool:
        """Tell whether it is complete, of the version in force, and not stale."""
        is_expired = self.expires_at is not None and self.due_at is None
        return (
            self.completed_at is not None
            and self.version == version
            and self.invalidated_at is None
            and not is_expired
        )

    def is_before(self, moment: datetime) -> bool:
        """Tell whether it is from before a moment, and neither held nor expired since."""
        if self.is_held or self.completed_at is None:
            return False
        return max(self.completed_at, self.invalidated_at or self.completed_at) < moment

    @property
    def ttl(self) -> timedelta | None:
        """How long after its completion it expires; None: it does not, or is not complete."""
        if self.completed_at is None or self.expires_at is None:
            return None
        return self.expires_at - self.completed_at

    @property
    def is_gone(self) -> bool:
        """Whether it is held because its page is no more: `store.sql_conditions: IS_GONE`."""
        return self.is_held and self.is_successful

    def make_stale(self, now: datetime) -> None:
        """Have it be made again, whatever it is."""
        self.free()
        self.invalidated_at = now
        self.is_held = False
        self.is_changed = True

    def free(self) -> None:
        """Have it be left no more."""
        if self.is_left:
            self.is_left, self.is_freed = False, True

    def expire_at(self, moment: datetime | None, now: datetime, *, overridden: bool) -> None:
        """Set when the result expires; if that is to come, it has still to be staged for it.

        What was gone until then is looked for again.
        """
        self.expires_at = moment
        self.due_at = None if moment is None or moment <= now else moment
        if moment is not None and moment <= now and self.is_gone:
            self.is_held = False
        self.ttl_overridden = overridden
        self.is_changed = True


class Blob(NamedTuple):
    """A row of `blobs`: the number of its content, its type, and when it was attached."""

    content: int
    mime: str | None
    attached_at: datetime


@dataclass(slots=True)
class Item:
    """A row of `items` with its tags, names, results and, where they matter, blobs."""

    id: int
    name: str
    data: dict[str, Any]
    slot: str
    created_by: str | None = None
    nice: int | None = None
    not_before: datetime | None = None
    updated_at: datetime | None = None
    has_blobs: bool | None = None
    is_from_outside: bool | None = None
    tags: dict[str, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    results: dict[int, Result] = field(default_factory=dict)
    is_new: bool = False
    is_changed: bool = False
    is_deleted: bool = False
    set_tags: set[str] = field(default_factory=set)
    dropped_tags: set[str] = field(default_factory=set)
    blobs: Mapping[str, Blob] = field(default_factory=dict)  # replaced, never changed
    written_blobs: Mapping[str, Blob | None] = field(default_factory=dict)  # likewise
    owns_data: bool = False  # nobody else has its data, which may be changed in place
    is_marked: bool = False  # as from outside, by this batch

    def copy(self) -> Item:
        """Return a copy whose containers are its own; values in them are replaced, not mutated."""
        return replace(
            self,
            tags=dict(self.tags),
            names=set(self.names),
            set_tags=set(self.set_tags),
            dropped_tags=set(self.dropped_tags),
            results={task: replace(result) for task, result in self.results.items()},
            owns_data=False,
        )

    def mark(self, *, is_from_outside: bool | None) -> None:
        """Take note that somebody outside the project's code had a hand in it, if so."""
        if is_from_outside and not self.is_from_outside:
            self.is_from_outside = self.is_marked = True

    def set_tag(self, tag: str, value: Any) -> None:
        """Add a tag, or set its value."""
        self.tags[tag] = value
        self.set_tags.add(tag)
        self.dropped_tags.discard(tag)

    def drop_tag(self, tag: str) -> None:
        """Take a tag off, if it is there."""
        if tag in self.tags:
            del self.tags[tag]
            self.set_tags.discard(tag)
            self.dropped_tags.add(tag)

    def set_blob(self, name: str, blob: Blob) -> None:
        """Attach a blob, in the place of what has its name."""
        self.blobs = {**self.blobs, name: blob}
        self.written_blobs = {**self.written_blobs, name: blob}

    def drop_blob(self, name: str) -> None:
        """Take a blob off, if it is there."""
        if name in self.blobs:
            self.blobs = {key: blob for key, blob in self.blobs.items() if key != name}
            self.written_blobs = {**self.written_blobs, name: None}

    def take_blobs(self, gone: Item) -> None:
        """Take over the blobs of an item that is merged into this; of a name the later one."""
        for name, blob in gone.blobs.items():
            own = self.blobs.get(name)
            if own is None or blob.attached_at > own.attached_at:
                self.set_blob(name, blob)


def slot_of(operation: CreateItem) -> str:
    """Return the slot that the data of an item to be created names."""
    if isinstance(operation, EnqueueRequest):
        return operation.slot
    return slots.slot_of(operation.data)


class New(NamedTuple):
    """An item to be created that nothing has looked at since: little more than its operation."""

    operation: CreateItem
    names: tuple[str, ...]
    created_by: str | None
    not_before: datetime | None
    slot: str
    turn: int  # of the changeset that creates it: see State

    @property
    def text(self) -> str:
        """Its data, as JSON."""
        operation = self.operation
        if isinstance(operation, EnqueueRequest):
            return operation.text
        return input_checks.write_json(dict(operation.data))

    def item(self, number: int, moment: datetime) -> Item:
        """Return the item that it becomes, to be looked at or changed."""
        item = Item(
            id=number,
            name=self.operation.id,
            data=dict(self.operation.data),
            slot=self.slot,
            created_by=self.created_by,
            nice=self.operation.nice,
            not_before=self.not_before,
            updated_at=moment,
            names=set(self.names),
            is_new=True,
            is_changed=True,
        )
        for tag, value in tag_values(self.operation.tags).items():
            item.set_tag(tag, value)
        return item


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in force."""

    id: int
    name: str
    version: str
    ttl: timedelta | None
    is_registered: bool
    is_callback: bool = False
    is_stopped: bool = False  # by `max_failures`
    expiry: Expiry | None = None  # None: its results expire by `ttl`


@dataclass(frozen=True, slots=True)
class Handled:
    """The open failures of a pair were handled."""

    pair: Pair
    by: str = "superseded"


@dataclass(frozen=True, slots=True)
class Moved:
    """The open failures of a pair went, with its result, to the same task of another item."""

    pair: Pair
    into: int


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A failure of a pair, which an execution of this batch ended with."""

    pair: Pair


@dataclass(slots=True)
class Effects:
    """What a changeset did besides changing items: to be written in the flush, and logged."""

    failures: list[Handled | Moved | Found] = field(default_factory=list)
    items_moved: dict[int, int] = field(default_factory=dict)  # where merges took them

    def add(self, other: Effects) -> None:
        """Take another's effects over."""
        self.failures += other.failures
        self.items_moved.update(other.items_moved)

    def settled_failures(self) -> tuple[dict[Pair | Found, str], dict[Pair | Found, int]]:
        """Return what becomes of open failures: by whom handled, or to which item moved.

        The stored ones of a pair go by the pair. What was handled before a merge stays where it
        was; what a merge brought is handled with what was there.
        """
        here: dict[Pair, list[Pair | Found]] = {}
        handled: dict[Pair | Found, str] = {}
        for event in self.failures:
            origins = here.get(event.pair, [event.pair])
            here[event.pair] = []
            if isinstance(event, Found):
                here[event.pair] = [*origins, event]
            elif isinstance(event, Handled):
                handled |= dict.fromkeys(origins, event.by)
            else:
                target = (event.into, event.pair[1])
                here[target] = [*here.get(target, [target]), *origins]
        moved = {
            origin: place[0]
            for place, origins in here.items()
            for origin in origins
            if origin != place
        }
        return handled, moved


@dataclass(slots=True)
class State:
    """The batch's view of the graph: what was loaded, and what its changesets made of it.

    `size` is how many operations are to run, `run` the number of the crawl's run. `candidates` are
    numbers drawn for items that may be created, `spares` those for items that are created again
    under a name that was freed; `reserved` are the names inserted by this batch with the number
    that stands there; `stored_owners` is what others had stored, and `owners` where the batch has
    changed that. `taken` are names that somebody has, whoever that is. `turn` is the place of the
    changeset that runs in the batch, from 0: each has a moment of its own, for merges keep what is
    later. `is_from_outside` tells that the batch came over HTTP, `is_marking` that the operation
    that runs marks its items so. `sent_slots` asks for slots that may be needed. `links` has by
    unchanged page the results of an earlier run of what it links to.
    """

    crawl_id: int
    now: datetime
    tasks: dict[str, TaskRow]
    size: int = 0
    run: int = 0
    turn: int = 0
    is_from_outside: bool = False
    is_marking: bool = False
    sent_slots: SentLimits | None = None
    links: Mapping[int, list[Pair]] = field(default_factory=dict)
    owners: MutableMapping[str, int | None] = field(init=False)
    items: dict[int, Item] = field(default_factory=dict)
    new: MutableMapping[int, New] = field(default_factory=dict)
    candidates: MutableMapping[str, int] = field(init=False)
    spares: list[int] = field(default_factory=list)
    reserved: MutableMapping[str, int | None] = field(init=False)
    stored_owners: MutableMapping[str, int | None] = field(init=False)
    claimed_pairs: set[Pair] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    attached: int = 0  # blobs, so far
    effects: Effects = field(default_factory=Effects)

    def __post_init__(self) -> None:
        self.owners = mapping_for(self.size)
        self.candidates = mapping_for(self.size)
        self.reserved = mapping_for(self.size)
        self.stored_owners = mapping_for(self.size)

    def begins(self, operation: Operation) -> None:
        """Take note of the operation that runs: what it changes may be from outside by that."""
        self.is_marking = self.is_from_outside and type(operation) in _MARKING

    @property
    def moment(self) -> datetime:
        """When the changeset that runs does what it does."""
        return self.moment_of(self.turn)

    def moment_of(self, turn: int) -> datetime:
        """Return the moment of a changeset of the batch."""
        return self.now + turn * _TURN

    def turn_of(self, moment: datetime | None) -> int:
        """Return which changeset of the batch did what has a moment of it."""
        return 0 if moment is None else (moment - self.now) // _TURN

    def owner(self, name: str) -> int | None:
        """Return who has a name by now: an item's number, TOMBSTONE, or None."""
        return self.owners[name] if name in self.owners else self.stored_owners.get(name)

    def survivor(self, item_id: int) -> Item | None:
        """Return the item that an item is now, through merges; None if it was deleted."""
        went = self.effects.items_moved
        path: list[int] = []
        while item_id in went:
            path.append(item_id)
            item_id = went[item_id]
        for passed in path:  # the next way through a long chain of merges is short
            went[passed] = item_id
        item = self.items.get(item_id)
        return None if item is None or item.is_deleted else item

    def task_numbered(self, task_id: int) -> TaskRow:
        """Return a task in force by its number."""
        return next(row for row in self.tasks.values() if row.id == task_id)


class Draft:
    """One changeset's changes, over a state that stays as it is until `keep`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.effects = Effects()
        self._owners: MutableMapping[str, int | None] = mapping_for(state.size)
        self._items: dict[int, Item] = {}
        self._new: MutableMapping[int, New] = {}

    def owner(self, name: str) -> int | None:
        """Return who has a name: an item's number, TOMBSTONE, or None."""
        return self._owners[name] if name in self._owners else self.state.owner(name)

    def give(self, name: str, owner: int | None) -> None:
        """Give a name to an item, to nobody for ever (TOMBSTONE), or back (None)."""
        self._owners[name] = owner

    def item(self, item_id: int) -> Item | None:
        """Return an item to look at or change; None when it is gone."""
        item = self._items.get(item_id)
        if item is None:
            there = self.state.items.get(item_id)
            new = self._new.pop(item_id, None) or self.state.new.get(item_id)
            if there is not None:
                item = there.copy()
            elif new is not None:
                item = new.item(item_id, self.state.moment_of(new.turn))
            else:
                return None
            self._items[item_id] = item
        item.mark(is_from_outside=self.state.is_marking)
        return None if item.is_deleted else item

    def new_number(self, name: str) -> int:
        """Return the number of the item that is created under a name."""
        state = self.state
        number = state.candidates[name]
        is_used = number in self._new or number in self._items
        is_used = is_used or number in state.new or number in state.items
        return state.spares.pop() if is_used else number

    def add(self, number: int, new: New) -> None:
        """Add a new item."""
        self._new[number] = new

    def keep(self) -> None:
        """Make the draft part of the state."""
        self.state.owners = _joined(self.state.owners, self._owners)
        self.state.items.update(self._items)
        self.state.new = _joined(self.state.new, self._new)
        for number in self._items.keys() & self.state.new.keys():
            del self.state.new[number]
        self.state.effects.add(self.effects)


def _joined(old: MutableMapping[K, V], new: MutableMapping[K, V]) -> MutableMapping[K, V]:
    """Return the union of two mappings, in which what is new counts; the larger is taken over."""
    if len(old) >= len(new):
        old.update(new)
        return old
    for key, value in old.items():
        new.setdefault(key, value)
    return new
