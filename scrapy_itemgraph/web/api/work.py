"""Work: what is outstanding, what failed, and what is done about it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.web import models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import AfterNumber, Limit

router = APIRouter()
of_tags = APIRouter()
of_tasks = APIRouter()

_INTERNAL = {"item_id", "task_id"}
Task = Annotated[str | None, Query(min_length=1, description="of this task alone")]
Text = Annotated[str, Path(min_length=1)]
FailureNumber = Annotated[int, Path(ge=1, lt=models.INT64)]


@of_tags.get("/tags/{tag:segment}/worklist", response_model=list[models.Work])
def worklist_of_tag(
    graph: CrawlGraph, _: Reader, tag: Text, task: Task = None, limit: Limit = 100
) -> Response:
    """List outstanding work of items with a tag, for tasks that it calls for."""
    return answer(graph.worklist(task, limit, tag=tag))


@of_tasks.get("/tasks/{task:segment}/failures", response_model=models.Page[models.Failure])
def failures_of_task(
    graph: CrawlGraph, _: Reader, task: Text, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List the failures of a task that nobody has handled, the oldest first."""
    return answer(_failures(graph, task, after, limit))


@router.get("/worklist", response_model=list[models.Work])
def worklist(graph: CrawlGraph, _: Reader, task: Task = None, limit: Limit = 100) -> Response:
    """List outstanding work that nobody has claimed, in the order of its turn."""
    return answer(graph.worklist(task, limit))


@router.get("/failures", response_model=models.Page[models.Failure])
def failures(
    graph: CrawlGraph, _: Reader, task: Task = None, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List the failures that nobody has handled, the oldest first, with what was logged."""
    return answer(_failures(graph, task, after, limit))


def _failures(graph: ItemGraph, task: str | None, after: int, limit: int) -> Any:
    return page(
        graph.failures(task, limit, after=after),
        limit,
        lambda row: row.id,
        lambda row: {k: v for k, v in row._asdict().items() if k not in _INTERNAL},
    )


@router.post("/failures/handle", response_model=models.Handled)
def handle_failures(graph: CrawlGraph, _: Operator, given: models.HandlingOfMany) -> Response:
    """Mark all failures of a task, or of the crawl, as handled; what failed may run again."""
    if (given.task is not None) == given.all:
        raise OperationError('give one of "task" and "all": true')
    handled = graph.handle(task=given.task, retry=given.retry)
    return answer({"handled": handled, "retry": given.retry})


@router.post("/failures/{failure}/handle", response_model=models.Handled)
def handle_failure(
    graph: CrawlGraph, _: Operator, failure: FailureNumber, given: models.Handling
) -> Response:
    """Mark a failure as handled; what failed may run again."""
    handled = graph.handle(failure, retry=given.retry)
    return answer({"handled": handled, "retry": given.retry})


@router.get("/tasks", response_model=list[models.Task])
def list_tasks(graph: CrawlGraph, _: Reader) -> Response:
    """List the tasks, with what is done, waiting and failed of each."""
    return answer(graph.tasks())


@router.post("/tasks/{task:segment}/enable", response_model=models.Enabled)
def enable_task(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Let a task's work be claimed again."""
    graph.enable(task)
    return answer({"task": task, "enabled": True})


@router.post("/tasks/{task:segment}/disable", response_model=models.Enabled)
def disable_task(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Leave a task's work unclaimed until it is enabled."""
    graph.disable(task)
    return answer({"task": task, "enabled": False})


@router.post("/tasks/{task:segment}/recompute-ttl", response_model=models.Changed)
def recompute_ttl(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Let a task's results expire as its time to live says now, but for overridden ones."""
    return answer({"task": task, "changed": graph.recompute_ttl(task)})
