"""What the API answers of crawls that people queue, typed as in `web.models`."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from scrapy_itemgraph.model import crawl_states, notices, schedule_terms
from scrapy_itemgraph.store.admin import job_reports, notice_lists, queue_reports, runner_reports
from scrapy_itemgraph.web.models import Json, of_record


@of_record(crawl_states.ManagedCrawl)
class QueuedCrawl(BaseModel):
    """A crawl of the queue: its state, terms and place (null: it is not active).

    `jobs` is how many processes run it; `time_limit` is in seconds.
    """

    state: str
    arguments: Json
    settings: Json
    time_limit: float | None


class ListedCrawl(QueuedCrawl):
    """A crawl in the list of the queue: why it waits, and who brought it into its state, when.

    `due_at` is when a schedule starts it next.
    """

    why: str | None
    by: str | None
    since: datetime | None
    due_at: datetime | None


class AddedCrawl(QueuedCrawl):
    """A crawl that was put into the queue, why it waits, and what a person should know of it."""

    explained: list[str]
    warnings: list[str]


@of_record(queue_reports.RunningProcess)
class CrawlProcess(BaseModel):
    """A process of a crawl, and where it runs."""


@of_record(crawl_states.CrawlEvent)
class CrawlEvent(BaseModel):
    """What happened to a crawl: when, by whom, and the details."""

    detail: Json


class ShownCrawl(QueuedCrawl):
    """A crawl of the queue with why it runs or waits, its processes, and its last events."""

    explained: list[str]
    processes: list[CrawlProcess]
    history: list[CrawlEvent]


class SeenRunner(BaseModel):
    """A living runner as a crawl sees it; `refusal` is why it would not take it now."""

    name: str
    tags: list[str]
    only_tagged: bool
    places: int
    free: int
    locked: int
    low: str | None
    drains: bool
    refusal: str | None


class ExplainedCrawl(QueuedCrawl):
    """A crawl of the queue, why it runs or waits, and which runners could take it."""

    sentences: list[str]
    runners: list[SeenRunner]


class SteeredCrawl(BaseModel):
    """A crawl's state after a change, and how many processes of it still run."""

    name: str
    state: str
    processes: int


class LockedPlace(BaseModel):
    """A place of a runner that is kept for a crawl."""

    name: str
    runner: str
    place: int


class UnlockedPlace(BaseModel):
    """A place of a runner that others may have again."""

    runner: str
    place: int


@of_record(runner_reports.RunnerLine)
class RunnerFacts(BaseModel):
    """A runner, its host, and what it takes."""


class Runner(RunnerFacts):
    """A runner, and its state in a word: `runs`, `drains`, `low` or `gone`."""

    state: str


@of_record(runner_reports.PlaceLine)
class Place(BaseModel):
    """A place of a runner, and what it has."""


class ShownRunner(Runner):
    """A runner with its places."""

    in_places: list[Place]


class DrainedRunner(BaseModel):
    """Whether a runner starts nothing more, and whether that is new."""

    runner: str
    drains: bool
    is_changed: bool


@of_record(job_reports.JobLine)
class Job(BaseModel):
    """A job: one process of a crawl of the queue."""


@of_record(job_reports.LogPart)
class JobLog(BaseModel):
    """What a job's process wrote; `next` is `after` of what follows."""


class CancelledJob(BaseModel):
    """A job that ends, and its crawl."""

    job: int
    crawl: str


class RetriedJob(CancelledJob):
    """A job that does what another one did."""

    instead_of: int


class Reclaimed(BaseModel):
    """What was taken, and why."""

    target: str
    reason: str


@of_record(schedule_terms.Schedule)
class ScheduleFacts(BaseModel):
    """A schedule of a crawl, and when it is due next; periods are in seconds."""

    grace: float
    jitter: float | None
    time_limit: float | None


class Schedule(ScheduleFacts):
    """A schedule, and its rule in words."""

    rule: str


class RemovedSchedule(BaseModel):
    """The number of a schedule that is gone."""

    id: int


class DueTime(BaseModel):
    """A due time, and what the clock of its schedule's time zone says then."""

    due: datetime
    local: str


@of_record(notice_lists.NoticeLine)
class Notice(BaseModel):
    """A notice: what people are told, whether it has arrived, and what each channel answered."""

    state: str
    detail: Json
    answers: Json


@of_record(notices.Answer)
class NoticeAnswer(BaseModel):
    """What one channel answered to a test."""

    arrival: str
