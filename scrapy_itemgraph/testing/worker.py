"""The worker of a run: a simulation whose item, results and pages are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.worker.simulation import SimulationWorker
from scrapy_itemgraph.worker.spider import named_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.model import tasks
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.testing.pages import SavedPages
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks

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
        super().__init__(crawler, wanted=_NO_PLAN, crawl=crawl)
        self.pages = pages
        self.operations: list[Operation] = []
        self.requests: list[Request] = []
        self.has_begun = False  # the run's own request is answered
        self._run = wanted

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

    def _wanted_of(self, callbacks: CallbackTasks) -> SimulationPlan:
        run = self._run
        if isinstance(run, TaskRun):
            return SimulationPlan(task=run.task, item=run.item, given=run.given)
        named_pages.check_callback(run.callback, callbacks, of_task="run it with run_task")
        made = named_pages.made_page(run.callback, run.request, callbacks, self.identities)
        task = callbacks.task_name(run.callback)
        return SimulationPlan(task=task, item=made.id, given=(made, *run.given))


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
