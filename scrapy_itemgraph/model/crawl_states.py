"""States of crawls that people steer: what may become of them, and by whom.

A crawl that nobody manages has no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta

    from scrapy_itemgraph.model.rules import Ruleset


class State(StrEnum):
    """What is stored: a person's wish, or the end that a worker found."""

    ACTIVE = "active"
    PAUSED = "paused"
    ABORTED = "aborted"
    FINISHED = "finished"


class Change(StrEnum):
    """What a person does to a crawl's state."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    REVIVE = "revive"


class Event(StrEnum):
    """What `crawl_events` tells, of crawls and then of runners."""

    ADDED = "added"
    SET = "set"
    RULES = "rules"
    PAUSED = "paused"
    RESUMED = "resumed"
    ABORTED = "aborted"
    REVIVED = "revived"
    FINISHED = "finished"
    AWAKENED = "awakened"
    SCHEDULED = "scheduled"
    SCHEDULE_SET = "schedule set"
    ASSIGNED = "assigned"
    STARTED = "started"
    ENDED = "ended"
    STOPPED = "told to stop"
    PREEMPTED = "preempted"
    UNKEPT = "kept no more"
    CRASH_LOOP = "crash loop"
    LOCKED = "locked"
    UNLOCKED = "unlocked"
    RECLAIMED = "reclaimed"
    RUNNER_UP = "runner up"
    RUNNER_SET = "runner set"
    RUNNER_DRAINS = "runner drains"
    RUNNER_GONE = "runner gone"
    HOST_LOW = "host low"
    HOST_WELL = "host well"


STATE_EVENTS = frozenset(
    {
        *(Event.ADDED, Event.PAUSED, Event.RESUMED, Event.ABORTED, Event.REVIVED),
        *(Event.FINISHED, Event.AWAKENED, Event.SCHEDULED, Event.CRASH_LOOP),
    }
)
"""What brings a crawl into its state."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A change: the states it may begin in, the one it leads to, and the event that tells it."""

    before: frozenset[State]
    after: State
    event: Event


_STEPS = {
    Change.PAUSE: _Step(frozenset({State.ACTIVE}), State.PAUSED, Event.PAUSED),
    Change.RESUME: _Step(frozenset({State.PAUSED}), State.ACTIVE, Event.RESUMED),
    Change.ABORT: _Step(frozenset({State.ACTIVE, State.PAUSED}), State.ABORTED, Event.ABORTED),
    Change.REVIVE: _Step(frozenset({State.ABORTED, State.FINISHED}), State.ACTIVE, Event.REVIVED),
}

_INSTEAD = {
    (Change.PAUSE, State.FINISHED): "it has nothing to do",
    (Change.PAUSE, State.ABORTED): "none of its processes runs; crawls revive has it go on",
    (Change.RESUME, State.ABORTED): "crawls revive has it go on",
    (Change.RESUME, State.FINISHED): "crawls revive has it begin another run",
    (Change.ABORT, State.FINISHED): "it has nothing to do; crawls delete deletes it",
    (Change.REVIVE, State.PAUSED): "crawls resume has it go on",
}


def after(name: str, state: State, change: Change) -> tuple[State, Event]:
    """Return the state that a change leads to, and the event that tells it.

    Raises:
        OperationError: the change cannot be made in this state; it says what can.

    """
    step = _STEPS[change]
    if state not in step.before:
        is_so = state is step.after
        instead = "" if is_so else f"; {_INSTEAD.get((change, state), 'nothing is to be done')}"
        already = " already" if is_so else ""
        raise OperationError(f"the crawl {name!r} is {state}{already}{instead}")
    return step.after, step.event


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCrawl:
    """A crawl that is to be queued: its spider, with what that is started, and its terms.

    `name` is None for the name that a start by hand would give it; `ignored` are the names of
    arguments that make no crawl of their own. `resource` names a limit that one process at a time
    has. Its rules are `rules` from its beginning on, None: as they are. It begins at once, or
    `is_paused`, or waits for what its schedules say (`is_scheduled`).
    """

    spider: str
    project: str
    name: str | None = None
    arguments: Mapping[str, str]
    settings: Mapping[str, Any]
    ignored: Collection[str] = ()
    nice: int = 0
    concurrency: int = 1
    tag: str | None = None
    note: str | None = None
    time_limit: timedelta | None = None
    resource: str | None = None
    keeps_fresh: bool = False
    rules: Ruleset | None = None
    is_paused: bool = False
    is_scheduled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedCrawl:
    """A crawl that people steer, as the queue has it.

    `place` is its place among the active crawls of its project, from 1, None where it is not
    active; `jobs` is how many processes run it.
    """

    name: str
    state: State
    state_reason: str | None
    spider: str
    project: str
    arguments: Mapping[str, str]
    settings: Mapping[str, Any]
    nice: int
    concurrency: int
    tag: str | None
    note: str | None
    created_by: str | None
    queued_at: datetime
    next_at: datetime | None
    time_limit: timedelta | None
    resource: str | None
    keeps_fresh: bool
    crashes: int
    place: int | None
    jobs: int
    run: int

    @property
    def is_draining(self) -> bool:
        """Whether processes run that are to end, since it is not active any more."""
        return self.jobs > 0 and self.state is not State.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlEvent:
    """What happened to a crawl: when, by whom (a person, a runner, a worker), and the details."""

    id: int
    crawl: str | None
    at: datetime
    by: str
    what: str
    detail: Mapping[str, Any]
