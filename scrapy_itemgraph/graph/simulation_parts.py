"""Parts of a worker's graph in a simulation: one claim, and commits that are undone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.contents.transfer import WorkerContents
from scrapy_itemgraph.exceptions import DatabaseError, OperationError
from scrapy_itemgraph.graph import simulated_changes
from scrapy_itemgraph.graph.worker_claims import failed_by_slot
from scrapy_itemgraph.model import slots
from scrapy_itemgraph.model.work import (
    Applied,
    ClaimResult,
    CommitResult,
    RedirectAnswer,
    Remaining,
)
from scrapy_itemgraph.store.admin import crawl_lists
from scrapy_itemgraph.store.worklist import claims as stored_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.worker_recovery import Memory
    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.model.jobs import StopOrder
    from scrapy_itemgraph.model.operations import Changeset, Operation
    from scrapy_itemgraph.model.simulations import Simulation, SimulationPlan
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import RegisteredTask, Task
    from scrapy_itemgraph.model.work import Claim, ClaimBudget, Note, Pair, Redirect

# A crawl that was made for the simulation's worker alone, which goes with it.
DROP_CRAWL = text("""
    DELETE FROM crawls c WHERE c.id = :crawl
        AND NOT EXISTS (SELECT FROM tasks t WHERE t.crawl_id = c.id)
        AND NOT EXISTS (SELECT FROM items i WHERE i.crawl_id = c.id)
        AND NOT EXISTS (SELECT FROM processes p WHERE p.crawl_id = c.id AND p.id <> :worker)
""")


class SimulatedContents(WorkerContents):
    """Contents of a simulation: they are looked at, and written nowhere."""

    async def store(self, contents: Sequence[Content]) -> None:
        """Find out what is to be known of contents."""
        await self.measure(contents)
        for one in contents:
            one.number = 0  # its row is made in the transaction that is undone


class SimulatedCallbacks:
    """Plain callbacks that are met, for the transaction that is undone; no task is registered."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names)
        self.met: dict[str, Task] = {}
        self.tasks: dict[int, RegisteredTask] = {}
        self.outdated: set[str] = set()
        self.left: set[str] = set()

    async def register(self, callbacks: Iterable[Task]) -> None:
        """Keep plain callbacks that were met."""
        self.met |= {one.name: one for one in callbacks}

    async def learn(self) -> bool:
        """Learn of nothing."""
        return False


class SimulatedCommits:
    """Commits that are undone; `simulation` is what the claim's changeset came to."""

    def __init__(
        self,
        transactions: Transactions,
        own: Identity,
        callbacks: SimulatedCallbacks,
        plan: SimulationPlan,
        code: simulated_changes.Code,
    ) -> None:
        self.names_freed = (0, 0)
        self.simulation: Simulation | None = None
        self._transactions = transactions
        self._own = own
        self._callbacks = callbacks
        self._plan = plan
        self._code = code

    async def commit(
        self,
        changesets: Sequence[Changeset],
        *,
        cookies: Sequence[Cookie] = (),  # noqa: ARG002 - nothing is saved
        state: Mapping[str, str | None] | None = None,  # noqa: ARG002 - likewise
        in_flight: Collection[Pair] | None = None,
    ) -> CommitResult:
        """Find out what the claim's changeset comes to; others change nothing."""
        applied = [
            Applied(outcome=one.outcome) if one.claim is None else await self._applied(one)
            for one in changesets
        ]
        return CommitResult(applied=applied, is_written=in_flight is not None)

    async def seed(self, operations: Sequence[Operation]) -> tuple[Note, ...]:
        """Refuse seeds: a simulation sows none."""
        raise OperationError(f"a simulation takes no seeds, and was given {len(operations)}")

    async def put_in_flight(self, pairs: Collection[Pair]) -> None:
        """Write nothing of what starts: there is no claim that somebody could take over."""

    async def _applied(self, changeset: Changeset) -> Applied:
        simulate = partial(
            simulated_changes.simulate,
            plan=self._plan,
            code=self._code,
            changeset=replace(changeset, scraped=()),
            met=list(self._callbacks.met.values()),
            worker_id=self._own.id,
        )
        try:
            self.simulation = await undone(self._transactions, simulate)
        except DBAPIError as error:
            self.simulation = simulated_changes.refused(changeset, error, self._plan)
        assert self.simulation is not None
        return self.simulation.applied


class SimulatedClaims:
    """The one claim of a simulation, which nobody else sees."""

    def __init__(
        self, transactions: Transactions, own: Identity, commits: SimulatedCommits, claim: Claim
    ) -> None:
        self.has_cookies = False
        self._transactions = transactions
        self._own = own
        self._commits = commits
        self._claim: Claim | None = claim

    async def claim(
        self,
        budget: ClaimBudget,  # noqa: ARG002 - limits are asked for as those of follow-ups are
    ) -> ClaimResult:
        """Return the one claim; then nothing."""
        claim, self._claim = self._claim, None
        if claim is None:
            return ClaimResult()
        known = await self._transactions.call(
            stored_claims.before_claim, self._transactions.crawl_id, self._own.id
        )
        self.has_cookies = known.has_cookies
        return ClaimResult(claims=(claim,))

    async def release(self, claims: Sequence[Claim]) -> int:  # noqa: ARG002 - nobody has it
        """Give back nothing: the claim is not in the database."""
        return 0

    async def refile(self, claim: Claim, slot: str) -> bool:
        """Simulate the failure of a request whose slot cannot be stored; else file nothing."""
        if slots.is_usable(slot):
            return False
        (applied,) = (await self._commits.commit([failed_by_slot(claim, slot)])).applied
        return applied.outcome is not None

    async def redirect(self, gone: Sequence[Redirect]) -> list[RedirectAnswer]:
        """Let all go on."""
        return [RedirectAnswer.ON for _ in gone]


class SimulatedRun:
    """A run that is in no table: of it nothing is left once its one execution has ended."""

    number = 1
    is_resumed = False
    is_start_told = True
    is_closed = False
    has_left = False
    is_over = False
    is_continued = False

    def __init__(
        self, own: Identity, crawl_id: int, plan: SimulationPlan, *, has_made_crawl: bool
    ) -> None:
        self._own = own
        self._crawl_id = crawl_id
        self._plan = plan
        self._has_made_crawl = has_made_crawl

    @property
    def until(self) -> datetime | None:
        """When the worker started."""
        return self._own.started_at

    async def mark_started(self) -> None:
        """Do nothing: it was done at once."""

    async def finish(self) -> bool:
        """Do nothing: there is no run."""
        return True

    async def close(self, reason: str) -> None:
        """Do nothing: there is no run."""

    async def hold_left(self) -> None:
        """Do nothing: no run has left anything here."""

    async def hold_own(self) -> None:
        """Do nothing, likewise."""

    async def remaining(self) -> Remaining:
        """Return that nothing is left."""
        return Remaining(claimable=False, claimed=False, sweeping=False, next_retry=None)

    def leave(
        self,
        connection: Connection,
        reason: str,  # noqa: ARG002 - there is no run
        told: Sequence[Tallies],  # noqa: ARG002 - what was simulated is not counted
        error: str | None,  # noqa: ARG002 - likewise
    ) -> None:
        """Delete the crawl, where it was made for the simulation."""
        if self._plan.given:
            while crawl_lists.delete_some(connection, self._crawl_id):
                pass
        elif self._has_made_crawl:
            connection.execute(DROP_CRAWL, {"crawl": self._crawl_id, "worker": self._own.id})


class NoJob:
    """The job of a simulation: nobody steers it, whatever its crawl's state is."""

    def hear(self) -> None:
        """Do nothing."""

    def see(self, state: str | None) -> None:
        """Do nothing."""

    def see_closed(self, reason: str) -> None:
        """Do nothing."""

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - as of a worker's job
        """Wait for what does not come."""
        await asyncio.sleep(timeout)

    async def look(self) -> StopOrder | None:
        """Return that it goes on."""
        return None

    def leave(self, connection: Connection, reason: str) -> None:
        """End nothing."""


class NoRecovery:
    """What a simulation does where the database went back: it ends as that went."""

    memory: Memory | None = None


async def undone(transactions: Transactions, function: Callable[[Connection], None]) -> Any:
    """Run a function that ends its transaction by an UndoneError, and return what it found."""

    def within(connection: Connection) -> None:
        try:
            function(connection)
        except DBAPIError as error:  # others' transactions would be waited for again
            if getattr(error.orig, "sqlstate", None) != simulated_changes.LOCK_TIMEOUT:
                raise
            raise DatabaseError(
                f"others have kept what the simulation needs for {simulated_changes.LOCK_MS} ms; "
                "try again, and see `scrapy itemgraph status` for what runs"
            ) from None

    try:
        await transactions.patiently(within)
    except simulated_changes.UndoneError as undone:
        return undone.found
    raise AssertionError("it was to be undone")
