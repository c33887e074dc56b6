"""What stores a request: the name that it is known by, and when it is fetched again.

A new run fetches again what it reaches, as in Scrapy. A time to live, "never" included, makes the
pages of a callback incremental: what is done stays done for as long as that says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import UnstorableError
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.request_operations import WHENEVER, EnqueueRequest, Pattern
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.notes import Notes
from scrapy_itemgraph.worker.spider import request_builder
from scrapy_itemgraph.worker.spider.validation import CHANGED_AT, TTL, changed_at, is_of_each_start

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy import Request, Spider

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.executions.execution import Execution
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.request_ids import Identity, RequestIds

logger = logs.logger(__name__)

start_requests: Notes[bool] = Notes()
"""The requests of `start()`, until they are identified."""
_NICE = 2**31 - 1


@dataclass(slots=True, eq=False, repr=False)
class RequestOperations:
    """Makes the operations that store requests.

    `incremental` are the callbacks whose pages a new run does not fetch again; None: all. With
    `frees_gone` a new run asks pages of these again that were gone, where a page links to them; and
    in any case those that a spider has left, closing its run.
    """

    graph: WorkerGraph
    spider: Spider
    identities: RequestIds
    callbacks: CallbackTasks
    incremental: Collection[str] | None
    frees_gone: bool = False
    _has_clamped: bool = False

    def identify(self, request: Request, execution: Execution) -> Identity:
        """Return what a request is known by; a start page is fetched once in each run.

        With a time to live of 0 it is fetched at each start of a process.
        """
        moment = self._changed_at(request, execution) if CHANGED_AT in request.meta else None
        if start_requests.pop(request):
            run = WHENEVER if is_of_each_start(request.meta) else self.graph.run.number
            identity = self.identities.of_start(request, self.spider, run)
        else:
            identity = self.identities.of_child(request, execution)
        return identity if moment is None else replace(identity, changed_at=moment)

    def _changed_at(self, request: Request, execution: Execution) -> datetime | None:
        """Take the hint of a change from a request; a moment in the future is ignored."""
        moment = changed_at(request.meta, execution.where)
        del request.meta[CHANGED_AT]  # a hint of this once; it is not stored
        if moment is None or moment <= datetime.now(UTC):
            return moment
        assert self.spider.crawler.stats is not None
        self.spider.crawler.stats.inc_value("itemgraph/changed_at_ignored")
        return None

    def operation(
        self, request: Request, identity: Identity, execution: Execution
    ) -> EnqueueRequest:
        """Return what stores a request, by the pattern of the one before it where it is alike.

        Raises:
            UnstorableError: it cannot be stored.

        """
        url, like = request.url, requests.likeness(request)
        if like is None or not requests.has_plain_url(request):
            return self._first(request, identity)
        like = (identity.again, *like)
        if execution.pattern is not None and execution.pattern[0] == like:
            pattern: Pattern = execution.pattern[1]
            return pattern.operation(identity.name, url, identity.changed_at)
        operation = self._first(request, identity)
        execution.pattern = like, Pattern(operation)
        return operation

    def _first(self, request: Request, identity: Identity) -> EnqueueRequest:
        data = request_builder.request_data(request, self.spider)
        name = self.callbacks.name_of(request)
        task = self.callbacks.meet(name, self.graph.callbacks.names)
        again = self._again(request, name) if identity.again is None else identity.again
        run = self.graph.run
        only_gone = again is None and (run.has_left or (self.frees_gone and run.number > 1))
        return EnqueueRequest(
            id=identity.name,
            tags=(tasks.callback_tag(task),),
            data=data,
            nice=self._nice(request),
            again=self.graph.run.number if only_gone else again,
            only_gone=only_gone,
            changed_at=identity.changed_at,
        )

    def _nice(self, request: Request) -> int:
        nice = max(-_NICE, min(-request.priority, _NICE))
        if nice != -request.priority and not self._has_clamped:
            self._has_clamped = True
            logger.warning(
                "%s has the priority %d. Priorities end at ±%d here; what is beyond that counts as "
                "that, so such requests lose their order",
                request,
                request.priority,
                _NICE,
                extra={"action": "priority_clamped"},
            )
        return nice

    def again_in(self, request: Request) -> int | None:
        """Return the run in which a link has to be fetched; None where any will do."""
        try:
            return self._again(request, self.callbacks.name_of(request))
        except UnstorableError:  # it is carried in memory, and has no item
            return None

    def of_taken(self, request: Request, execution: Execution) -> EnqueueRequest | None:
        """Return what has another item's page fetched in this run, to which a redirect led.

        None where what was fetched in an earlier one will do, or the request cannot be stored.
        """
        if self.again_in(request) is None:
            return None
        identity = self.identities.of_child(request, execution)
        try:
            return self._first(request, identity)
        except UnstorableError:
            return None

    def _again(self, request: Request, callback: str) -> int | None:
        run = self.graph.run.number
        names = self.incremental
        is_incremental = names is None or callback in names or TTL in request.meta
        return None if run < 2 or is_incremental else run  # noqa: PLR2004 - before are no others
