"""Tasks: what is declared and done of each, and stopping and resuming them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import PathText

router = APIRouter()


@router.get("/tasks", response_model=list[models.Task])
def list_tasks(graph: CrawlGraph, _: Reader) -> Response:
    """List the tasks, with what is done, waiting and failed of each."""
    return answer(graph.tasks.list())


@router.post("/tasks/{task:segment}/enable", response_model=models.Enabled)
def enable_task(graph: CrawlGraph, _: Operator, task: PathText) -> Response:
    """Let a task's work be claimed again."""
    graph.tasks.enable(task)
    return answer({"task": task, "enabled": True})


@router.post("/tasks/{task:segment}/disable", response_model=models.Enabled)
def disable_task(graph: CrawlGraph, _: Operator, task: PathText) -> Response:
    """Leave a task's work unclaimed until it is enabled."""
    graph.tasks.disable(task)
    return answer({"task": task, "enabled": False})


@router.post("/tasks/{task:segment}/recompute-ttl", response_model=models.Changed)
def recompute_ttl(graph: CrawlGraph, _: Operator, task: PathText) -> Response:
    """Let a task's results expire as its time to live says now, but for overridden ones."""
    return answer({"task": task, "changed": graph.tasks.recompute_ttl(task)})


@router.post("/expire", response_model=models.Expired)
def expire_many(graph: CrawlGraph, _: Operator, given: bodies.Expiring) -> Response:
    """Make results stale, so that they are made again: a task's, a tag's, or all of the crawl.

    It goes through the items two thousand in a transaction, and answers at the end.
    """
    if given.all == (given.task is not None or given.tag is not None):
        raise OperationError(
            'say which: "task" and "tag" hold together, and "all": true stands alone'
        )
    which = {"task": given.task, "tag": given.tag}
    if given.dry_run:
        cost = graph.costs.of_expire(given.task, tag=given.tag)
        return answer({**which, "expired": 0, "cost": cost._asdict()})
    return answer({**which, "expired": graph.tasks.expire(given.task, tag=given.tag)})
