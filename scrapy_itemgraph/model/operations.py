"""The operations: changes to the graph, as data. What they do stands in `changesets`."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from scrapy_itemgraph.exceptions import InvalidDataError, ItemGraphError, OperationError
from scrapy_itemgraph.model import blobs, input_checks, moments, periods

if TYPE_CHECKING:
    from scrapy_itemgraph.model.attempt_logs import LogLine
    from scrapy_itemgraph.model.feed_exports import Scraped
    from scrapy_itemgraph.model.page_records import PageRecord
    from scrapy_itemgraph.model.validators import Validators
    from scrapy_itemgraph.model.work import Claim, ErrorRecord, Outcome

Merge = Callable[[dict[str, Any]], Mapping[str, Any]] | Mapping[str, Any]
MergePair = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]
Tags = Iterable[str] | Mapping[str, Any]
OperationT = TypeVar("OperationT", bound="Operation")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z]+)", lambda m: "_" + m[1].lower(), name)


@dataclass(frozen=True)
class Operation:
    """A change to the graph; the item under work is meant wherever `id` is left out."""

    _ids: ClassVar[tuple[str, ...]] = ("id",)

    spelling: ClassVar[str]
    """The operation's name in JSON: `updateData`."""

    verb: ClassVar[str]
    """The operation's name among functions and stats: `update_data`."""

    def __init_subclass__(cls) -> None:
        name = cls.__name__
        cls.spelling = name[0].lower() + name[1:]
        cls.verb = _snake(cls.spelling)

    def named(self) -> set[str]:
        """Return the names of items that must exist for this operation."""
        given = (getattr(self, name, None) for name in self._ids)
        return {name for name in given if name is not None}

    def claimed_names(self) -> set[str]:
        """Return the names that this operation may take."""
        return set()


@dataclass(frozen=True)
class CreateItem(Operation):
    """Create an item, unless its name is taken; then nothing changes.

    `tags` are names, or a mapping of names to values. Without `id` a random one is drawn here, with
    `prefix` in front, so that later operations can name it.
    """

    id: str = None  # type: ignore[assignment]  # drawn below when left out
    tags: Tags = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    is_id_drawn: bool = field(default=False, init=False, repr=False, compare=False)
    prefix: str | None = field(default=None, kw_only=True)
    aliases: Iterable[str] = field(default=(), kw_only=True)
    created_by: str | None = field(default=None, kw_only=True)
    nice: int | None = field(default=None, kw_only=True)
    not_before: datetime | timedelta | None = field(default=None, kw_only=True)
    fail_if_exists: bool = field(default=False, kw_only=True)
    merge_tags: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.id is None:
            object.__setattr__(self, "id", (self.prefix or "") + uuid.uuid4().hex)
            object.__setattr__(self, "is_id_drawn", True)

    def named(self) -> set[str]:
        """Return the item's own name when an existing item would be changed."""
        return {self.id} if self.merge_tags else set()

    def claimed_names(self) -> set[str]:
        """Return the item's id and aliases."""
        return {self.id, *self.aliases}


@dataclass(frozen=True)
class RenameItem(Operation):
    """Give an item another canonical id; the old one stays as an alias."""

    to: str
    id: str | None = field(default=None, kw_only=True)
    if_taken: str = field(default="error", kw_only=True)
    merge: MergePair | None = field(default=None, kw_only=True)
    merge_metadata: Mapping[str, MergePair] = field(default_factory=dict, kw_only=True)

    def named(self) -> set[str]:
        """Return the item's name, and the new one when its owner may be merged into."""
        return super().named() | ({self.to} if self.if_taken == "merge" else set())

    def claimed_names(self) -> set[str]:
        """Return the new name."""
        return {self.to}


@dataclass(frozen=True)
class MergeItem(Operation):
    """Merge an item into another one; its names, tags and newer results go over to that."""

    into: str
    id: str | None = field(default=None, kw_only=True)
    merge: MergePair | None = field(default=None, kw_only=True)
    merge_metadata: Mapping[str, MergePair] = field(default_factory=dict, kw_only=True)
    _ids: ClassVar[tuple[str, ...]] = ("id", "into")


@dataclass(frozen=True)
class DeleteItem(Operation):
    """Delete an item; with `forget=False` its names stay taken."""

    id: str | None = None
    forget: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class CreateAlias(Operation):
    """Give an item another name, unless that is taken."""

    alias: str
    to: str | None = field(default=None, kw_only=True)
    fail_if_exists: bool = field(default=False, kw_only=True)
    _ids: ClassVar[tuple[str, ...]] = ("to",)

    def claimed_names(self) -> set[str]:
        """Return the alias."""
        return {self.alias}


@dataclass(frozen=True)
class DeleteAlias(Operation):
    """Take a name from an item; an item's own id cannot be taken from it."""

    alias: str
    _ids: ClassVar[tuple[str, ...]] = ("alias",)


@dataclass(frozen=True)
class AddTag(Operation):
    """Tag an item; on a tag that is there, set its value."""

    tag: str
    value: Any = None
    id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class RemoveTag(Operation):
    """Take a tag from an item."""

    tag: str
    id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class UpdateData(Operation):
    """Change an item's data: a callable on the old data, or a mapping merged shallowly over it."""

    merge: Merge
    id: str | None = field(default=None, kw_only=True)
    upsert: bool = field(default=False, kw_only=True)

    def claimed_names(self) -> set[str]:
        """Return the item's name when it may have to be created."""
        return {self.id} if self.upsert and self.id is not None else set()


@dataclass(frozen=True)
class UpdateMetadata(Operation):
    """Change a task's metadata of an item; of another task, its time to live stays as it is."""

    merge: Merge
    id: str | None = field(default=None, kw_only=True)
    task: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class StoreResult(Operation):
    """Store a result for an item and a task as if the task had just run."""

    metadata: Mapping[str, Any]
    id: str = field(kw_only=True)
    task: str = field(kw_only=True)


@dataclass(frozen=True)
class Expire(Operation):
    """Make results stale; inside an execution of this task, outside of all the item's tasks.

    With `if_older_than`, a moment or an age, it makes those alone stale that were completed before
    that, and no failure run again. So what a website says of its changes is a hint and no order.
    """

    id: str | None = field(default=None, kw_only=True)
    task: str | None = field(default=None, kw_only=True)
    if_older_than: datetime | timedelta | float | str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class SetTTL(Operation):
    """Change when results expire, counted from their own time; None gives back the task's TTL."""

    ttl: Any
    id: str | None = field(default=None, kw_only=True)
    task: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class AttachBlob(Operation):
    """Attach binary data to an item under a name; what it had under that name is replaced.

    `content` is bytes, a Response (its body, and its Content-Type unless `mime` is given), or a
    `pathlib.Path` of a file, which has to stay as it is until the execution is committed.
    """

    name: str
    content: Any = field(repr=False)
    id: str | None = field(default=None, kw_only=True)
    mime: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class DetachBlob(Operation):
    """Take binary data from an item."""

    name: str
    id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class AllowFailure(Operation):
    """Whether what this execution yielded is kept when it fails."""

    allowed: bool = True


CLASSES: dict[str, type[Operation]] = {
    cls.__name__: cls
    for cls in (
        CreateItem,
        RenameItem,
        MergeItem,
        DeleteItem,
        CreateAlias,
        DeleteAlias,
        AddTag,
        RemoveTag,
        UpdateData,
        UpdateMetadata,
        StoreResult,
        Expire,
        SetTTL,
        AttachBlob,
        DetachBlob,
        AllowFailure,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeset:
    """All that one execution, or one call from outside, wants changed at once.

    `delay` is how long a retry waits. `attempts_left` is given where that is none of the attempts
    that count; the next one begins with the request of the page. `deaths` are not its business.
    `allow_failure` keeps the operations of an execution that failed or was refused. `led_to` is the
    name of the known page that its redirect led to. `validators` are those of the response that the
    result is made from. `scraped` is kept where the operations are
    carried out. `is_of_callback` says that it ran a plain callback. `log` is what it logged, which
    is kept however it ended. `attached` is what of its operations has content to be stored.
    `items_scraped` counts its scraped items, whether they are kept or not. `page` tells of its
    page, where that is kept. Where depths are tracked, `links` are the keys of names that it linked
    to and did not create, as hex, and `roots` of those whose depth it has begin anew.
    """

    operations: tuple[Operation, ...]
    outcome: Outcome
    claim: Claim | None = None
    error: ErrorRecord | None = None
    delay: timedelta | None = None
    attempts_left: int | None = None
    allow_failure: bool = False
    led_to: str | None = None
    validators: Validators | None = None
    scraped: tuple[Scraped, ...] = ()
    is_of_callback: bool = False
    log: Sequence[LogLine] = ()
    attached: tuple[AttachBlob, ...] = ()
    items_scraped: int = 0
    page: PageRecord | None = None
    links: Collection[str] = ()
    roots: Collection[str] = ()


def tag_values(tags: Tags) -> dict[str, Any]:
    """Return tags as a mapping of name to value."""
    return dict(tags) if isinstance(tags, (dict, Mapping)) else dict.fromkeys(tags)


class Checked(tuple[Operation, ...]):
    """Operations that `checked` returned; who is given these does not check them again."""

    __slots__ = ()


def checked(operation: Operation, where: str) -> Operation:
    """Return a private copy of `operation` whose values can be stored.

    An OperationError names `where` (the spider, the task, the item), the operation and the value
    that is wrong.
    """
    try:
        return _CHECKS.get(type(operation), _checked_plain)(operation)
    except (ItemGraphError, TypeError, ValueError) as error:
        kind = type(error) if isinstance(error, OperationError) else OperationError
        raise kind(f"{where}: {type(operation).__name__}: {error}") from None


def alike(one: CreateItem, name: str, data: dict[str, Any], where: str) -> CreateItem:
    """Return a CreateItem like a checked one, with another id and other data, which are checked."""
    try:
        input_checks.check_id(name)
        return _with(one, id=name, data=input_checks.copy_mapping(data, "data"))
    except ItemGraphError as error:
        raise OperationError(f"{where}: {type(one).__name__}: {error}") from None


def from_json(line: Mapping[str, Any]) -> Operation:
    """Read an operation from its JSON form, `{"op": "updateData", …}`."""
    if not isinstance(line, Mapping) or "op" not in line:
        raise OperationError('an operation is an object with "op", such as {"op": "createItem", …}')
    spelling = str(line["op"])
    name = spelling[:1].upper() + spelling[1:]
    cls = CLASSES.get(name)
    if cls is None or cls is AllowFailure:
        known = ", ".join(sorted(c[0].lower() + c[1:] for c in CLASSES if c != "AllowFailure"))
        raise OperationError(f"unknown operation {spelling!r}; there are {known}")
    given = {_snake(key): value for key, value in line.items() if key != "op"}
    unknown = given.keys() - {f.name for f in fields(cls) if f.init}
    if unknown:
        raise OperationError(f"{spelling} has no field {', '.join(sorted(unknown))}")
    try:
        if cls is AttachBlob:
            given["content"] = _decoded(given.get("content"))
        if isinstance(given.get("not_before"), str):
            given["not_before"] = datetime.fromisoformat(given["not_before"])
        if cls is Expire and "-" in str(given.get("if_older_than")):  # no period has one
            given["if_older_than"] = datetime.fromisoformat(given["if_older_than"])
        return cls(**given)
    except (TypeError, ValueError) as error:
        raise OperationError(f"{spelling}: {error}") from None


def attachments(operations: Iterable[Operation]) -> tuple[AttachBlob, ...]:
    """Return those of some operations that have content to be stored."""
    return tuple(one for one in operations if type(one) is AttachBlob)


def _decoded(text: Any) -> bytes:
    """Return the content that JSON has as base64; nothing sent to us names a file of ours."""
    if not isinstance(text, str):
        raise TypeError(f"content must be base64 text, not {type(text).__name__}")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"content must be base64 text: {error}") from None


_NAMES = {"id", "to", "into", "alias", "tag", "task"}


def _checked_plain(operation: Operation) -> Operation:
    for one in fields(operation):
        if one.name in _NAMES:
            value = getattr(operation, one.name)
            if value is not None or one.default is not None:
                check = input_checks.check_tag if one.name == "tag" else input_checks.check_id
                check(value, one.name)
    return operation


def _checked_create(operation: CreateItem) -> Operation:
    if operation.prefix is not None and not operation.is_id_drawn:
        raise OperationError("give id or prefix, not both")
    input_checks.check_id(operation.id)
    if isinstance(operation.aliases, str):
        raise OperationError(f"aliases must be a list of ids, not the string {operation.aliases!r}")
    aliases = tuple(operation.aliases)
    for alias in aliases:
        input_checks.check_id(alias, "alias")
    if operation.created_by is not None:
        input_checks.check_id(operation.created_by, "created_by")
    if operation.nice is not None:
        input_checks.check_nice(operation.nice)
    _check_not_before(operation.not_before)
    return _with(
        operation,
        prefix=None,
        aliases=aliases,
        tags=_checked_tags(operation.tags),
        data=input_checks.copy_mapping(operation.data, "data"),
    )


def _with(operation: OperationT, **values: Any) -> OperationT:
    """Return a copy of an operation with other values; ids that were drawn stay as they are."""
    copy = object.__new__(type(operation))
    vars(copy).update(vars(operation), **values)
    return copy


def _check_not_before(moment: Any) -> None:
    if isinstance(moment, timedelta):
        moments.check_period(moment, "not_before")
    elif moment is not None:
        moments.check(moment, "not_before")


def _checked_tags(tags: Tags) -> dict[str, Any]:
    if isinstance(tags, str):
        raise OperationError(f"tags must be a list or a mapping, not the string {tags!r}")
    values = tag_values(tags)
    for tag, value in values.items():
        input_checks.check_tag(tag)
        if value is not None:
            values[tag] = input_checks.copy_json(value, f"tag {tag!r}")
    return values


def _checked_tag(operation: AddTag) -> Operation:
    _checked_plain(operation)
    return _with(operation, value=input_checks.copy_json(operation.value, "value"))


def _checked_merge(operation: Any) -> Operation:
    _checked_plain(operation)
    if callable(operation.merge):
        return operation  # type: ignore[no-any-return]
    if not isinstance(operation.merge, Mapping):
        raise InvalidDataError(
            f"merge must be a mapping or a callable on the old value, not {operation.merge!r:.80}"
        )
    merged = input_checks.copy_mapping(dict(operation.merge), "merge")
    return _with(operation, merge=merged)  # type: ignore[no-any-return]


def _checked_merger(operation: Any) -> Operation:
    _checked_plain(operation)
    if isinstance(operation, RenameItem) and operation.if_taken not in {"error", "merge"}:
        raise OperationError(f'if_taken is "error" or "merge", not {operation.if_taken!r}')
    mergers = {"merge": operation.merge} | dict(operation.merge_metadata)
    for name, merger in mergers.items():
        if merger is not None and not callable(merger):
            raise OperationError(
                f"{name} must be a callable of (into, from), not {type(merger).__name__}"
            )
    return operation  # type: ignore[no-any-return]


def _checked_result(operation: StoreResult) -> Operation:
    _checked_plain(operation)
    metadata = input_checks.copy_mapping(dict(operation.metadata), "metadata")
    return _with(operation, metadata=metadata)


def _checked_expire(operation: Expire) -> Operation:
    _checked_plain(operation)
    age = operation.if_older_than
    if age is None:
        return operation
    if isinstance(age, datetime):
        moments.check(age, "if_older_than")
        return operation
    try:
        return _with(operation, if_older_than=periods.parse_period(age, "if_older_than"))
    except ValueError as error:
        raise OperationError(f"{error}; or a datetime with a time zone") from None


def _checked_ttl(operation: SetTTL) -> Operation:
    _checked_plain(operation)
    if operation.ttl is not None:
        periods.parse_ttl(operation.ttl)
    return operation


def _checked_attach(operation: AttachBlob) -> Operation:
    _checked_plain(operation)
    input_checks.check_tag(operation.name, "name")
    content, mime = blobs.content_of(operation.content)
    mime = blobs.check_mime(operation.mime) or mime
    return _with(operation, content=content, mime=mime)


def _checked_detach(operation: DetachBlob) -> Operation:
    _checked_plain(operation)
    input_checks.check_tag(operation.name, "name")
    return operation


_CHECKS: dict[type[Operation], Callable[[Any], Operation]] = {
    CreateItem: _checked_create,
    RenameItem: _checked_merger,
    MergeItem: _checked_merger,
    AddTag: _checked_tag,
    UpdateData: _checked_merge,
    UpdateMetadata: _checked_merge,
    StoreResult: _checked_result,
    Expire: _checked_expire,
    SetTTL: _checked_ttl,
    AttachBlob: _checked_attach,
    DetachBlob: _checked_detach,
}
