"""Jobs: one process of a crawl that people steer, whoever started it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.model.next_commands import command

if TYPE_CHECKING:
    from datetime import datetime


class JobState(StrEnum):
    """How far a job is, and how it ended."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    TEMPORARY_ERROR = "temporary-error"
    PERMANENT_ERROR = "permanent-error"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    """Who started a job."""

    RUNNER = "runner"
    SCRAPYD = "scrapyd"
    HAND = "hand"


class Stop(StrEnum):
    """Why a job is told to stop."""

    PAUSE = "pause"
    DRAIN = "drain"
    ABORT = "abort"
    CANCEL = "cancel"
    PREEMPT = "preempt"
    MEMORY = "memory"
    TIME = "time"
    DEPLOY = "deploy"


SUPERSEDED = "superseded"
"""Why a process ends whose job ended without it, or was declared lost."""

REASONS = {
    Stop.PAUSE: "paused",
    Stop.DRAIN: "drained",
    Stop.ABORT: "aborted",
    Stop.CANCEL: "cancelled",
    Stop.PREEMPT: "preempted",
    Stop.MEMORY: "out_of_memory",
    Stop.TIME: "time_limit",
    Stop.DEPLOY: "redeployed",
}
"""Why the spider of a process closes that is told to stop, as Scrapy's `finish_reason` has it."""

FAILED = frozenset({"itemgraph_error", "itemgraph_database_gone", "start_error"})
"""Why a spider closes for an error that is none of its pages."""

_OF_STATE = {State.PAUSED: Stop.PAUSE, State.ABORTED: Stop.ABORT}
_AS_ASKED = {*REASONS.values(), SUPERSEDED, "shutdown"}

_SENTENCES = {
    Stop.CANCEL: "This job was cancelled",
    Stop.PREEMPT: "This process may not have its place any more",
    Stop.DRAIN: "This process's runner is drained",
    Stop.MEMORY: "This process has taken more memory than it may",
    Stop.TIME: "This process has run for as long as it may",
    Stop.DEPLOY: "There is newer code to run",
}


def state_after(reason: str | None) -> JobState:
    """Return the state of a job by the reason that its process gave when it ended."""
    if reason is None or reason in FAILED:
        return JobState.TEMPORARY_ERROR
    return JobState.CANCELLED if reason in _AS_ASKED else JobState.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What people and runners want of a process, as the database has it.

    `state` is its crawl's, `by` who put it into that, when and why. `job` is the number of its job,
    None where it has none that is open; `stop_wanted` is why that is to stop.
    """

    crawl: str
    state: State | None
    job: int | None = None
    stop_wanted: Stop | None = None
    by: str | None = None
    at: datetime | None = None
    why: str | None = None

    @property
    def stop(self) -> Stop | None:
        """Why the process is to stop: for its crawl's state, or its own job.

        A job that was told of a pause is not, once its crawl was resumed.
        """
        of_state = None if self.state is None else _OF_STATE.get(self.state)
        is_over = self.stop_wanted in {Stop.PAUSE, Stop.ABORT}
        return of_state or (None if is_over else self.stop_wanted)

    @property
    def sentence(self) -> str:
        """Say who wants the process to stop, and what has the crawl go on."""
        stop = self.stop
        if stop is None:
            return (
                f"The job of this process was ended without it; others run the crawl {self.crawl!r}"
            )
        if stop in _SENTENCES:
            return f"{_SENTENCES[stop]} (crawl {self.crawl!r})"
        verb = "resume" if stop is Stop.PAUSE else "revive"
        by = f" by {self.by}" if self.by else ""
        at = f" at {self.at:%Y-%m-%d %H:%M:%S %Z}" if self.at else ""
        why = f" ({self.why})" if self.why else ""
        return (
            f"The crawl {self.crawl!r} was {REASONS[stop]}{by}{at}{why}; to have it go on: "
            f"{command('crawls', verb, self.crawl)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    """That a process is to stop: `reason` is that of its spider's end, `sentence` says who, why."""

    reason: str
    sentence: str

    @classmethod
    def of_closed_run(cls, reason: str) -> StopOrder:
        """Return that of a run that the spider of another process has closed."""
        return cls(reason=reason, sentence=f"The spider has closed this run ({reason})")

    @classmethod
    def of(cls, wishes: Wishes, *, is_superseded: bool, is_over: bool = False) -> StopOrder | None:
        """Return what wishes come to; None where the process goes on.

        `is_over`: the crawl had come to its end before the process began.
        """
        stop = wishes.stop
        if stop is not None:
            return cls(reason=REASONS[stop], sentence=wishes.sentence)
        if is_over:
            sentence = f"Others brought the crawl {wishes.crawl!r} to its end as this process began"
            return cls(reason="finished", sentence=sentence)
        return cls(reason=SUPERSEDED, sentence=wishes.sentence) if is_superseded else None
