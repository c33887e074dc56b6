"""The executions that are under way in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import Changeset, attachments
from scrapy_itemgraph.model.page_records import PageRecord
from scrapy_itemgraph.model.try_again import KIND
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools import wording
from scrapy_itemgraph.worker.executions import error_records
from scrapy_itemgraph.worker.executions.execution import Execution
from scrapy_itemgraph.worker.executions.outbox import Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scrapy_itemgraph.model.feed_exports import Scraped
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.try_again import TryAgain
    from scrapy_itemgraph.model.work import Claim, ErrorRecord
    from scrapy_itemgraph.throttle.limiter import Limiter
    from scrapy_itemgraph.worker.executions.execution import Leg
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests


@dataclass(slots=True, eq=False, repr=False)
class ActiveExecutions:
    """Begins executions, and puts what they leave into the outbox when they end.

    `working` has the executions of claims, `running` the legs whose requests the engine has. `room`
    is set whenever an execution ends; none may have more than `most_operations`. With `keeps_pages`
    each claim's tells of its page.
    """

    spider: str
    working: set[Execution]
    running: set[Leg]
    ready: ReadyRequests
    outbox: Outbox
    most_operations: int
    keeps_pages: bool = False
    room: asyncio.Event = field(default_factory=asyncio.Event)
    executions: set[Execution] = field(default_factory=set)
    is_over: bool = False  # the run: found to be, and nothing has begun since
    is_stopping: bool = False  # nothing is to begin any more

    @property
    def under_way(self) -> Collection[Execution]:
        """The executions that may go on now: not those that wait while something runs alone."""
        if self.ready.is_holding:
            return self.executions - self.ready.untouched
        return self.executions

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way in this process, and nothing is left to commit."""
        return not self.executions and not self.outbox.pending

    def begin(
        self, *, claim: Claim | None = None, task: Task | None = None, url: str = ""
    ) -> Execution:
        """Start an execution: of a claim, or of a request that belongs to none."""
        if claim is None:
            where = f"spider {self.spider}, {url or 'start()'}"
        elif task is not None and task.is_callback:
            shown = item_names.page(*item_names.page_of(claim.item.data)) or claim.item.id
            where = f"spider {self.spider}, callback {claim.task}, {shown}"
        else:
            shown = item_names.label(claim.item.id, claim.item.data)
            where = f"spider {self.spider}, task {claim.task}, item {shown}"
        execution = Execution(
            where=wording.one_line(where),  # it stands in log lines and errors
            claim=claim,
            task=task,
            on_end=self._ended,
            most=self.most_operations,
            running=self.running,
            page=PageRecord() if self.keeps_pages and claim is not None else None,
        )
        self.executions.add(execution)
        if claim is not None:
            self.working.add(execution)
        self.is_over = False
        return execution

    def forget(self, execution: Execution) -> None:
        """Have nothing more to do with an execution."""
        self.executions.discard(execution)
        self.working.discard(execution)

    def release(self) -> None:
        """Give back all claimed work: what it relies on failed, and not by its own fault."""
        for execution in list(self.working):
            execution.release()

    def stop(self) -> None:
        """Begin nothing any more, and give back the claimed work that has not begun."""
        self.is_stopping = True
        self.release_unbegun()

    def release_unbegun(self) -> None:
        """Give back the claimed work of which no request has started."""
        for execution in list(self.working):
            if not execution.has_begun:
                execution.release()

    def close(self) -> None:
        """End all executions; what is claimed is given back."""
        for execution in list(self.executions):
            execution.release()
            for leg in list(execution.legs):
                leg.close()

    def apply(
        self, changes: Sequence[Operation], where: str, *, scraped: Sequence[Scraped] = ()
    ) -> None:
        """Commit operations and scraped items that belong to no execution."""
        if changes or scraped:
            self.is_over = False
            changeset = Changeset(
                operations=tuple(changes),
                outcome=Outcome.OK,
                scraped=tuple(scraped),
                attached=attachments(changes),
            )
            self.outbox.put(Entry(changeset, where), is_last=not self.under_way)

    def error_of(
        self,
        execution: Execution,
        error: BaseException,
        *,
        kind: str | None = None,
        url: str = "",
        snippet: str | None = None,
        status: int | None = None,
    ) -> ErrorRecord:
        """Return an error as it is recorded with the execution's attempt."""
        where = {"spider": self.spider}
        if execution.claim is not None:
            where |= {"task": execution.claim.task, "item": execution.claim.item.id}
        return error_records.describe(
            error, where, kind=kind, url=url, snippet=snippet, status=status
        )

    def fail(
        self,
        execution: Execution,
        error: BaseException,
        *,
        kind: str | None = None,
        url: str = "",
        snippet: str | None = None,
        status: int | None = None,
    ) -> None:
        """End an execution as a failure, with the record of its error."""
        execution.fail(
            self.error_of(execution, error, kind=kind, url=url, snippet=snippet, status=status)
        )

    def try_again(self, execution: Execution, error: TryAgain, *, url: str) -> None:
        """Have an execution's work done again later, as the user's code wants it."""
        execution.try_again(self.error_of(execution, error, kind=KIND, url=url), error.after)

    def unbegun(self) -> Counter[Limiter]:
        """Count the requests in hand that have not started, by what they keep to."""
        return Counter(
            limiter
            for execution in self.executions
            for leg in execution.legs
            if not leg.has_started
            for limiter in leg.lane
        )

    def _ended(self, execution: Execution) -> None:
        self.forget(execution)
        if execution.claim is not None or execution.has_changes:
            entry = Entry(execution.changeset(), execution.where, execution)
            self.outbox.put(entry, is_last=not self.under_way)
        elif not self.under_way:
            self.outbox.hurry()
        self.room.set()
