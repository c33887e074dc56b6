"""The worker of a run: a simulation whose item, results and pages are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import operations, tasks
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker.simulation import SimulationWorker
from scrapy_itemgraph.worker.spider import callbacks, request_builder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.graph import SimulationGraph
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.testing.pages import SavedPages
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds

_NO_PLAN = SimulationPlan(task="", item="")


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """A task of an item: `given` makes the item, and what else the crawl is to have."""

    task: str
    item: str
    given: Sequence[Operation]


@dataclass(frozen=True, kw_only=True)
class CallbackRun:
    """A plain callback, and the request whose response it gets."""

    callback: str
    request: Request
    given: Sequence[Operation]


class TestingWorker(SimulationWorker):
    """Runs one task or plain callback on saved pages, without limits."""

    def __init__(
        self, crawler: Crawler, *, wanted: TaskRun | CallbackRun, pages: SavedPages, crawl: str
    ) -> None:
        super().__init__(crawler, plan=_NO_PLAN, crawl=crawl)
        self.pages = pages
        self.operations: list[Operation] = []
        self.requests: list[Request] = []
        self.has_begun = False  # the run's own request is answered
        self._wanted = wanted
        self._identities: RequestIds | None = None

    async def open(self, identities: RequestIds) -> None:
        """Open the graph, in which the item of a request has the name that a crawl gives it."""
        self._identities = identities
        await super().open(identities)

    @property
    def is_asked(self) -> bool:
        """Whether Scrapy has asked it to open: the add-on is switched on."""
        return self._identities is not None

    def cancel_callbacks(self) -> None:
        """Let what callbacks await raise an error: Scrapy would wait for them for ever."""
        if self.is_open:
            legs = [leg for execution in self.parts.active.executions for leg in execution.legs]
            for scrape in [scrape for leg in legs for scrape in leg.scrapes]:
                scrape.cancel()
                scrape.uncancel()  # it is the callback's error, and Scrapy goes on

    def _read_spider(self) -> CallbackTasks:
        read = super()._read_spider()
        self.tasks = {name: _without_limits(one) for name, one in self.tasks.items()}
        return read

    async def _open_graph(self, callbacks: CallbackTasks) -> SimulationGraph:
        self._plan = self._made_plan()
        return await super()._open_graph(callbacks)

    def _made_plan(self) -> SimulationPlan:
        wanted = self._wanted
        if isinstance(wanted, TaskRun):
            return SimulationPlan(task=wanted.task, item=wanted.item, given=wanted.given)
        assert self._identities is not None
        request = wanted.request.replace(callback=self._callback(wanted.callback))
        made = EnqueueRequest(
            id=self._identities.name(request),
            tags=(tasks.callback_tag(wanted.callback),),
            data=request_builder.request_data(request, self.spider),
        )
        return SimulationPlan(task=wanted.callback, item=made.id, given=(made, *wanted.given))

    def _callback(self, name: str) -> Any:
        """Return the spider's method of a name.

        Raises:
            NotFoundError: it has none that may be a callback.
            OperationError: it is a task.

        """
        spider = self.spider
        if not requests.has_method(spider, name):
            known = [one for one in dir(type(spider)) if requests.has_method(spider, one)]
            raise NotFoundError(
                f"the spider {spider.name!r} has no callback {name!r}{closest(name, known)}; it "
                f"has {', '.join(known) or 'none'}"
            )
        found = getattr(spider, name)
        if callbacks.task_of(found) is not None:
            raise OperationError(f"{name!r} is a @task: run it with run_task")
        return found


def _without_limits(task: tasks.Task) -> tasks.Task:
    """Return a task that waits for nothing: no website is visited."""
    return replace(task, rate_limit=None, rate_limit_by_tag={}, concurrency=None, autothrottle=None)


def check_given(given: Sequence[Operation]) -> list[Operation]:
    """Return operations whose values can be stored.

    Raises:
        OperationError: saying which cannot, or attaches a blob.

    """
    checked = [operations.checked(one, f"given[{place}]") for place, one in enumerate(given)]
    if operations.attachments(checked):
        raise OperationError("AttachBlob cannot be given; callbacks cannot read blobs")
    return checked
