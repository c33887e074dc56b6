"""Work: claims of it, how executions of it end, and what is left of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scrapy_itemgraph.model.limits import SlotTerms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from scrapy_itemgraph.model.limits import Grant
    from scrapy_itemgraph.model.snapshots import ItemSnapshot
    from scrapy_itemgraph.model.validators import Validators

UNMADE = "request"  # type of the error of work whose request could not be made


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    REFUSED = "refused"
    GONE = "gone"
    KNOWN = "known"
    UNCHANGED = "unchanged"
    RELEASED = "released"
    DIED = "died"
    STALLED = "stalled"
    SKIPPED = "skipped"

    @property
    def is_complete(self) -> bool:
        """Whether the pair has its result, and is not held."""
        return self in {Outcome.OK, Outcome.KNOWN, Outcome.UNCHANGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """An error as it is stored with an attempt or a failure; what is not known is left out."""

    type: str  # the name of its class, or a kind such as "stalled"
    message: str
    traceback: str | None = None
    url: str | None = None
    spider: str | None = None
    task: str | None = None
    item: str | None = None
    place: str | None = None  # the function of the project in which it was raised
    snippet: str | None = None  # the beginning of the response that its callback was given
    status: int | None = None  # of that response, in HTTP

    @classmethod
    def of(cls, error: Exception) -> ErrorRecord:
        """Return the record of an exception whose traceback tells nothing."""
        return cls(type=type(error).__name__, message=str(error))

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> ErrorRecord:
        """Return the record that was stored as this JSON."""
        known = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        return cls(**{"type": "error", "message": "", **known})

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"

    def as_json(self, *, with_snippet: bool = True) -> str:
        """Return the JSON that is stored; of an attempt without the snippet."""
        left_out = () if with_snippet else ("snippet",)
        given = {key: one for key, one in asdict(self).items() if one is not None}
        return json.dumps({key: one for key, one in given.items() if key not in left_out})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Work taken by a worker, with the fencing token that ends it.

    `invalidated_at` is the expiry that the claim answers; a later one outlives it. `request` is
    where an earlier attempt's redirects or retries took it. With `is_in_flight` the claim has told
    the database that the engine may begin it. With `is_saved` its page need not be downloaded.
    `attempts_left` is how many a person gave the page, this one among them; None: as its task says.
    `ruleset_id` is that of the rules that it keeps to; None: there are none.
    `depth` is the least depth of its page that was known; None where depths are not tracked.
    `validators` are those of the response that its result was made from, if it may be so still.
    `metadata` is the task's own of the item; None where the task has no `request=`.
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
    is_in_flight: bool = False
    is_saved: bool = False
    attempts_left: int | None = None
    ruleset_id: int | None = None
    depth: int | None = None
    validators: Validators | None = None
    metadata: dict[str, Any] | None = None


Pair: TypeAlias = tuple[int, int]  # the numbers of an item and a task


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The work in flight of a worker as it claims, and how much more of it there may be.

    Work is in flight from when the database knows that the engine may begin it. The engine has
    room for `room` more requests; `places` says how many of a slot the limits in hand let start.
    """

    pairs: Collection[Pair] = ()
    room: int
    places: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBudget:
    """How much a worker claims: `most` pieces of work; with `alone` one that two workers died on.

    `rooms` says how many more requests each limit that it has is good for, by number, `shared`
    which of these others may have units of as well; `slot_terms` how slots are kept. `in_flight`
    says which claims may begin at once; None leaves that for later.
    """

    most: int
    alone: bool = False
    rooms: Mapping[int, int] = field(default_factory=dict)
    shared: Collection[int] = ()
    slot_terms: SlotTerms = SlotTerms()  # noqa: RUF009 - frozen
    in_flight: InFlight | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """What a claim took: work, and limits; in `again_in` seconds it may find more."""

    claims: Sequence[Claim] = ()
    grants: Sequence[Grant] = ()
    again_in: float | None = None


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


NEW = "new"  # the label of a note on an item that was made


class Note(NamedTuple):
    """One thing that an operation did, for the log and the stats: `[new] URL:…`."""

    operation: str
    label: str
    text: str  # begins with the item's id
    shown: str  # the same, with the URL of a request in the place of its id


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a changeset.

    `outcome` is None when the claim was lost: nothing of the changeset was applied. `error` is set
    when an operation could not be carried out, so that a good execution ended as a failure;
    `failed_at` is the operation's place in the changeset, from 0. `may_free` tells that it deletes
    items or aliases.
    """

    outcome: Outcome | None
    error: ErrorRecord | None = None
    notes: tuple[Note, ...] = ()
    failed_at: int | None = None
    may_free: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What became of each changeset, and whether what is in flight was written with them."""

    applied: Sequence[Applied]
    is_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left of a crawl's work, as a worker that finds nothing to claim sees it."""

    claimable: bool
    claimed: bool
    sweeping: bool
    next_retry: float | None  # in so many seconds

    @property
    def has_some(self) -> bool:
        """Whether there is work now, or may be as soon as others are done."""
        return self.claimable or self.claimed or self.sweeping

    @property
    def is_over(self) -> bool:
        """Whether a run that closes when idle has reached its end."""
        return not self.has_some and self.next_retry is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Work that became a failure because its workers died of it, or stalled; `kind` says which."""

    item: str
    task: str
    kind: str
    url: str | None


MOST_TRIES = 32766
"""How many tries are counted, or are left at most: a smallint holds them."""


def attempt_after(tries: int) -> int:
    """Return the number of the attempt after so many, from 1 to what a smallint holds."""
    return min(max(tries, 0), MOST_TRIES) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """How many claims of dead and stalled workers are free, and what of them is given up.

    `workers` are those of the crawl that did not stop, the one that looked among them.
    `crawl_state` is that of `model.crawl_states`, None where nobody steers the crawl; `ruleset_id`
    that of the rules in force, None where it never had any. `is_first`: none of the crawl's workers
    is older; `others_work`: others of them have claims.
    """

    claims: int = 0
    workers: int = 1
    is_first: bool = True
    others_work: bool = False
    given_up: tuple[GivenUp, ...] = ()
    suspects_wait: bool = False  # there is work to be claimed that must run alone
    crawl_state: str | None = None
    ruleset_id: int | None = None
