"""The tasks of a crawl, and how they depend on each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.status import TaskState

router = APIRouter(route_class=PageRoute)


@router.get("/crawls/{crawl:segment}/tasks", name="tasks")
def tasks(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show the tasks."""
    found = graph.tasks.list()
    return page(
        request,
        "tasks.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="tasks",
        tasks=[{**one._asdict(), "is_stopped": _is_stopped(one)} for one in found],
        rates=_rates(graph),
    )


@dataclass(slots=True)
class Rate:
    """What executions of a task did in the last hour; `seconds` is how long they took together."""

    ok: int = 0
    ended: int = 0
    seconds: float = 0.0

    @property
    def duration(self) -> float:
        """Seconds that one took, in the mean."""
        return self.seconds / self.ended


def _rates(graph: ItemGraph) -> dict[str, Rate]:
    found: dict[str, Rate] = defaultdict(Rate)
    for row in graph.activity.minutes():
        if row.task is not None:
            one = found[row.task]
            one.ok += row.done
            one.ended += row.done + row.retried + row.failed + row.refused
            one.seconds += row.seconds
    return found


def _is_stopped(task: TaskState) -> bool:
    return task.max_failures is not None and task.failures >= task.max_failures


@router.post("/crawls/{crawl:segment}/enable", name="enable")
def enable(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Let a task's work be claimed again."""
    graph.tasks.enable(form.exact("task"))
    path = back_to(request, links.of_crawl(graph.crawl, "tasks"))
    return messages.say(request, path, f"{short(form.exact('task'))} is enabled.")


@router.post("/crawls/{crawl:segment}/disable", name="disable")
def disable(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Leave a task's work unclaimed."""
    graph.tasks.disable(form.exact("task"))
    path = back_to(request, links.of_crawl(graph.crawl, "tasks"))
    text = f"{short(form.exact('task'))} is disabled; what runs of it finishes."
    return messages.say(request, path, text)
