"""Runners: what one takes, what it is told to start, and how its host is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from scrapy_itemgraph.model.jobs import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a runner is called and which crawls it takes.

    `logs` is the folder of its jobs' logs on its host. With `preempts` it ends a process for a
    better crawl.
    """

    name: str
    project: str
    places: int
    tags: tuple[str, ...] = ()
    only_tagged: bool = False
    preempts: bool = True
    logs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """How a runner's host is: bytes that are free, the load over a minute, and what is too low.

    `low` is None where processes may be started.
    """

    disk_free: int
    disk_total: int
    memory_free: int
    load: float
    low: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A job that a place was given: the process that is to be started."""

    job: int
    place: int
    crawl: str
    spider: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    time_limit: timedelta | None = None
    schedule: int | None = None
    due_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """A job of a place, as the database has it: whether it is to stop, and whether it is over."""

    job: int
    place: int
    stop_wanted: Stop | None
    is_over: bool
    worker_id: int | None


class LeftJob(NamedTuple):
    """A job whose runner is gone, and its process, if that was noted.

    It `is_orphan` if its process has no living worker either.
    """

    job: int
    crawl: str
    host: str | None
    process_id: int | None
    is_orphan: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a runner found in a round: its jobs, and whether there is something else to be done.

    `gone` are runners that are dead, `left` jobs whose runner is gone; `may_assign` and
    `may_preempt` say that a crawl waits for which a place is there, or could be, `is_due` that a
    schedule has come.
    """

    jobs: tuple[OwnJob, ...]
    gone: tuple[int, ...] = ()
    left: tuple[LeftJob, ...] = ()
    may_assign: bool = False
    may_preempt: bool = False
    is_due: bool = False
    is_draining: bool = False
