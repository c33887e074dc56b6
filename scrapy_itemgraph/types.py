"""The nouns that pass between layers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    REFUSED = "refused"
    RELEASED = "released"
    DIED = "died"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Work taken by a worker, with the fencing token that ends it.

    `invalidated_at` is the expiry that the claim answers; a later one outlives it. `request` is
    where an earlier attempt's redirects or retries took it.
    """

    item_id: int
    task_id: int
    task: str
    version: str
    token: UUID
    attempt: int
    claimed_at: datetime
    slot: str
    is_alone: bool
    item: ItemSnapshot
    invalidated_at: datetime | None = None
    is_refiled: bool = False
    request: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie of a jar, both as JSON; `cookie` is None when it was deleted."""

    jar: str
    domain: str
    path: str
    name: str
    cookie: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where a redirect or a retry takes a claim's request.

    `name` is what another request to the same place would be known by, None when it is not
    filtered; `request` is its JSON, None when it cannot be stored. Without `takes_name` it is only
    looked who has the name.
    """

    claim: Claim
    name: str | None
    request: str | None
    takes_name: bool = True


class Moved(StrEnum):
    """Whether a claim's request may go where it was taken."""

    ON = "on"
    TAKEN = "taken"
    LOST = "lost"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that an operation did, for the log and the stats: `[new] URL:…`."""

    operation: str
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a changeset.

    `outcome` is None when the claim was lost: nothing of the changeset was applied. `error` is set
    when an operation could not be carried out, so that a good execution ended as a failure.
    """

    outcome: Outcome | None
    error: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left of a crawl's work, as a worker that finds nothing to claim sees it.

    `next_retry` is in seconds from now.
    """

    claimable: bool
    claimed: bool
    sweeping: bool
    next_retry: float | None

    @property
    def has_some(self) -> bool:
        """Whether there is work now, or may be as soon as others are done."""
        return self.claimable or self.claimed or self.sweeping

    @property
    def is_over(self) -> bool:
        """Whether a run that closes when idle has reached its end."""
        return not self.has_some and self.next_retry is None


@dataclass(frozen=True, slots=True)
class Scraped:
    """A scraped item as it is kept: the import path of its class, and its fields as JSON."""

    item_class: str
    fields: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A scraped item of the journal.

    `fields` are as they are stored; `tagged.load` makes Python's values of them. `item` and `task`
    are None where the item under work is gone, or there was none.
    """

    number: int
    item_class: str
    fields: dict[str, Any]
    item: str | None
    task: str | None
    kept_at: datetime
