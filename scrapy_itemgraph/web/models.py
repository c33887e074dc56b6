"""What the API answers, typed: what its OpenAPI document says. Answers are not made of these.

A model takes its fields from the record of the graph that is answered; it declares only those that
JSON has in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast, get_type_hints
from uuid import UUID

from pydantic import BaseModel, create_model

from scrapy_itemgraph.model import attempt_logs, blobs, feed_exports, health, snapshots, work
from scrapy_itemgraph.store import failures, group_tallies
from scrapy_itemgraph.store.admin import (
    activity,
    costs,
    depth_reports,
    done_lists,
    failure_groups,
    item_search,
    limit_reports,
    neighbours,
    outstanding,
    overview,
    run_lists,
    run_progress,
    status,
    totals,
    work_pages,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

Json = dict[str, Any]

# Names in annotations of records, which their modules import for type checkers alone.
_TYPES = {
    one.__name__: one
    for one in (datetime, timedelta, Mapping, UUID, health.Health, health.RunFacts)
}


def of_record(record: type, *, without: Collection[str] = ()) -> Callable[[type[M]], type[M]]:
    """Give a model the fields of a record, in its order; all are required.

    A field that the model declares itself has the model's type. Fields in `without` are not
    answered.
    """

    def shaped(model: type[M]) -> type[M]:
        recorded = get_type_hints(record, localns=_TYPES)
        types = recorded | get_type_hints(model)
        fields: dict[str, Any] = {
            name: (types[name], ...) for name in recorded if name not in without
        }
        made = create_model(model.__name__, __doc__=model.__doc__, __module__=__name__, **fields)
        return cast("type[M]", made)

    return shaped


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
    did_you_mean: list[str] = []


@of_record(attempt_logs.LogLine)
class LogLine(BaseModel):
    """A line that a callback logged: seconds after the claim, category, text."""


@of_record(status.Attempt)
class Attempt(BaseModel):
    """An attempt at a task of an item."""

    log: list[LogLine]


@of_record(snapshots.ResultSnapshot)
class Result(BaseModel):
    """What a task of an item last produced, and its state."""


@of_record(snapshots.ItemSnapshot)
class Listed(BaseModel):
    """An item."""

    created_at: datetime
    updated_at: datetime


@of_record(snapshots.ListedItem)
class ListedItem(BaseModel):
    """An item in a list, with the states and metadata of its tasks, by their names."""

    created_at: datetime
    updated_at: datetime


@of_record(done_lists.Done)
class Done(BaseModel):
    """An execution that ended well, and how many items it scraped."""


@of_record(blobs.BlobSnapshot)
class Blob(BaseModel):
    """Binary data of an item; its size in bytes, its SHA-256 in hexadecimal."""


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


@of_record(outstanding.OutstandingWork)
class Work(BaseModel):
    """Work that nobody has claimed."""


@of_record(work_pages.WorkRow)
class WorkRow(BaseModel):
    """Work in a state: `ready`, `delayed`, `claimed`, `held` or `gone`."""

    state: str


@of_record(failures.OpenFailure, without=("item_id", "task_id"))
class Failure(BaseModel):
    """A failure, or a refusal, that nobody has handled."""

    log: list[LogLine]


class FailureDetails(Failure):
    """A failure, open or handled, with all that is known of it; `attempt` is from 1."""

    spider: str
    is_callback: bool
    group: UUID
    attempt: int | None
    handled_at: datetime | None
    handled_by: str | None


@of_record(group_tallies.TimesInRun)
class TimesInRun(BaseModel):
    """How many failures of a group a run had, by the run's number."""


@of_record(failure_groups.FailureGroup)
class FailureGroup(BaseModel):
    """Open failures of a task that are alike, and the last one of them."""

    runs: list[TimesInRun]
    example: Failure


class Undone(BaseModel):
    """How many failures are open again."""

    undone: int


@of_record(costs.Cost)
class Cost(BaseModel):
    """How many pages an act has fetched, counted before it; with `is_more` so many or more."""

    pages: int
    is_more: bool


class Handled(BaseModel):
    """How many pairs were handled; of a dry run none, and what it would cost."""

    handled: int
    retry: bool
    cost: Cost | None = None


class AskedAgain(BaseModel):
    """How many pages that were gone are asked again; of a dry run none, and what it would cost."""

    handled: int
    cost: Cost | None = None


class SetAside(BaseModel):
    """How many pages were set aside, or freed."""

    pages: int


class Attempts(BaseModel):
    """The tasks of a page that have so many attempts from now on."""

    attempts: int
    tasks: list[str]


class Dripfed(BaseModel):
    """How many pages of the stash are kept in work; null: none."""

    pages: int | None


@of_record(depth_reports.AtDepth)
class AtDepth(BaseModel):
    """How many pages have a depth; null: no path to them is known."""

    depth: int | None
    pages: int
    is_more: bool


@of_record(depth_reports.DepthStanding)
class Depth(BaseModel):
    """How deep pages are, and may be."""

    limit: int | None
    is_set: bool
    too_deep: int
    by_depth: list[AtDepth]
    is_at_work: bool


class SetDepth(Depth):
    """How deep pages are, and may be; of a dry run also how many would come within that."""

    cost: Cost | None = None


@of_record(status.TaskState)
class Task(BaseModel):
    """A task as it is declared, and what is done, waiting and failed of it."""

    ttl: float | None


class Changed(BaseModel):
    """How many results changed."""

    task: str
    changed: int


class Expired(BaseModel):
    """How many results became stale; of a dry run none, and what it would cost."""

    task: str | None
    tag: str | None
    expired: int
    cost: Cost | None = None


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
    error: str | None
    error_at: datetime | None
    code: str | None
    code_file: str | None
    claims: int


@of_record(run_lists.RunLine)
class Run(BaseModel):
    """A run: when it began and ended, why it ended, and what it did."""


@of_record(run_progress.Progress)
class Progress(BaseModel):
    """Where the known work of a crawl stands, and how fast it goes while a worker runs."""


class Status(BaseModel):
    """A crawl's health and numbers, its present or last run, and how far that is."""

    crawl: str
    health: health.Health
    why: str
    items: int
    estimated: list[str]
    run: Run | None
    progress: Progress
    tasks: list[Task]
    workers: list[Worker]
    sweeps: list[Json]
    under_way: list[Json]
    next_due: datetime | None
    old_snapshot: Json | None


@of_record(overview.TaskNumbers)
class TaskNumbers(BaseModel):
    """What is waiting, done and failed of a task."""


@of_record(health.RunFacts)
class LastRun(BaseModel):
    """One of the last ten runs, in short."""


@of_record(overview.CrawlOverview)
class Crawl(BaseModel):
    """A crawl with its health, state and numbers, by task too, and the last minute's counts."""

    state: str
    run: Run | None
    last_runs: list[LastRun]
    progress: Progress
    tasks: list[TaskNumbers]


@of_record(activity.TaskMinute)
class TaskMinute(BaseModel):
    """What executions of a task did in a minute, and how many seconds they took together."""


@of_record(totals.TaskTotals)
class TaskTotals(BaseModel):
    """All that was done of a task, its requests by HTTP status, and the bytes of the answers."""


@of_record(activity.LimitMinute)
class LimitMinute(BaseModel):
    """How many requests started under a limit in a minute."""


@of_record(activity.WorkerState)
class WorkerState(BaseModel):
    """A crawl process: where it runs or ran, with what code and memory (bytes), and its claims."""


@of_record(item_search.FoundItem)
class FoundItem(BaseModel):
    """An item that was found."""


@of_record(item_search.Found)
class Found(BaseModel):
    """What a search found, the newest first; `is_whole`: all items were looked at."""

    items: list[FoundItem]


@of_record(neighbours.Neighbour)
class Neighbour(BaseModel):
    """An item beside another one."""


@of_record(neighbours.Neighbours)
class Neighbours(BaseModel):
    """An item's maker, if it is still there, and what its last executions made."""

    created_by: Neighbour | None
    created: list[Neighbour]


@of_record(limit_reports.Holder)
class Holder(BaseModel):
    """A worker that has something of a limit, or waits for it."""


@of_record(limit_reports.LimitState)
class Slot(BaseModel):
    """A limit as it is kept, what was set and learned of it, and who has it."""

    holders: list[Holder]
    waiting: list[Holder]


class ChangedSlot(Slot):
    """A limit after a change."""

    is_changed: bool
    is_new: bool
    hint: str


@of_record(work.Note, without=("shown",))
class Note(BaseModel):
    """What an operation did."""


@of_record(feed_exports.Kept)
class Kept(BaseModel):
    """A scraped item that was kept."""
