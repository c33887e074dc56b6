"""The nouns that pass between layers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from scrapy_itemgraph.model.limits import Grant, Terms


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    REFUSED = "refused"
    RELEASED = "released"
    DIED = "died"
    STALLED = "stalled"


class RegisteredTask(NamedTuple):
    """A task as a worker registered it; `definition` digests all that its code declares of it."""

    name: str
    version: str
    definition: UUID


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
class Redirect:
    """Where a redirect or a retry takes a claim's request.

    `name` is what another request to the same place would be known by, None when it is not
    filtered; `request` is its JSON, None when it cannot be stored. Without `takes_name` it is only
    looked who has the name.
    """

    claim: Claim
    name: str | None
    request: str | None
    takes_name: bool = True


class RedirectAnswer(StrEnum):
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


class Note(NamedTuple):
    """One thing that an operation did, for the log and the stats: `[new] URL:…`.

    `text` begins with the item's id; `shown` has the URL of a request in the place of that.
    """

    operation: str
    label: str
    text: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a changeset.

    `outcome` is None when the claim was lost: nothing of the changeset was applied. `error` is set
    when an operation could not be carried out, so that a good execution ended as a failure;
    `failed_at` is the operation's place in the changeset, from 0.
    """

    outcome: Outcome | None
    error: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    failed_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A task whose code has changed since `made` of its fresh results were made.

    They are counted up to a thousand. `is_news` says that the code had not been seen before.
    """

    task: str
    is_callback: bool
    made: int
    is_news: bool


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


@dataclass(slots=True, kw_only=True)
class Handing:
    """What a worker's engine has and gets next, as (item, task) pairs: all else of its work is not.

    `is_told` once the database knows it.
    """

    pairs: Collection[tuple[int, int]]
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Work that became a failure because its workers died of it, or stalled; `kind` says which."""

    item: str
    task: str
    kind: str
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """How many claims of dead and stalled workers are free, and what of them is given up.

    `suspects_wait` tells whether there is work to be claimed that must run alone.
    """

    claims: int = 0
    given_up: tuple[GivenUp, ...] = ()
    suspects_wait: bool = False


@dataclass(frozen=True, slots=True)
class Scraped:
    """A scraped item as it is kept: the import path of its class, and its fields as JSON."""

    item_class: str
    fields: str


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


@dataclass(slots=True, kw_only=True)
class Hand:
    """What a worker has in hand as it claims, and what the claim adds to it.

    `rooms` says how many more requests each limit that it has is good for, `shared` which of these
    others may have units of as well; the claim fills in `grants`, and in how many seconds it may
    find more.
    """

    rooms: Mapping[int, int]
    shared: Collection[int] = ()
    slot_terms: Callable[[str], Terms]
    grants: Sequence[Grant] = ()
    again_in: float | None = None
