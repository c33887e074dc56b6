"""Scraped items as they are kept, and how far the feeds of them have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
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
    before a place that is known by `mark`: synced and marked as written, or, where a feed is
    written whole, there before it. `is_new` says that it begins with the run that it takes part in.
    """

    id: int
    token: UUID | None = None
    uri: str | None = None
    batch: int = 1
    count: int = 0
    size: int | None = None
    mark: int | None = None
    is_new: bool = False


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
