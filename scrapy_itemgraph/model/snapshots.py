"""Items and results as they were committed when they were read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class PairState(StrEnum):
    """The states of a pair of an item and a task; the later ones come before the others."""

    NEVER_RUN = "never run"
    FRESH = "fresh"
    STALE = "stale"
    HELD = "held"
    GONE = "gone"
    SKIPPED = "skipped"
    STASHED = "stashed"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSnapshot:
    """An item as it was committed when it was read."""

    id: str
    aliases: tuple[str, ...]
    tags: Mapping[str, Any]
    data: dict[str, Any]
    created_by: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    is_from_outside: bool = False  # it was made or changed over HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem(ItemSnapshot):
    """An item in a list, with what its tasks made of it.

    `url` is that of its data, and `method` that of its request; None where it has none. `states`
    are those of its tasks, `metadata` that of results which completed, both by the task's name.
    `completed_at` is when the last of them completed.
    """

    url: str | None
    method: str | None
    states: Mapping[str, str]
    metadata: Mapping[str, Any]
    completed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSnapshot:
    """What an (item, task) pair last produced, and its state."""

    task: str
    version: str | None
    metadata: dict[str, Any]
    is_successful: bool | None
    is_held: bool
    is_invalidated: bool
    completed_at: datetime | None
    expires_at: datetime | None
    state: str
