"""What a worker asks of those parts of its graph that a simulation brings in other kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.worker_recovery import Memory
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.model.jobs import StopOrder
    from scrapy_itemgraph.model.operations import Changeset, Operation
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import RegisteredTask, Task
    from scrapy_itemgraph.model.work import (
        Claim,
        ClaimBudget,
        ClaimResult,
        CommitResult,
        Note,
        Pair,
        Redirect,
        RedirectAnswer,
        Remaining,
    )


class Claims(Protocol):
    """Work that a worker takes and gives back; see `WorkerClaims`."""

    has_cookies: bool

    async def claim(self, budget: ClaimBudget) -> ClaimResult:
        """Claim work, and the limits that it keeps to."""

    async def release(self, claims: Sequence[Claim]) -> int:
        """Give claims back in their place; return how many were still ours."""

    async def refile(self, claim: Claim, slot: str) -> bool:
        """Give a claim back into the queue of the slot that its request really has."""

    async def redirect(self, gone: Sequence[Redirect]) -> list[RedirectAnswer]:
        """Note where claims' requests went; for each, whether it may go on there."""


class Committing(Protocol):
    """What becomes of what a worker did; see `Commits`."""

    names_freed: tuple[int, int]

    async def commit(
        self,
        changesets: Sequence[Changeset],
        *,
        cookies: Sequence[Cookie] = (),
        state: Mapping[str, str | None] | None = None,
        in_flight: Collection[Pair] | None = None,
    ) -> CommitResult:
        """Apply changesets in one transaction; one that the database refuses fails alone."""

    async def seed(self, operations: Sequence[Operation]) -> tuple[Note, ...]:
        """Apply checked operations in one transaction of their own."""

    async def put_in_flight(self, pairs: Collection[Pair]) -> None:
        """Write what the engine has and gets next, in a transaction of its own."""


class RegisteredTasks(Protocol):
    """The tasks that a worker has registered; see `WorkerCallbacks`."""

    tasks: dict[int, RegisteredTask]
    outdated: set[str]
    left: set[str]


class Callbacks(RegisteredTasks, Protocol):
    """The same, and the plain callbacks among them that are met as the crawl goes on."""

    names: set[str]

    async def register(self, callbacks: Iterable[Task]) -> None:
        """Register plain callbacks that were met for the first time."""

    async def learn(self) -> bool:
        """Take note of plain callbacks that other workers registered; tell whether there are."""


class Job(Protocol):
    """What people want of a worker; see `WorkerJob`."""

    def hear(self) -> None:
        """Take note that something that concerns this worker has changed."""

    def see(self, state: str | None) -> None:
        """Take note of the crawl's state."""

    def see_closed(self, reason: str) -> None:
        """Take note why the spider of another process has closed the run."""

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news, `timeout` seconds at most."""

    async def look(self) -> StopOrder | None:
        """Return why this worker is to stop; None where it goes on."""

    def leave(self, connection: Connection, reason: str) -> None:
        """End the job, unless that is its runner's to end."""


class WorkerRun(Protocol):
    """The run that a worker takes part in; see `WorkerRuns`."""

    is_resumed: bool
    is_start_told: bool
    is_closed: bool
    has_left: bool

    @property
    def is_over(self) -> bool:
        """Whether all of it was over when this worker began."""

    @property
    def is_continued(self) -> bool:
        """Whether it had come to its end, and work opened it again."""

    @property
    def number(self) -> int:
        """The number of the run, from 1."""

    @property
    def until(self) -> datetime | None:
        """When results must have fallen due that become work; None: now."""

    async def mark_started(self) -> None:
        """Note that `start()` came to its end; until then no worker finishes the run."""

    async def finish(self) -> bool:
        """Note that the run is over, so that the next start begins another one.

        False where it is to be looked again.
        """

    async def close(self, reason: str) -> None:
        """Note that the spider has closed the run."""

    async def hold_left(self) -> None:
        """Have held what earlier runs have left that their spider closed."""

    async def hold_own(self) -> None:
        """Have held what this run has left, if this worker was the last one in it."""

    async def remaining(self) -> Remaining:
        """Return what is left for this worker's tasks."""

    def leave(
        self, connection: Connection, reason: str, told: Sequence[Tallies], error: str | None
    ) -> None:
        """Note why the worker ends, by which error, and what it did and has not told yet."""


class Recovery(Protocol):
    """What is done where the database went back; see `WorkerRecovery`."""

    memory: Memory | None
