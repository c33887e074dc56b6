"""What the API answers, typed: what its OpenAPI document says. Answers are not made of these."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

T = TypeVar("T")

Json = dict[str, Any]


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
    is_from_outside: bool


class Blob(BaseModel):
    """Binary data of an item; its size in bytes, its SHA-256 in hexadecimal."""

    name: str
    size: int
    mime: str | None
    sha256: str
    attached_at: datetime


class Item(Listed):
    """An item with all that is known of it."""

    url: str | None
    method: str | None
    created_by_item: str | None
    created_by_url: str | None
    created_by_method: str | None
    blobs: list[Blob]
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


class WorkRow(BaseModel):
    """Work in a state: `ready`, `delayed`, `claimed` or `held`."""

    item: str
    url: str | None
    method: str | None
    task: str
    slot: str
    state: str
    is_stale: bool
    nice: int
    tries: int
    deaths: int
    stalls: int
    not_before: datetime | None
    claimed_at: datetime | None
    worker: int | None


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


class FailureGroup(BaseModel):
    """Open failures of a task that are alike, and the last one of them."""

    group: UUID
    task: str
    is_refusal: bool
    count: int
    is_estimated: bool
    first_at: datetime
    last_at: datetime
    example: Failure


class Undone(BaseModel):
    """How many failures are open again."""

    undone: int


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


class Run(BaseModel):
    """A run: when it began and ended, why it ended, and what it did."""

    number: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    reason: str | None
    error: str | None
    spider: str | None
    worker: int | None
    job: str | None
    workers: int
    pages: int
    items: int
    failures: int


class Status(BaseModel):
    """A crawl's numbers, and its present or last run."""

    crawl: str
    items: int
    estimated: list[str]
    run: Run | None
    tasks: list[Task]
    workers: list[Worker]
    sweeps: list[Json]
    under_way: list[Json]
    next_due: datetime | None
    old_snapshot: Json | None


class TaskNumbers(BaseModel):
    """What is waiting, done and failed of a task."""

    name: str
    is_enabled: bool
    is_registered: bool
    waiting: int
    delayed: int
    claimed: int
    fresh: int
    due: int
    held: int
    failures: int
    refusals: int
    estimated: list[str]


class Crawl(BaseModel):
    """A crawl: its state, its numbers, also by task, and what the last full minute brought."""

    crawl: str
    state: str
    workers: int
    items: int
    fresh: int
    waiting: int
    claimed: int
    later: int
    due: int
    failures: int
    refusals: int
    held: int
    estimated: list[str]
    done_last_minute: int
    failed_last_minute: int
    items_last_minute: int
    next_due: datetime | None
    created_at: datetime
    run_started_at: datetime | None
    run_finished_at: datetime | None
    stopped_at: datetime | None
    reason: str | None
    tasks: list[TaskNumbers]


class TaskMinute(BaseModel):
    """What executions of a task did in a minute, and how many seconds they took together."""

    minute: datetime
    task: str | None
    done: int
    retried: int
    failed: int
    refused: int
    items: int
    seconds: float


class LimitMinute(BaseModel):
    """How many requests started under a limit in a minute."""

    name: str
    minute: datetime
    requests: int


class WorkerState(BaseModel):
    """A crawl process: where it runs or ran, with what code and memory (bytes), and its claims."""

    id: int
    spider: str
    host: str
    process_id: int
    job: str | None
    code: str | None
    memory: int | None
    started_at: datetime
    seen_at: datetime
    lease_until: datetime
    stopped_at: datetime | None
    reason: str | None
    is_dead: bool
    claims: int
    oldest_claim: datetime | None
    leaves: list[str]


class FoundItem(BaseModel):
    """An item that was found."""

    item: str
    url: str | None
    method: str | None
    created_at: datetime


class Found(BaseModel):
    """What a search found, the newest first; `is_whole`: all items were looked at."""

    items: list[FoundItem]
    is_whole: bool


class Neighbour(BaseModel):
    """An item beside another one."""

    item: str
    url: str | None
    method: str | None


class Neighbours(BaseModel):
    """An item's maker, if it is still there, and what its last executions made."""

    created_by: Neighbour | None
    created: list[Neighbour]
    has_more: bool


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
