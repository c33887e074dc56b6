"""Notices: what people are told of crawls and runners, by whom, and when it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

GIVEN_UP_AFTER = timedelta(days=1)
"""How long after it was written a notice is given up that does not arrive."""

_FIRST_PAUSE, _FACTOR, _LONGEST_PAUSE = 10.0, 3.0, 3600.0  # seconds, times, seconds


class Kind(StrEnum):
    """What a notice is about."""

    FINISHED = "finished"
    PAUSED = "paused by itself"
    ABORTED = "aborted"
    CRASH_LOOP = "crash loop"
    RUNNER_GONE = "runner gone"
    SCHEDULE_MISSED = "schedule missed"
    FAILURES = "failures open"
    IDLE = "nothing done"


TEST = "test"
"""What a notice is about that `notices test` sends; it is no kind, and is always sent."""

_SAID = {
    Kind.FINISHED: "The crawl {crawl} is finished",
    Kind.PAUSED: "The crawl {crawl} was paused",
    Kind.ABORTED: "The crawl {crawl} was aborted",
    Kind.CRASH_LOOP: "The crawl {crawl} was paused, for its processes crash",
    Kind.RUNNER_GONE: "The runner {runner} is gone",
    Kind.SCHEDULE_MISSED: "Due times of the crawl {crawl} were missed: {missed}",
    Kind.FAILURES: "The crawl {crawl} has open failures",
    Kind.IDLE: "The crawl {crawl} gets nothing done",
    TEST: "This is a test of the notices of the project {project}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What people are told that lasts; false: nothing.

    `idle` is for how long nothing is done in a crawl, and `failures` how many may be open.
    """

    idle: timedelta | None = None
    failures: int | None = None

    def __bool__(self) -> bool:
        """Tell whether anything is looked for."""
        return self.idle is not None or self.failures is not None


class Arrival(StrEnum):
    """What became of a notice in one channel."""

    SENT = "sent"
    FAILED = "failed"  # it is tried again
    REFUSED = "refused"  # it is not: the receiver said that it takes none any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one channel answered: what became of the notice, and what was said, such as "200 OK"."""

    channel: str
    arrival: Arrival
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that people are to be told.

    `key` stays the same over all tries, in all channels, and is no other's in any database. `crawl`
    and `reason` are None where there is none. `done` are answers of channels that need no more try.
    """

    id: int
    key: str
    what: str
    project: str | None
    crawl: str | None
    reason: str | None
    detail: Mapping[str, Any]
    created_at: datetime
    tries: int = 0
    done: tuple[Answer, ...] = ()

    @property
    def text(self) -> str:
        """What it says, in one sentence for people."""
        named = {
            "runner": "?",
            "missed": "?",
            **self.detail,
            "crawl": self.crawl,
            "project": self.project,
        }
        said = _SAID.get(self.what, f"{self.what}: {self.crawl}").format_map(named)
        return f"{said}: {self.reason}" if self.reason else said

    def document(self, cockpit: str | None = None) -> dict[str, Any]:
        """Return what receivers get, as JSON has it, with a link into the cockpit if there is one.

        It leads to the failure that the notice names, else to its crawl.
        """
        return {
            "id": self.key,
            "what": self.what,
            "project": self.project,
            "crawl": self.crawl,
            "reason": self.reason,
            "at": self.created_at.isoformat(),
            "text": self.text,
            "detail": dict(self.detail),
            "link": cockpit and self._link(cockpit),
        }

    def _link(self, cockpit: str) -> str:
        if self.crawl is None:
            return cockpit
        failure = self.detail.get("failure")
        page = "" if failure is None else f"/failures/{failure}"
        return f"{cockpit}/crawls/{quote(self.crawl, safe='')}{page}"


def pause_after(tries: int) -> timedelta:
    """Return how long a notice waits after so many tries, of which the last one failed."""
    exponent = min(tries - 1, 10)
    return timedelta(seconds=min(_FIRST_PAUSE * _FACTOR**exponent, _LONGEST_PAUSE))
