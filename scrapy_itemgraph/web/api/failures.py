"""Failures: which are open, one by one or in groups, and handling them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import AfterNumber, Limit, OfTask, PathText

router = APIRouter()
of_tasks = APIRouter()

_INTERNAL = {"item_id", "task_id"}
_Number = Annotated[int, Path(ge=1, lt=bodies.INT64)]


@of_tasks.get("/tasks/{task:segment}/failures", response_model=models.Page[models.Failure])
def failures_of_task(
    graph: CrawlGraph, _: Reader, task: PathText, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List the failures of a task that nobody has handled, the oldest first."""
    return answer(_failures(graph, task, after, limit))


@router.get("/failures", response_model=models.Page[models.Failure])
def failures(
    graph: CrawlGraph,
    _: Reader,
    task: OfTask = None,
    group: Annotated[UUID | None, Query(description="one of the failure groups")] = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List the failures that nobody has handled, the oldest first, with what was logged."""
    return answer(_failures(graph, task, after, limit, group))


def _failures(
    graph: ItemGraph, task: str | None, after: int, limit: int, group: UUID | None = None
) -> Any:
    found = graph.failures.list(limit, task=task, group=group, after=after)
    return page(found, limit, lambda row: row.id, _failure)


def _failure(row: Any) -> dict[str, Any]:
    return {k: v for k, v in documents.of(row).items() if k not in _INTERNAL}


@router.get("/failure-groups", response_model=list[models.FailureGroup])
def failure_groups(graph: CrawlGraph, _: Reader, limit: Limit = 100) -> Response:
    """List open failures in groups of those that are alike, the group of the latest first."""
    groups = graph.failures.groups(limit)
    return answer([{**documents.of(one), "example": _failure(one.example)} for one in groups])


@router.post("/failures/handle", response_model=models.Handled)
def handle_failures(graph: CrawlGraph, _: Operator, given: bodies.HandlingOfMany) -> Response:
    """Mark all failures of a task, a group or the crawl as handled; what failed may run again."""
    if (given.task is not None) + (given.group is not None) + given.all != 1:
        raise OperationError('give one of "task", "group" and "all": true')
    handled = graph.failures.handle(task=given.task, group=given.group, retry=given.retry)
    return answer({"handled": handled, "retry": given.retry})


@router.post("/failures/{failure}/handle", response_model=models.Handled)
def handle_failure(
    graph: CrawlGraph, _: Operator, failure: _Number, given: bodies.Handling
) -> Response:
    """Mark a failure as handled; what failed may run again."""
    handled = graph.failures.handle(failure, retry=given.retry)
    return answer({"handled": handled, "retry": given.retry})


@router.post("/failures/unhandle", response_model=models.Undone)
def unhandle_failures(graph: CrawlGraph, _: Operator, given: bodies.Undoing) -> Response:
    """Undo the handling of failures since a moment; what has run since is left as it is."""
    undone = graph.failures.unhandle(
        given.since, failure=given.failure, task=given.task, group=given.group
    )
    return answer({"undone": undone})
