"""Claims of a worker: work that it takes and gives back, and where its requests went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import slots
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.work import ClaimResult, ErrorRecord, Outcome
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import stored_redirects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.commits import Commits
    from scrapy_itemgraph.graph.worker_callbacks import WorkerCallbacks
    from scrapy_itemgraph.graph.worker_depths import WorkerDepths
    from scrapy_itemgraph.graph.worker_job import WorkerJob
    from scrapy_itemgraph.graph.worker_limits import WorkerLimits
    from scrapy_itemgraph.graph.worker_recovery import WorkerRecovery
    from scrapy_itemgraph.graph.worker_rules import WorkerRules
    from scrapy_itemgraph.model.work import Claim, ClaimBudget, Redirect, RedirectAnswer

_LOGIN_LOOK = 5.0  # seconds, where news that another worker has logged in is lost


class WorkerClaims:
    """The claims of one worker; `has_cookies`: the crawl has some, as of the last claim."""

    def __init__(
        self,
        transactions: Transactions,
        own: Identity,
        *,
        callbacks: WorkerCallbacks,
        job: WorkerJob,
        limits: WorkerLimits,
        commits: Commits,
        recovery: WorkerRecovery,
        rules: WorkerRules,
        depths: WorkerDepths,
    ) -> None:
        self.has_cookies = False
        self._transactions = transactions
        self._crawl_id = transactions.crawl_id
        self._own = own
        self._callbacks = callbacks
        self._job = job
        self._limits = limits
        self._commits = commits
        self._recovery = recovery
        self._rules = rules
        self._depths = depths

    async def claim(self, budget: ClaimBudget) -> ClaimResult:
        """Claim work, and the limits that it keeps to; nothing where this worker is to stop."""
        tokens = stored_claims.new_tokens(budget.most)

        def claim(connection: Connection, begun: int) -> ClaimResult:
            if begun:
                crawls.share_crawl(connection, self._crawl_id)
                stored_claims.unclaim(connection, tokens, self._own.id)
                holdings.keep_only(connection, self._own.id, budget.rooms)
            # All of it is sent before any answer is read: each wait is a round trip.
            before_claim = stored_claims.send_before_claim(connection, self._crawl_id, self._own.id)
            wishes = self._job.send(connection)
            admission = self._limits.admission(budget)
            tasks = self._callbacks.tasks
            sent = stored_claims.send(
                connection,
                crawl_id=self._crawl_id,
                worker_id=self._own.id,
                tasks=tasks,
                limit=budget.most,
                alone=budget.alone,
                admission=admission,
            )
            known = stored_claims.read_before_claim(before_claim)
            self.has_cookies = known.has_cookies
            self._commits.see_freed(known.names_freed)
            self._job.see(known.crawl_state)
            self._depths.are_tracked = known.tracks_depth
            if known.others_log_in:
                return ClaimResult(again_in=_LOGIN_LOOK)
            if self._job.order(connection, wishes) is not None:
                return ClaimResult()
            claims = stored_claims.claim(
                connection,
                crawl_id=self._crawl_id,
                worker_id=self._own.id,
                tasks=tasks,
                tokens=tokens,
                limit=budget.most,
                alone=budget.alone,
                admission=admission,
                in_flight=budget.in_flight,
                ruleset_id=known.ruleset_id,
                tracks_depth=known.tracks_depth,
                sent=sent,
            )
            grants = tuple(admission.grants.values())
            return ClaimResult(claims=claims, grants=grants, again_in=admission.again_in)

        with self._recovery.kept(tokens):
            result = await self._transactions.numbered(claim)
        if result.claims:
            await self._rules.make_ready(result.claims[0].ruleset_id)
        return result

    async def release(self, claims: Sequence[Claim]) -> int:
        """Give claims back in their place; return how many were still ours."""
        if not claims:
            return 0
        with self._recovery.kept([one.token for one in claims]):
            return await self._transactions.call(
                stored_claims.release, claims, self._own.id, hot=True, share=True
            )

    async def refile(self, claim: Claim, slot: str) -> bool:
        """Give a claim back into the queue of the slot that its request really has.

        With a slot that cannot be stored there is no queue: then it fails.
        """
        if not slots.is_usable(slot):
            (applied,) = (await self._commits.commit([failed_by_slot(claim, slot)])).applied
            return applied.outcome is not None

        def refile(connection: Connection) -> bool:
            slot_id = stored_slots.intern_slots(connection, [slot])[slot]
            queue_id = queues.intern(connection, self._crawl_id, slot_id)
            return stored_claims.refile(connection, claim, queue_id, self._own.id)

        with self._recovery.kept([claim.token]):
            return await self._transactions.call(refile, hot=True, share=True)

    async def redirect(self, gone: Sequence[Redirect]) -> list[RedirectAnswer]:
        """Note where claims' requests went; for each, whether it may go on there."""
        return await self._transactions.call(
            stored_redirects.redirect, self._crawl_id, gone, hot=True
        )


def failed_by_slot(claim: Claim, slot: str) -> Changeset:
    """Return the failure of a claim whose request has a slot that cannot be stored."""
    what = f"the request's slot is no text of up to {slots.MAX_BYTES} bytes: {slot!r:.80}"
    error = ErrorRecord(type="OperationError", message=what)
    return Changeset(operations=(), outcome=Outcome.FAILED, claim=claim, error=error)
