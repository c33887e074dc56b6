"""Tallies: what a worker did since it told the database last, counted in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from scrapy_itemgraph.model.latencies import Latencies
from scrapy_itemgraph.model.work import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_TASK = 0  # the number that stands for what is of no task: seeds, `start()`, robots.txt
NO_ANSWER = "none"  # what stands for the HTTP status of a request that was not answered

_COUNTED = {
    Outcome.OK: "done",
    Outcome.KNOWN: "done",
    Outcome.UNCHANGED: "done",
    Outcome.GONE: "gone",
    Outcome.RETRY: "retried",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
}


@dataclass(slots=True)
class TaskTally:
    """How executions of one task ended, what they made and requested, and the seconds they took.

    `items` are those of the graph, `scraped` came through the item pipelines. `statuses` counts
    requests by their HTTP status, `bytes` adds up the bodies of the answers as they were sent.
    """

    done: int = 0
    retried: int = 0
    failed: int = 0
    refused: int = 0
    gone: int = 0
    items: int = 0
    scraped: int = 0
    bytes: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)


# The numbers of a tally that are added up; what is counted by status is apart.
ADDED = tuple(one.name for one in fields(TaskTally) if one.name != "statuses")


@dataclass(slots=True, eq=False, repr=False)
class Tallies:
    """What one worker did: by the number of a task, and starts by the kind and name of a limit.

    `task_latencies` and `slot_latencies` say in how many seconds answers came, where that is kept.

    `long_links` counts links that were left out because they are longer than `url_limit`, which is
    this worker's URLLENGTH_LIMIT. `failures` counts failures and refusals by their fingerprint.

    `error` is the last that was logged, in one line. What is taken to be told has a `token`, by
    which the database knows it should it be told again.
    """

    of_tasks: dict[int, TaskTally] = field(default_factory=dict)
    starts: Counter[tuple[str, str]] = field(default_factory=Counter)
    error: str | None = None
    long_links: int = 0
    url_limit: int | None = None
    failures: Counter[UUID] = field(default_factory=Counter)
    task_latencies: dict[int, Latencies] = field(default_factory=dict)
    slot_latencies: dict[str, Latencies] = field(default_factory=dict)
    token: UUID = field(default_factory=uuid4)
    _taken: Tallies | None = None

    def __bool__(self) -> bool:
        return bool(self.of_tasks or self.starts or self.error or self.long_links)

    def ended(
        self, task_id: int, outcome: Outcome | None, *, seconds: float = 0.0, items: int = 0
    ) -> None:
        """Count an execution that was committed; what was given back, or lost, is none."""
        name = None if outcome is None else _COUNTED.get(outcome)
        if name is None:
            return
        tally = self.of_task(task_id)
        if task_id != NO_TASK:
            setattr(tally, name, getattr(tally, name) + 1)
        tally.items += items
        tally.seconds += seconds

    def answered(self, task_id: int, status: str, size: int = 0) -> None:
        """Count a request by the HTTP status and the bytes of its answer, or by `NO_ANSWER`."""
        tally = self.of_task(task_id)
        tally.statuses[status] += 1
        tally.bytes += size

    def answered_in(self, task_id: int, slot: str, seconds: float) -> None:
        """Count an answer by the seconds in which it came, for its task and its slot."""
        self.task_latencies.setdefault(task_id, Latencies()).add(seconds)
        self.slot_latencies.setdefault(slot, Latencies()).add(seconds)

    def of_task(self, task_id: int) -> TaskTally:
        """Return what is counted of a task."""
        tally = self.of_tasks.get(task_id)
        if tally is None:
            tally = self.of_tasks[task_id] = TaskTally()
        return tally

    def take(self) -> Tallies:
        """Return what was counted, and begin anew; the same again until it `was_told`."""
        if self._taken is None:
            self._taken = Tallies(
                of_tasks=self.of_tasks,
                starts=self.starts,
                error=self.error,
                long_links=self.long_links,
                url_limit=self.url_limit,
                failures=self.failures,
                task_latencies=self.task_latencies,
                slot_latencies=self.slot_latencies,
            )
            self.of_tasks, self.starts, self.error, self.long_links = {}, Counter(), None, 0
            self.task_latencies, self.slot_latencies, self.failures = {}, {}, Counter()
        return self._taken

    def was_told(self) -> None:
        """Take note that the database has what was taken."""
        self._taken = None

    def take_all(self) -> list[Tallies]:
        """Return what the database may not have: what was taken and not told, and the rest."""
        before = self.take()
        self.was_told()
        return [before, self.take()]


def added_up(tasks: Iterable[TaskTally]) -> TaskTally:
    """Return what tasks did together."""
    whole = TaskTally()
    for one in tasks:
        for name in ADDED:
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
        whole.statuses += one.statuses
    return whole
