"""Limits of a worker: which a worker's work keeps to, and what it has of them in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import limits
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.limits.declared import TaskLimits
from scrapy_itemgraph.store.worklist.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.limits import Grant, Limit, SlotFeedback, Use
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim, ClaimBudget
    from scrapy_itemgraph.settings import Settings


class WorkerLimits:
    """The limits of one worker."""

    def __init__(
        self, transactions: Transactions, settings: Settings, own: Identity, *, spider: str
    ) -> None:
        self._own = own
        self._call = transactions.call
        self._settings = settings
        self._spider = spider
        self._known = TaskLimits()
        self.of_strays: tuple[int, ...] = ()  # requests that no task's work leads to

    def of_task(self, task: Task) -> Sequence[Limit]:
        """Return what the work of a task keeps to, as the code and the settings declare it."""
        return limits.of_task(
            task,
            spider=self._spider,
            rate_limit=self._settings.limits.rate_limit,
            rate_groups=self._settings.limits.rate_groups,
        )

    async def number(self, tasks: Mapping[int, Task]) -> None:
        """Take note of the numbers of tasks' limits, and save nothing else of these."""
        declared = {number: self.of_task(task) for number, task in tasks.items()}
        self.learn(await self._call(declared_limits.number, declared, of_all=self.of_all))

    def learn(self, registered: TaskLimits) -> None:
        """Take note of the limits of tasks that are registered."""
        self._known.update(registered)
        self.of_strays = tuple(
            number for number, one in self._known.declared.items() if one.kind == limits.GLOBAL
        )

    @property
    def of_all(self) -> Sequence[Limit]:
        """What every request keeps to."""
        given = self._settings.limits.rate_limit
        return () if given is None else (limits.of_all(given),)

    async def stray_groups(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the groups that match no task, neither of `names` nor of any crawl, with hints."""
        groups = self._settings.limits.rate_groups
        if not groups:
            return []
        known = await self._call(declared_limits.task_names)
        return limits.strays(groups, {*known, *names})

    async def register(self, tasks: Mapping[int, Task]) -> None:
        """Save the limits of tasks that are registered, and of requests of none."""
        if any(map(self.of_task, tasks.values())):
            await self._call(self.register_in, tasks)

    def register_in(self, connection: Connection, tasks: Mapping[int, Task]) -> None:
        """Do the same in a transaction that is open."""
        declared = {number: self.of_task(task) for number, task in tasks.items()}
        if any(declared.values()):
            self.learn(declared_limits.register(connection, declared))

    @property
    def declared(self) -> Mapping[int, Limit]:
        """All limits that the code and the settings declare, by number."""
        return self._known.declared

    def of_claim(self, claim: Claim) -> tuple[int, ...]:
        """Return the limits that the requests of a claim keep to, beside their slots."""
        of_tags = (
            number
            for number in self._known.of_tags.get(claim.task_id, ())
            if claim.item.tags.keys() >= set(self._known.declared[number].tags)
        )
        return (*self._known.of_task.get(claim.task_id, ()), *of_tags)

    def admission(self, budget: ClaimBudget) -> Admission:
        """Return what decides which work this worker may claim now."""
        return Admission(
            rooms=dict(budget.rooms),
            shared=budget.shared,
            limits_of=self._known.of_task,
            terms={number: one.terms for number, one in self._known.declared.items()},
            slot_terms=budget.slot_terms,
            learns=self._settings.limits.learn_delays,
        )

    async def renew(self, uses: Sequence[Use]) -> dict[int, Grant]:
        """Give up, shrink, grow and ask for limits, all at once."""
        learns = self._settings.limits.learn_delays
        return await self._call(holdings.renew, self._own.id, uses, learns=learns, hot=True)

    async def save_feedback(self, answers: Sequence[SlotFeedback]) -> None:
        """Save what was learned of slots, and tell the other workers that have them."""
        await self._call(holdings.save_feedback, self._own.id, answers, hot=True)

    async def number_slots(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of slots, made when they are new."""

        def intern(connection: Connection) -> dict[str, int]:
            return stored_slots.intern_slots(connection, names)

        return await self._call(intern, hot=True)
