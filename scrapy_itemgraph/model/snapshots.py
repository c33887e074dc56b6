"""Items and results as they were committed when they were read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


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
