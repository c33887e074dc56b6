"""Work: what is outstanding, what failed, and what is done about it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import documents
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import After, AfterNumber, Limit

if TYPE_CHECKING:
    from scrapy_itemgraph.store.admin.work_pages import WorkPage

router = APIRouter()
of_tags = APIRouter()
of_tasks = APIRouter()


class WorkState(StrEnum):
    """What keeps work from being done just now, if anything."""

    READY = "ready"
    DELAYED = "delayed"
    CLAIMED = "claimed"
    HELD = "held"


_INTERNAL = {"item_id", "task_id"}
Task = Annotated[str | None, Query(min_length=1, description="of this task alone")]
Text = Annotated[str, Path(min_length=1)]
AfterWork = Annotated[str, Query(description="what the `Link` of the page before has")]
LISTED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Link": {
                "description": 'where the list goes on, with rel="next"; none: nothing follows',
                "schema": {"type": "string"},
            }
        }
    }
}
FailureNumber = Annotated[int, Path(ge=1, lt=bodies.INT64)]


@of_tags.get("/tags/{tag:segment}/worklist", response_model=list[models.Work], responses=LISTED)
def worklist_of_tag(
    request: Request,
    graph: CrawlGraph,
    _: Reader,
    tag: Text,
    task: Task = None,
    after: AfterWork = "",
    limit: Limit = 100,
) -> Response:
    """List outstanding work of items with a tag, for tasks that it calls for.

    The same page by page, as `rows` and `next`, is `/work?tag=TAG`.
    """
    return _listed(request, graph.lookup.work(task, tag=tag, after=after or None, limit=limit))


@of_tasks.get("/tasks/{task:segment}/failures", response_model=models.Page[models.Failure])
def failures_of_task(
    graph: CrawlGraph, _: Reader, task: Text, after: AfterNumber = 0, limit: Limit = 100
) -> Response:
    """List the failures of a task that nobody has handled, the oldest first."""
    return answer(_failures(graph, task, after, limit))


@router.get("/worklist", response_model=list[models.Work], responses=LISTED)
def worklist(
    request: Request,
    graph: CrawlGraph,
    _: Reader,
    task: Task = None,
    after: AfterWork = "",
    limit: Limit = 100,
) -> Response:
    """List outstanding work that nobody has claimed, in the order of its turn.

    The same page by page, as `rows` and `next`, is `/work`.
    """
    return _listed(request, graph.lookup.work(task, after=after or None, limit=limit))


def _listed(request: Request, found: WorkPage) -> Response:
    """Return work as a plain list, and in the header where it goes on."""
    rows = documents.of(found.rows)
    listed = answer([{name: row[name] for name in models.Work.model_fields} for row in rows])
    if found.after is not None:
        query = {**request.query_params, "after": found.after}
        listed.headers["Link"] = f'<?{urlencode(query)}>; rel="next"'
    return listed


@router.get("/work", response_model=models.Page[models.WorkRow])
def work(
    graph: CrawlGraph,
    _: Reader,
    task: Task = None,
    tag: Annotated[
        str | None,
        Query(min_length=1, description="of items with this tag, for tasks that it calls for"),
    ] = None,
    slot: Annotated[str | None, Query(description="of this slot alone")] = None,
    state: Annotated[WorkState | None, Query()] = None,
    after: After = "",
    limit: Limit = 100,
) -> Response:
    """List work page by page; without a state what nobody has claimed, in the order of its turn."""
    found = graph.lookup.work(
        task, tag=tag, slot=slot, state=state, after=after or None, limit=limit
    )
    return answer({"rows": documents.of(found.rows), "next": found.after})


@router.get("/failures", response_model=models.Page[models.Failure])
def failures(
    graph: CrawlGraph,
    _: Reader,
    task: Task = None,
    group: Annotated[UUID | None, Query(description="one of the failure groups")] = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List the failures that nobody has handled, the oldest first, with what was logged."""
    return answer(_failures(graph, task, after, limit, group))


def _failures(
    graph: ItemGraph, task: str | None, after: int, limit: int, group: UUID | None = None
) -> Any:
    found = graph.failures.list(task, limit, group=group, after=after)
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
    graph: CrawlGraph, _: Operator, failure: FailureNumber, given: bodies.Handling
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


@router.get("/tasks", response_model=list[models.Task])
def list_tasks(graph: CrawlGraph, _: Reader) -> Response:
    """List the tasks, with what is done, waiting and failed of each."""
    return answer(graph.tasks.list())


@router.post("/tasks/{task:segment}/enable", response_model=models.Enabled)
def enable_task(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Let a task's work be claimed again."""
    graph.tasks.enable(task)
    return answer({"task": task, "enabled": True})


@router.post("/tasks/{task:segment}/disable", response_model=models.Enabled)
def disable_task(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Leave a task's work unclaimed until it is enabled."""
    graph.tasks.disable(task)
    return answer({"task": task, "enabled": False})


@router.post("/tasks/{task:segment}/recompute-ttl", response_model=models.Changed)
def recompute_ttl(graph: CrawlGraph, _: Operator, task: Text) -> Response:
    """Let a task's results expire as its time to live says now, but for overridden ones."""
    return answer({"task": task, "changed": graph.tasks.recompute_ttl(task)})
