"""Scraped items as they are kept, and how far the feeds of them have come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Scraped:
    """A scraped item as it is kept: the import path of its class, and its fields as JSON."""

    item_class: str
    fields: str


class FeedItem(NamedTuple):
    """A scraped item that is in a feed; its number is that of the journal."""

    journal_id: int
    is_written: bool
    item_class: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """How far a feed has come.

    `token` is its writer's. `uri` is where it is being written, without credentials, as batch no.
    `batch` with `count` items; None while that has not begun. `size` are the bytes that stand,
    before a place that is known by `mark`: synced and marked as written. Of a feed that is written
    whole `size` are the bytes that were there before it, and `mark` is that of the file's end.
    `is_new` says that it begins with the run that it takes part in.
    `file` is the host and path of the file that `size` is of. `begins` has, by such a file, size
    and mark of what it had before this run.
    """

    id: int
    token: UUID | None = None
    uri: str | None = None
    batch: int = 1
    count: int = 0
    size: int | None = None
    mark: int | None = None
    is_new: bool = False
    file: str | None = None
    begins: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A scraped item of the journal.

    `fields` are as they are stored; `json_values.load` makes Python's values of them. `item` and
    `task` are None where the item under work is gone, or there was none.
    """

    number: int
    item_class: str
    fields: dict[str, Any]
    item: str | None
    task: str | None
    kept_at: datetime
