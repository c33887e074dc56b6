"""What each operation on items, names and blobs does to a draft: one function a class."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_itemgraph.changesets.state import (
    TOMBSTONE,
    Blob,
    Draft,
    Handled,
    Item,
    Moved,
    New,
    Result,
    TaskRow,
    slot_of,
)
from scrapy_itemgraph.changesets.taken_names import is_settled
from scrapy_itemgraph.exceptions import (
    InvalidDataError,
    ItemNotFoundError,
    NameTakenError,
    OperationError,
)
from scrapy_itemgraph.model import input_checks, item_names, moments, slots
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.work import NEW, Note
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from scrapy_itemgraph.model.work import Claim

O = TypeVar("O", bound=ops.Operation)  # noqa: E741 - the conventional name of the type of `o`
_APPLIERS: dict[type[ops.Operation], Callable[[ChangesetRun, Any], None]] = {}


def applies(
    cls: type[O],
) -> Callable[[Callable[[ChangesetRun, O], None]], Callable[[ChangesetRun, O], None]]:
    """Make a function the applier of a class of operations."""

    def register(function: Callable[[ChangesetRun, O], None]) -> Callable[[ChangesetRun, O], None]:
        _APPLIERS[cls] = function
        return function

    return register


@dataclass(slots=True)
class ChangesetRun:
    """One changeset's operations being carried out, in the order in which they were yielded."""

    draft: Draft
    claim: Claim | None
    current: int | None
    notes: list[Note] = field(default_factory=list)
    updated: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    deleted_names: set[str] = field(default_factory=set)
    own_name: str | None = None  # of the item under work, when it is deleted
    own_expired: bool = False
    own_ttl: ops.SetTTL | None = None

    def apply(self, operation: ops.Operation) -> None:
        """Carry one operation out.

        Raises:
            OperationError: naming the operation and what is wrong with it.

        """
        kind = type(operation).__name__
        self.draft.state.begins(operation)
        try:
            _APPLIERS[type(operation)](self, operation)
        except OperationError as error:
            raise type(error)(f"{kind}: {error}") from None
        except Exception as error:
            raise OperationError(f"{kind}: {_raised(error)}") from error

    def note(
        self, operation: ops.Operation, label: str, *parts: Item | ops.CreateItem | str
    ) -> None:
        """Note what an operation did, in words and the items that they are about."""
        if isinstance(operation, EnqueueRequest):  # a page may yield a great many
            self.notes.append(Note(operation.verb, label, operation.id, operation.shown))
            return
        text = " ".join(one if isinstance(one, str) else _name(one) for one in parts)
        shown = " ".join(one if isinstance(one, str) else _label(one) for one in parts)
        self.notes.append(Note(operation.verb, label, text, shown))

    def item(self, name: str | None) -> Item:
        """Return the item of a name, or the item under work."""
        if name is None:
            return self.own_item()
        owner = self.draft.owner(name)
        item = self.draft.item(owner) if owner else None
        if item is None:
            raise ItemNotFoundError(f"there is no item {name!r}")
        return item

    def own_item(self) -> Item:
        """Return the item under work, where its renames and merges took it."""
        if self.claim is None:
            raise OperationError("id must be given outside an execution")
        item = self.draft.item(self.current) if self.current is not None else None
        if item is None:
            raise OperationError(
                "the item under work was deleted by this execution; name another one with id="
            )
        return item

    def task(self, name: str) -> TaskRow:
        """Return a task in force."""
        tasks = self.draft.state.tasks
        if name not in tasks:
            raise OperationError(f"there is no task {name!r}{closest(name, tasks)}")
        return tasks[name]

    def tasks_meant(self, name: str | None, item: Item) -> list[TaskRow]:
        """Return the named task; without a name this task, or outside all that ran or run."""
        if name is not None:
            return [self.task(name)]
        if self.claim is not None:
            return [self.draft.state.task_numbered(self.claim.task_id)]
        claimed = self.draft.state.claimed_pairs
        return [
            row
            for row in self.draft.state.tasks.values()
            if row.id in item.results or (item.id, row.id) in claimed
        ]

    def is_own(self, item: Item, task: TaskRow) -> bool:
        """Whether this is the pair that the execution will complete."""
        return self.claim is not None and (item.id, task.id) == (self.current, self.claim.task_id)

    def update(self, item: Item) -> None:
        """Note that an item's data or metadata changes; it cannot be deleted too."""
        if item.id in self.deleted:
            raise OperationError(f"the item {item.name!r} is deleted by this execution")
        self.updated.add(item.id)


def _name(one: Item | ops.CreateItem) -> str:
    return one.name if isinstance(one, Item) else one.id


def _label(one: Item | ops.CreateItem) -> str:
    return one.shown if isinstance(one, EnqueueRequest) else item_names.label(_name(one), one.data)


@applies(ops.CreateItem)
def create_item(run: ChangesetRun, operation: ops.CreateItem) -> None:
    """Create an item unless its name is taken."""
    owner = run.draft.owner(operation.id)
    if owner is not None:
        _meet_existing(run, operation, owner)
        return
    if is_settled(operation, run.draft.state.taken):
        run.note(operation, "known", operation)
        return
    taken = [alias for alias in operation.aliases if run.draft.owner(alias) is not None]
    if taken and operation.fail_if_exists:
        raise NameTakenError(f"the alias {taken[0]!r} exists already")
    create(run, operation)


def create(run: ChangesetRun, operation: ops.CreateItem) -> None:
    """Create an item under its free names."""
    now = run.draft.state.now
    not_before = operation.not_before
    if isinstance(not_before, timedelta):
        not_before = moments.later(now, not_before)
    number = run.draft.new_number(operation.id)
    names = (operation.id, *operation.aliases)
    if len(names) > 1:
        names = tuple(name for name in names if run.draft.owner(name) is None)
    for name in names:
        run.draft.give(name, number)
    created_by = operation.created_by or _creator(run)
    turn = run.draft.state.turn
    new = New(operation, names, created_by, not_before, slot_of(operation), turn)
    run.draft.add(number, new)
    run.note(operation, NEW, operation)


def _creator(run: ChangesetRun) -> str | None:
    item = run.draft.item(run.current) if run.claim and run.current is not None else None
    return run.own_name if item is None else item.name


def _meet_existing(run: ChangesetRun, operation: ops.CreateItem, owner: int) -> None:
    if operation.fail_if_exists:
        raise NameTakenError(f"{operation.id!r} exists already")
    item = run.draft.item(owner) if operation.merge_tags and owner != TOMBSTONE else None
    missing = {
        tag: value
        for tag, value in ops.tag_values(operation.tags).items()
        if item is not None and tag not in item.tags
    }
    if item is not None and missing:
        for tag, value in missing.items():
            item.set_tag(tag, value)
        run.note(operation, "tagged", item, ", ".join(missing))
    else:
        run.note(operation, "known", operation)


@applies(ops.RenameItem)
def rename_item(run: ChangesetRun, operation: ops.RenameItem) -> None:
    """Give an item another canonical id; the old one stays as an alias."""
    item = run.item(operation.id)
    owner = run.draft.owner(operation.to)
    if owner is not None and owner != item.id:
        if operation.if_taken != "merge" or owner == TOMBSTONE:
            raise NameTakenError(_why_taken(operation.to, owner))
        into = run.item(operation.to)
        _merge(run, operation, item, into)
        return
    if operation.to == item.name:
        return
    run.note(operation, "renamed", item, "→", operation.to)
    run.draft.give(operation.to, item.id)
    item.names.add(operation.to)
    item.name = operation.to
    item.is_changed = True


def _why_taken(name: str, owner: int) -> str:
    if owner == TOMBSTONE:
        return f"{name!r} is the name of a deleted item and stays taken; DeleteAlias frees it"
    return f'{name!r} belongs to another item; if it is the same thing, use if_taken="merge"'


@applies(ops.MergeItem)
def merge_item(run: ChangesetRun, operation: ops.MergeItem) -> None:
    """Merge an item into another one."""
    item = run.item(operation.id)
    into = run.item(operation.into)
    if item.id != into.id:
        _merge(run, operation, item, into)


def _merge(
    run: ChangesetRun, operation: ops.RenameItem | ops.MergeItem, gone: Item, into: Item
) -> None:
    for name in operation.merge_metadata:
        run.task(name)
    if operation.merge is None:
        gone_is_later = _later(gone.updated_at, into.updated_at)
        data = {**into.data, **gone.data} if gone_is_later else {**gone.data, **into.data}
    else:
        data = _called("merge", operation.merge, into.data, gone.data)
    set_data(run, into, data)
    into.mark(is_from_outside=gone.is_from_outside)
    if gone.id in run.updated:
        run.updated.add(into.id)
    for task_id in gone.results:
        _merge_result(run, gone, into, task_id, operation.merge_metadata)
    for tag, value in gone.tags.items():
        if tag not in into.tags:
            into.set_tag(tag, value)
    if gone.blobs:
        into.take_blobs(gone)
    for name in gone.names:
        run.draft.give(name, into.id)
    into.names |= gone.names
    run.draft.effects.items_moved[gone.id] = into.id
    if run.current == gone.id:
        run.current = into.id
    gone.is_deleted = True
    run.note(operation, "merged", gone, "→", into)


def _merge_result(
    run: ChangesetRun,
    gone: Item,
    into: Item,
    task_id: int,
    merge_metadata: Mapping[str, ops.MergePair],
) -> None:
    theirs, ours = gone.results[task_id], into.results.get(task_id)
    effects = run.draft.effects
    if ours is None or _is_newer(theirs, ours):
        if ours is not None:
            effects.failures.append(Handled((into.id, task_id)))
        kept = into.results[task_id] = theirs
        effects.failures.append(Moved((gone.id, task_id), into.id))
    else:
        kept = ours
    merger = merge_metadata.get(run.draft.state.task_numbered(task_id).name)
    if merger is not None and ours is not None:
        what = f"merge_metadata of {run.draft.state.task_numbered(task_id).name}"
        kept.metadata = _called(what, merger, ours.metadata, theirs.metadata)
    kept.validators = None  # the data may be another page's
    kept.is_changed = True


def _is_newer(one: Result, other: Result) -> bool:
    if one.is_pending or other.is_pending:
        return one.is_pending
    return _later(one.completed_at, other.completed_at)


def _later(one: Any, other: Any) -> bool:
    return one is not None and (other is None or one > other)


@applies(ops.DeleteItem)
def delete_item(run: ChangesetRun, operation: ops.DeleteItem) -> None:
    """Delete an item; its names are free again, or stay taken for ever."""
    item = run.item(operation.id)
    if item.id in run.updated:
        raise OperationError(
            f"the item {item.name!r} is updated by this execution; delete it or update it"
        )
    for name in item.names:
        run.draft.give(name, None if operation.forget else TOMBSTONE)
    item.is_deleted = True
    run.deleted.add(item.id)
    run.deleted_names |= item.names
    if item.id == run.current:
        run.own_name = item.name
    run.note(operation, "deleted", item)


@applies(ops.CreateAlias)
def create_alias(run: ChangesetRun, operation: ops.CreateAlias) -> None:
    """Give an item another name unless that is taken."""
    item = run.item(operation.to)
    if run.draft.owner(operation.alias) is not None:
        if operation.fail_if_exists:
            raise NameTakenError(f"{operation.alias!r} exists already")
        run.note(operation, "known", operation.alias)
        return
    run.draft.give(operation.alias, item.id)
    item.names.add(operation.alias)
    run.note(operation, "alias", operation.alias, "→", item)


@applies(ops.DeleteAlias)
def delete_alias(run: ChangesetRun, operation: ops.DeleteAlias) -> None:
    """Take a name from its item."""
    owner = run.draft.owner(operation.alias)
    if owner is None:
        run.note(operation, "unknown", operation.alias)
        return
    item = None if owner == TOMBSTONE else run.item(operation.alias)
    if item is not None and item.name == operation.alias:
        raise OperationError(
            f"{operation.alias!r} is the item's own id; rename the item first, or delete it"
        )
    run.draft.give(operation.alias, None)
    if item is not None:
        item.names.discard(operation.alias)
    run.note(operation, "alias deleted", operation.alias)


@applies(ops.AddTag)
def add_tag(run: ChangesetRun, operation: ops.AddTag) -> None:
    """Tag an item, or set the value of its tag."""
    item = run.item(operation.id)
    item.set_tag(operation.tag, operation.value)
    run.note(operation, "tagged", item, operation.tag)


@applies(ops.RemoveTag)
def remove_tag(run: ChangesetRun, operation: ops.RemoveTag) -> None:
    """Take a tag from an item."""
    item = run.item(operation.id)
    item.drop_tag(operation.tag)
    run.note(operation, "untagged", item, operation.tag)


@applies(ops.UpdateData)
def update_data(run: ChangesetRun, operation: ops.UpdateData) -> None:
    """Change an item's data."""
    if operation.upsert and operation.id is not None and run.draft.owner(operation.id) is None:
        if operation.id in run.deleted_names:
            raise OperationError(f"the item {operation.id!r} is deleted by this execution")
        create_item(run, ops.CreateItem(id=operation.id))
    item = run.item(operation.id)
    run.update(item)
    if item.owns_data and isinstance(operation.merge, Mapping):
        item.data.update(operation.merge)  # not copied once for each of a great many updates
        set_data(run, item, item.data)
    else:
        set_data(run, item, merged(operation.merge, item.data))
        item.owns_data = True
    run.note(operation, "updated", item)


def set_data(run: ChangesetRun, item: Item, data: dict[str, Any]) -> None:
    """Give an item other data, and the slot that they name."""
    item.data = data
    item.slot = slots.slot_of(data)
    item.updated_at = run.draft.state.moment
    item.is_changed = True


@applies(ops.AllowFailure)
def allow_failure(run: ChangesetRun, operation: ops.AllowFailure) -> None:
    """Do nothing here: the execution took it into account when it ended."""


def merged(merge: Any, old: dict[str, Any]) -> dict[str, Any]:
    """Return what a callable makes of old values, or a mapping merged shallowly over them."""
    if isinstance(merge, Mapping):
        return {**old, **merge}
    return _called("merge", merge, old)


def _called(what: str, function: Callable[..., Any], *old: dict[str, Any]) -> dict[str, Any]:
    """Call a user's merger on copies, and check what it returns."""
    try:
        new = function(*(input_checks.copy_json(value, what) for value in old))
    except Exception as error:
        raise OperationError(f"{what} raised {_raised(error)}") from error
    if not isinstance(new, Mapping):
        raise InvalidDataError(f"{what} returned {new!r:.80}, not a mapping")
    return input_checks.copy_mapping(dict(new), f"what {what} returned")


def _raised(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


@applies(ops.AttachBlob)
def attach_blob(run: ChangesetRun, operation: ops.AttachBlob) -> None:
    """Attach content to an item; what it had under the name is replaced."""
    item = run.item(operation.id)
    number = operation.content.number
    if number is None:
        raise OperationError("its content is in no store yet")
    run.update(item)
    state = run.draft.state
    state.attached += 1  # a microsecond apart, so that the order within a transaction shows
    moment = state.now + timedelta(microseconds=state.attached)
    label = "replaced" if operation.name in item.blobs else "attached"
    item.set_blob(operation.name, Blob(number, operation.mime, moment))
    run.note(operation, label, item, operation.name)


@applies(ops.DetachBlob)
def detach_blob(run: ChangesetRun, operation: ops.DetachBlob) -> None:
    """Take a blob from an item."""
    item = run.item(operation.id)
    run.update(item)
    label = "detached" if operation.name in item.blobs else "unknown"
    item.drop_blob(operation.name)
    run.note(operation, label, item, operation.name)
