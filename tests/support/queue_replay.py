"""A model of the queue that shares no code with it: it replays what happened, and finds the wrongs.

Whatever an assignment depends on is in `crawl_events`, in the order in which it became true. So who
replays them knows at each assignment which crawl is the best, and at each preemption which place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

EVENTS = sa.text("""
    SELECT e.id, e.crawl_id, c.name, e.at, e.what, e.detail
    FROM crawl_events e LEFT JOIN crawls c ON c.id = e.crawl_id
    WHERE e.id > :after ORDER BY e.id
""")
LONGEST = timedelta(seconds=5)  # of a transaction: so much earlier than its event it has looked
TERMS = ("nice", "concurrency", "tag", "resource", "queued_at", "next_at")
STOPS = ("paused", "aborted", "crash loop")


@dataclass
class Place:
    """A place of a runner; `since` is between when at the earliest and when at the latest."""

    job: int | None = None
    since: tuple[datetime, datetime] | None = None
    kept_for: int | None = None
    locked_to: int | None = None
    freed_at: datetime | None = None  # where a crawl waited for it then


@dataclass
class Runner:
    """What is known of a runner."""

    terms: dict[str, Any]
    places: dict[int, Place] = field(default_factory=dict)
    is_up: bool = True
    is_low: bool = False
    drains: bool = False

    @property
    def starts(self) -> bool:
        """Whether it starts anything."""
        return self.is_up and not self.is_low and not self.drains


@dataclass
class Job:
    """A process that runs, whoever started it."""

    crawl: int
    since: tuple[datetime, datetime]
    is_stopping: bool = False


class Replay:
    """What happened, in order: `wrongs` are what should not have, `gaps` how long places waited."""

    def __init__(self, sticks: float = 30) -> None:
        """Know nothing yet; a place `sticks` to its crawl for so many seconds."""
        self.sticks = timedelta(seconds=sticks)
        self.crawls: dict[int, dict[str, Any]] = {}
        self.runners: dict[str, Runner] = {}
        self.jobs: dict[int, Job] = {}
        self.resource_free_at: dict[str, datetime] = {}
        self.wrongs: list[str] = []
        self.gaps: list[tuple[timedelta, str]] = []
        self.counts: dict[str, int] = {}
        self.at = self.before = datetime.min.replace(tzinfo=UTC)
        self.event: Any = None

    def read(self, connection: sa.Connection) -> Replay:
        """Replay what happened in a database since it was read last."""
        after = 0 if self.event is None else self.event.id
        for event in connection.execute(EVENTS, {"after": after}):
            self.before, self.at = max(self.at, event.at - LONGEST), event.at
            self.event = event
            self.counts[event.what] = self.counts.get(event.what, 0) + 1
            self._take_terms(event.crawl_id, event.what, event.detail)
            handle = getattr(self, f"_{event.what.replace(' ', '_')}", None)
            if handle is not None:
                handle(event.crawl_id, **event.detail)
        return self

    # What is so

    def key(self, crawl: int) -> tuple[int, datetime, int]:
        """Return a crawl's place in the order."""
        return self.crawls[crawl]["nice"], self.crawls[crawl]["queued_at"], crawl

    def processes(self, crawl: int) -> int:
        """Return how many processes run a crawl."""
        return sum(job.crawl == crawl for job in self.jobs.values())

    def kept(self, crawl: int) -> int:
        """Return how many places are freed for a crawl."""
        return sum(p.kept_for == crawl for r in self.runners.values() for p in r.places.values())

    def fits(self, crawl: int, runner: Runner) -> bool:
        """Tell whether a runner may run a crawl."""
        tag = self.crawls[crawl]["tag"]
        of_tag = tag in runner.terms["tags"] if tag else not runner.terms["only_tagged"]
        return of_tag and self.crawls[crawl]["project"] == runner.terms["project"]

    def is_eligible(self, crawl: int, runner: Runner, at: datetime, kept: int = 0) -> bool:
        """Tell whether a runner may start a process of a crawl at a moment."""
        one = self.crawls[crawl]
        busy = {self.crawls[job.crawl]["resource"] for job in self.jobs.values()} - {None}
        moments = (one["next_at"], self.resource_free_at.get(one["resource"]))
        return (
            one["state"] == "active"
            and self.fits(crawl, runner)
            and self.processes(crawl) + kept < one["concurrency"]
            and one["resource"] not in busy
            and all(moment is None or moment <= at for moment in moments)
        )

    def is_misplaced(self, number: int, place: Place, runner: Runner) -> bool:
        """Tell whether a place's process may not go on there."""
        job = self.jobs[number]
        if job.is_stopping or self.crawls[job.crawl]["state"] != "active":
            return False
        same = [n for n, o in self.jobs.items() if o.crawl == job.crawl and not o.is_stopping]
        is_too_many = sum(n < number for n in same) >= self.crawls[job.crawl]["concurrency"]
        is_locked = place.locked_to not in (None, job.crawl)
        return is_too_many or is_locked or not self.fits(job.crawl, runner)

    def sticky(self, place: Place, at: datetime, which: int) -> bool:
        """Tell whether a place has had its crawl too short a time to lose it to another."""
        return place.since is not None and place.since[which] > at - self.sticks

    # Assignments and preemptions

    def _assigned(self, crawl: int, *, job: int, runner: str, place: int, **more: Any) -> None:
        own, here = self.runners[runner], self.runners[runner].places[place]
        waits = [c for c in self.crawls if self.is_eligible(c, own, self.before)]
        self._check("the place is free", here.job is None and job not in self.jobs)
        self._check("the runner starts crawls", own.starts)
        self._check("the crawl may run there", self.is_eligible(crawl, own, self.at))
        if here.locked_to is not None:
            self._check("it is the crawl that the place is locked to", here.locked_to == crawl)
        elif here.kept_for is not None:
            self._check("it is the crawl that the place is kept for", here.kept_for == crawl)
        else:
            best = min(map(self.key, waits), default=self.key(crawl))
            self._check(f"it is the best: {best}", self.key(crawl) <= best)
        if here.freed_at is not None:
            self.gaps.append((self.at - here.freed_at, f"{runner} {place}"))
        self.jobs[job] = Job(crawl, (self.before, self.at))
        here.job, here.since, here.kept_for, here.freed_at = job, self.jobs[job].since, None, None
        if more.get("resource_free_at"):
            free_at = datetime.fromisoformat(more["resource_free_at"])
            self.resource_free_at[self.crawls[crawl]["resource"]] = free_at

    def _preempted(
        self, crawl: int, *, job: int, runner: str, place: int, better: str | None, **_more: Any
    ) -> None:
        own, here = self.runners[runner], self.runners[runner].places[place]
        self._check("the job runs there", here.job == job and self.jobs[job].crawl == crawl)
        self._check("it was not told to stop", not self.jobs[job].is_stopping)
        used = {place.job: place for place in own.places.values() if place.job is not None}
        misplaced = max((n for n in used if self.is_misplaced(n, used[n], own)), default=None)
        if better is None:
            self._check(f"it is the last misplaced: {misplaced}", misplaced == job)
        else:
            self._check("nothing is misplaced", misplaced is None)
            here.kept_for = self._check_better(crawl, own, here, better)
        self.jobs[job].is_stopping = True

    def _check_better(self, crawl: int, own: Runner, here: Place, better: str) -> int:
        """Check that a place is the one that ends for a better crawl; return that crawl."""
        wanted = next(number for number, one in self.crawls.items() if one["name"] == better)
        self._check("the runner preempts", own.starts and own.terms["preempts"])
        self._check("it may run", self.is_eligible(wanted, own, self.at, self.kept(wanted)))
        best = self.best_waiting(own, self.before)
        self._check(
            f"it is the best that waits: {best}", best is None or self.key(wanted) <= self.key(best)
        )
        self._check("no place is free for it", not self.has_free(wanted))
        may = self.losers(wanted, own, self.at, 0)
        self._check("the place may lose its crawl", any(place is here for place in may))
        surely = [
            self.key(self.jobs[p.job].crawl) for p in self.losers(wanted, own, self.before, 1)
        ]
        self._check(
            "its crawl is the worst", self.key(crawl) >= max(surely, default=self.key(crawl))
        )
        return wanted

    def best_waiting(self, own: Runner, at: datetime) -> int | None:
        """Return the best crawl that waits for a process on a runner, more than are being freed."""
        waits = [c for c in self.crawls if self.is_eligible(c, own, at, self.kept(c))]
        return min(waits, key=self.key, default=None)

    def has_free(self, crawl: int) -> bool:
        """Tell whether any runner has a free place for a crawl."""
        return any(
            place.job is None and {place.kept_for, place.locked_to} <= {None, crawl}
            for own in self.runners.values()
            if own.starts and self.fits(crawl, own)
            for place in own.places.values()
        )

    def losers(self, crawl: int, own: Runner, at: datetime, which: int) -> list[Place]:
        """Return the places of a runner that may lose what they run to a better crawl."""
        return [
            place
            for place in own.places.values()
            if place.job is not None and place.kept_for is None and place.locked_to is None
            if not self.jobs[place.job].is_stopping and not self.sticky(place, at, which)
            if self.key(self.jobs[place.job].crawl) > self.key(crawl)
        ]

    def left(self, runner: str, at: datetime) -> list[str]:
        """Return what a runner should do at a moment: nothing, where it has found nothing."""
        own = self.runners[runner]
        used = {place.job: place for place in own.places.values() if place.job is not None}
        found = [f"{job} is misplaced" for job in used if self.is_misplaced(job, used[job], own)]
        if not own.starts:
            return found
        for number, place in own.places.items():
            only = place.locked_to
            wait = [c for c in self.crawls if only in (None, c) and self.is_eligible(c, own, at)]
            if place.job is None and wait:
                found.append(f"place {number} is free, and {wait} wait")
        best = self.best_waiting(own, at) if own.terms["preempts"] else None
        if best is not None and not self.has_free(best) and self.losers(best, own, at, 1):
            found.append(f"{best} is better than what runs")
        return found

    def _check(self, what: str, holds: bool) -> None:
        if not holds:
            self.wrongs.append(f"event {self.event.id}, {self.event.what}: not so: {what}")

    # What else happens

    def _take_terms(self, crawl: int | None, what: str, detail: dict[str, Any]) -> None:
        if crawl is None:
            return
        one = self.crawls.setdefault(crawl, dict.fromkeys((*TERMS, "project", "state")))
        one["name"] = self.event.name
        given = (
            [*TERMS, "project"] if "nice" in detail else [] if what == "assigned" else ["next_at"]
        )
        for name in given:
            if name in detail and (name != "next_at" or what != "ended" or detail[name]):
                of_time = name in {"queued_at", "next_at"} and detail[name]
                one[name] = datetime.fromisoformat(detail[name]) if of_time else detail[name]
        if what not in {"ended", "assigned", "started"} and detail.get("state"):
            one["state"] = detail["state"]
        if what == "finished":
            one["next_at"] = None
        for job in self.jobs.values():
            job.is_stopping |= job.crawl == crawl and what in STOPS

    def _started(self, crawl: int, *, job: int, **_more: Any) -> None:
        self.jobs[job] = Job(crawl, (self.before, self.at))

    def _ended(self, _crawl: int, *, job: int, **_more: Any) -> None:
        self.jobs.pop(job, None)
        for own in self.runners.values():
            for place in own.places.values():
                if place.job == job:
                    place.job = place.since = None
                    waits = any(self.is_eligible(c, own, self.at) for c in self.crawls)
                    place.freed_at = self.at if own.starts and waits else None

    def _told_to_stop(self, _crawl: int, *, job: int, **_more: Any) -> None:
        self.jobs[job].is_stopping = True

    def _kept_no_more(self, crawl: int, *, runner: str, place: int, **_more: Any) -> None:
        self._check("it was kept", self.runners[runner].places[place].kept_for == crawl)
        may = self.is_eligible(crawl, self.runners[runner], self.before)
        self._check("the crawl cannot have it", not may)
        self.runners[runner].places[place].kept_for = None

    def _locked(self, crawl: int, *, runner: str, place: int, **_more: Any) -> None:
        self.runners[runner].places[place].locked_to = crawl
        self.runners[runner].places[place].kept_for = None

    def _unlocked(self, _crawl: int, *, runner: str, place: int, **_more: Any) -> None:
        self.runners[runner].places[place].locked_to = None

    def _runner_up(
        self, _crawl: None, *, runner: str, places: int, jobs: dict[str, int], **terms: Any
    ) -> None:
        before = self.runners.get(runner)
        own = self.runners[runner] = Runner({**terms, "places": places})
        for number in range(1, places + 1):
            lock = before.places[number].locked_to if before and number in before.places else None
            own.places[number] = Place(locked_to=lock)
        for number, job in jobs.items():
            own.places[int(number)].job = job
            own.places[int(number)].since = self.jobs[job].since

    def _runner_set(self, _crawl: None, *, runner: str, **terms: Any) -> None:
        self.runners[runner].terms |= terms

    def _runner_drains(self, _crawl: None, *, runner: str, drains: bool) -> None:
        self.runners[runner].drains = drains
        for place in self.runners[runner].places.values():
            place.kept_for = None

    def _runner_gone(self, _crawl: None, *, runner: str, **_more: Any) -> None:
        self.runners[runner].is_up = False
        for place in self.runners[runner].places.values():
            place.job = place.since = place.kept_for = None

    def _host_low(self, _crawl: None, *, runner: str, **_more: Any) -> None:
        self.runners[runner].is_low = True

    def _host_well(self, _crawl: None, *, runner: str, **_more: Any) -> None:
        self.runners[runner].is_low = False
