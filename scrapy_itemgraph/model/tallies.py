"""Tallies: what a worker did since it told the database last, counted in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from scrapy_itemgraph.model.work import Outcome

NO_TASK = 0  # the number that stands for seeds and `start()`

_COUNTED = {
    Outcome.OK: "done",
    Outcome.RETRY: "retried",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
}


@dataclass(slots=True)
class TaskTally:
    """How executions of one task ended, the items that they made, and the seconds they took."""

    done: int = 0
    retried: int = 0
    failed: int = 0
    refused: int = 0
    items: int = 0
    seconds: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class Tallies:
    """What one worker did: by the number of a task, and starts by the kind and name of a limit.

    `scraped` counts scraped items that came through the item pipelines. What is taken to be told
    has a `token`, by which the database knows it should it be told again.
    """

    of_tasks: dict[int, TaskTally] = field(default_factory=dict)
    starts: Counter[tuple[str, str]] = field(default_factory=Counter)
    scraped: int = 0
    token: UUID = field(default_factory=uuid4)
    _taken: Tallies | None = None

    def __bool__(self) -> bool:
        return bool(self.of_tasks or self.starts or self.scraped)

    def ended(
        self, task_id: int, outcome: Outcome | None, *, seconds: float = 0.0, items: int = 0
    ) -> None:
        """Count an execution that was committed; what was given back, or lost, is none."""
        name = None if outcome is None else _COUNTED.get(outcome)
        if name is None:
            return
        tally = self.of_tasks.get(task_id)
        if tally is None:
            tally = self.of_tasks[task_id] = TaskTally()
        if task_id != NO_TASK:
            setattr(tally, name, getattr(tally, name) + 1)
        tally.items += items
        tally.seconds += seconds

    def take(self) -> Tallies:
        """Return what was counted, and begin anew; the same again until it `was_told`."""
        if self._taken is None:
            self._taken = Tallies(self.of_tasks, self.starts, self.scraped)
            self.of_tasks, self.starts, self.scraped = {}, Counter(), 0
        return self._taken

    def was_told(self) -> None:
        """Take note that the database has what was taken."""
        self._taken = None

    def take_all(self) -> list[Tallies]:
        """Return what the database may not have: what was taken and not told, and the rest."""
        before = self.take()
        self.was_told()
        return [before, self.take()]
