"""What the API takes and answers, typed: what its OpenAPI document says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

INT32 = 2**31
INT64 = 2**63

Json = dict[str, Any]


def _in_utc(value: datetime) -> datetime:
    """Take a time without a zone for one in UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _read_moment(value: Any) -> Any:
    """Read a time as ISO 8601 has it, and no number of seconds."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


Moment = Annotated[datetime, BeforeValidator(_read_moment), AfterValidator(_in_utc)]
GivenMoment = Annotated[Moment, Field(strict=False)]
Id = Annotated[str, Field(min_length=1, max_length=8192)]
Tag = Annotated[str, Field(min_length=1, max_length=1000)]
Period = Annotated[
    str | float, Field(description='seconds, or a period such as "6h" or "1d12h"', examples=["6h"])
]


class Given(BaseModel):
    """What is sent; what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewItem(Given):
    """An item to be added."""

    id: Id | None = Field(None, description="left out: a random one")
    data: Json
    tags: list[Tag] | dict[Tag, Any] = Field([], description="names, or names with values")
    aliases: list[Id] = Field([], description="other ids; those that are taken are skipped")
    prefix: str | None = Field(None, description="what a random id begins with")
    nice: int | None = Field(None, ge=-INT32, lt=INT32, description="lower goes first")
    not_before: GivenMoment | None = None


class MergedItem(Given):
    """What is merged into an item."""

    data: Json = {}
    tags: list[Tag] | dict[Tag, Any] = Field([], description="added; values are set")


class NewTTL(Given):
    """When results expire."""

    ttl: Period | None = Field(description='also "never"; null: as the task says')
    task: Id | None = Field(None, description="left out: all tasks of the item")


class OfTask(Given):
    """A task of an item, or all of them."""

    task: Id | None = None


class Handling(Given):
    """What becomes of the pairs that failed."""

    retry: bool = Field(default=True, description="false: they stay held")


class HandlingOfMany(Handling):
    """Which failures are handled: of a task, or all of the crawl."""

    task: Id | None = None
    all: bool = False


class Block(Given):
    """How long a slot is blocked: until a moment, or for a period."""

    until: GivenMoment | None = None
    for_: Period | None = Field(None, alias="for")


class Delay(Given):
    """The least seconds between two starts."""

    seconds: float | None = Field(description="null: as the settings and robots.txt say")


class Limit(Given):
    """What a limit allows; both null: as the code says."""

    rate: str | None = Field(None, examples=["10/s", "30/min"])
    concurrency: int | None = Field(None, ge=1, lt=INT32)


class Operations(Given):
    """Operations, applied in one transaction: all or none."""

    operations: list[Json] = Field(
        max_length=10_000,
        examples=[[{"op": "createItem", "id": "URL:x", "tags": ["page"], "data": {}}]],
    )


# What is answered


class Page(BaseModel, Generic[T]):
    """A part of a list, and what to send as `after` for the next; null: there is none."""

    rows: list[T]
    next: str | None


class Problem(BaseModel):
    """What is wrong, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Json] = []


class LogLine(BaseModel):
    """A line that a callback logged: seconds after the claim, category, text."""

    seconds: float
    category: str
    message: str


class Attempt(BaseModel):
    """An attempt at a task of an item."""

    task: str
    version: str
    number: int
    outcome: str
    error: Json | None
    log: list[LogLine]
    started_at: datetime
    ended_at: datetime
    worker: int | None
    process_id: int | None
    host: str | None


class Result(BaseModel):
    """What a task of an item last produced, and its state."""

    task: str
    version: str | None
    metadata: Json
    is_successful: bool | None
    is_held: bool
    is_invalidated: bool
    completed_at: datetime | None
    expires_at: datetime | None
    state: str


class Listed(BaseModel):
    """An item in a list."""

    id: str
    aliases: list[str]
    tags: Json
    data: Json
    created_by: str | None
    created_at: datetime
    updated_at: datetime


class Item(Listed):
    """An item with all that is known of it."""

    url: str | None
    method: str | None
    created_by_item: str | None
    created_by_url: str | None
    created_by_method: str | None
    results: list[Result]
    attempts: list[Attempt]


class Merged(Item):
    """An item after a merge."""

    created: bool


class Added(BaseModel):
    """What there is after adding; `created` is false where the id was taken."""

    id: str
    created: bool
    aliases: list[str]
    tasks: list[str]


class Deleted(BaseModel):
    """The id of what was deleted."""

    deleted: str
    names_kept: bool


class Explanation(BaseModel):
    """Why a task of an item runs next, or does not."""

    item: str
    url: str | None
    method: str | None
    task: str
    state: str
    is_eligible: bool
    reasons: list[str]


class Work(BaseModel):
    """Work that nobody has claimed."""

    item: str
    url: str | None
    method: str | None
    task: str
    is_stale: bool
    nice: int
    tries: int
    deaths: int
    stalls: int
    not_before: datetime | None
    slot: str


class Failure(BaseModel):
    """A failure, or a refusal, that nobody has handled."""

    id: int
    task: str
    item: str
    url: str | None
    method: str | None
    is_refusal: bool
    error: Json
    occurred_at: datetime
    log: list[LogLine]


class Handled(BaseModel):
    """How many pairs were handled."""

    handled: int
    retry: bool


class Task(BaseModel):
    """A task as it is declared, and what is done, waiting and failed of it."""

    name: str
    spider: str
    version: str
    ttl: float | None
    nice: int
    is_enabled: bool
    is_registered: bool
    max_failures: int | None
    tags: list[str]
    depends_on: list[str]
    waiting: int
    delayed: int
    claimed: int
    completed: int
    fresh: int
    due: int
    held: int
    failures: int
    refusals: int
    estimated: list[str]


class Changed(BaseModel):
    """How many results changed."""

    task: str
    changed: int


class Enabled(BaseModel):
    """Whether a task's work may be claimed."""

    task: str
    enabled: bool


class Worker(BaseModel):
    """A worker that has not stopped."""

    id: int
    spider: str
    host: str
    process_id: int
    job: str | None
    started_at: datetime
    lease_until: datetime
    is_late: bool
    claims: int


class Status(BaseModel):
    """A crawl's numbers."""

    crawl: str
    items: int
    estimated: list[str]
    tasks: list[Task]
    workers: list[Worker]
    sweeps: list[Json]
    under_way: list[Json]
    next_due: datetime | None
    old_snapshot: Json | None


class Crawl(BaseModel):
    """A crawl of the database."""

    name: str


class Holder(BaseModel):
    """A worker that has something of a limit, or waits for it."""

    worker: int
    crawl: str | None
    host: str | None
    process_id: int | None
    units: int
    since: datetime
    free_at: datetime | None


class Slot(BaseModel):
    """A limit as it is kept, what was set and learned of it, and who has it."""

    name: str
    kind: str
    delay: float
    gap: float
    concurrency: int | None
    set_gap: float | None
    set_concurrency: int | None
    crawl_delay: float | None
    throttle: float | None
    latency: float | None
    last_at: datetime | None
    blocked_until: datetime | None
    blocked_by: str | None
    work: int | None
    is_counted: bool
    holders: list[Holder]
    waiting: list[Holder]


class ChangedSlot(Slot):
    """A limit after a change."""

    is_changed: bool
    is_new: bool
    hint: str


class Note(BaseModel):
    """What an operation did."""

    operation: str
    label: str
    text: str


class Kept(BaseModel):
    """A scraped item that was kept."""

    number: int
    item_class: str
    fields: Json
    item: str | None
    task: str | None
    kept_at: datetime
