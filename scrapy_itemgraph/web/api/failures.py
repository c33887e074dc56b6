"""Failures: which are open, one by one or in groups, and handling them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.model.failure_filters import FailureFilters
from scrapy_itemgraph.store.admin.costs import Cost
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import AfterNumber, Limit, OfTask, PathText

router = APIRouter()
of_tasks = APIRouter()

_INTERNAL = {"item_id", "task_id"}
_Number = Annotated[int, Path(ge=1, lt=bodies.INT64)]
_Order = Annotated[bool, Query(description="the newest first")]
_Sort = Literal["last", "first", "count", "task", "type"]


def _which(
    task: OfTask = None,
    group: Annotated[UUID | None, Query(description="one of the failure groups")] = None,
    type_: Annotated[
        str | None, Query(alias="type", min_length=1, description="the error's type, exactly")
    ] = None,
    text: Annotated[
        str | None, Query(min_length=1, description='part of "TYPE: MESSAGE", in capitals or not')
    ] = None,
    since: Annotated[bodies.Moment | None, Query(description="that occurred since then")] = None,
) -> FailureFilters:
    return FailureFilters(task=task, group=group, type=type_, text=text, occurred_since=since)


Which = Annotated[FailureFilters, Depends(_which)]


@of_tasks.get("/tasks/{task:segment}/failures", response_model=models.Page[models.Failure])
def failures_of_task(
    graph: CrawlGraph, _: Reader, task: PathText, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List the failures of a task that nobody has handled, the oldest first."""
    return answer(_page(graph.failures.page(limit, after=after, task=task)))


@router.get("/failures", response_model=models.Page[models.Failure])
def failures(
    graph: CrawlGraph,
    _: Reader,
    which: Which,
    newest: _Order = False,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List the failures that nobody has handled, the oldest first, with what was logged.

    By `type`, `text` or `since` 5,000 open failures are looked at: a page may have fewer rows than
    `limit`, and a `next` all the same.
    """
    return answer(_page(graph.failures.page(limit, after=after, newest_first=newest, **which)))


def _page(found: Any) -> Any:
    following = None if found.next is None else str(found.next)
    return {"rows": [_failure(one) for one in found.rows], "next": following}


def _failure(row: Any) -> dict[str, Any]:
    return {k: v for k, v in documents.of(row).items() if k not in _INTERNAL}


@router.get("/failure-groups", response_model=list[models.FailureGroup])
def failure_groups(
    graph: CrawlGraph, _: Reader, which: Which, sort: _Sort = "last", limit: Limit = 100
) -> Response:
    """List open failures in groups of those that are alike, the group of the latest first.

    `text` and `since` are asked of each group's example, its last failure.
    """
    groups = graph.failures.groups(limit, sort=sort, **which)
    return answer([{**documents.of(one), "example": _failure(one.example)} for one in groups])


@router.get("/failures/{failure}", response_model=models.FailureDetails)
def failure_details(graph: CrawlGraph, _: Reader, failure: _Number) -> Response:
    """Return one failure, open or handled, with all that is known of it."""
    known = graph.failures.get(failure)._asdict()
    return answer({**_failure(known.pop("failure")), **known})


@router.post("/failures/handle", response_model=models.Handled)
def handle_failures(graph: CrawlGraph, _: Operator, given: bodies.HandlingOfMany) -> Response:
    """Mark failures as handled: those that are chosen, or all; what failed may run again."""
    which = _chosen(given, given.since)
    if given.led_to is not None:
        if given.all or not given.retry or any(one is not None for one in which.values()):
            raise OperationError('"led_to" stands alone')
        if given.dry_run:
            cost = graph.costs.of_handle_led(given.led_to)
            return answer({"handled": 0, "retry": True, "cost": cost._asdict()})
        return answer({"handled": graph.failures.handle(led_to=given.led_to), "retry": True})
    if given.all == any(one is not None for one in which.values()):
        raise OperationError(
            'say which: "failures", "task", "group", "type", "text" and "since" hold together; '
            '"led_to" and "all": true each stand alone'
        )
    return _handled(graph, given, which)


def _handled(graph: ItemGraph, given: bodies.Handling, which: FailureFilters) -> Response:
    """Handle failures, or only count what that has fetched."""
    if given.dry_run:
        cost = graph.costs.of_handle(**which) if given.retry else Cost(0)
        return answer({"handled": 0, "retry": given.retry, "cost": cost._asdict()})
    handled = graph.failures.handle(retry=given.retry, **which)
    return answer({"handled": handled, "retry": given.retry})


def _chosen(given: bodies.ChosenFailures, since: datetime | None) -> FailureFilters:
    return FailureFilters(
        failures=given.failures,
        task=given.task,
        group=given.group,
        type=given.type,
        text=given.text,
        occurred_since=since,
    )


@router.post("/failures/{failure}/handle", response_model=models.Handled)
def handle_failure(
    graph: CrawlGraph, _: Operator, failure: _Number, given: bodies.Handling
) -> Response:
    """Mark a failure as handled; what failed may run again."""
    return _handled(graph, given, {"failures": [failure]})


@router.post("/failures/unhandle", response_model=models.Undone)
def unhandle_failures(graph: CrawlGraph, _: Operator, given: bodies.Undoing) -> Response:
    """Undo the handling of failures since a moment; what has run since is left as it is."""
    which = _chosen(given, given.occurred_since)
    undone = graph.failures.unhandle(given.since, failure=given.failure, **which)
    return answer({"undone": undone})


@router.post("/gone/handle", response_model=models.AskedAgain)
def handle_gone(graph: CrawlGraph, _: Operator, given: bodies.AskingAgain) -> Response:
    """Have pages asked again that are gone: a task's, an item's, or all of the crawl."""
    if given.all == (given.task is not None or given.item is not None):
        raise OperationError(
            'say which: "task" and "item" hold together, and "all": true stands alone'
        )
    item = None if given.item is None else graph.lookup.page(given.item).item
    if given.dry_run:
        cost = graph.costs.of_handle_gone(given.task, item=item)
        return answer({"handled": 0, "cost": cost._asdict()})
    return answer({"handled": graph.failures.handle_gone(given.task, item=item)})
