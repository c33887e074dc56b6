"""The tasks of a crawl, and how they depend on each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import drawing, links, messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.status import TaskState

router = APIRouter(route_class=PageRoute)

_NAME = 34  # characters of a name in a drawing
_MOST_DRAWN = 60


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
        graph=_drawn(found, request.scope.get("root_path", "").rstrip("/"), graph.crawl),
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


def _drawn(tasks: Sequence[TaskState], root: str, crawl: str) -> drawing.Drawing:
    shown = tasks[:_MOST_DRAWN]
    calling: dict[str, list[str]] = defaultdict(list)
    for task in shown:
        for tag in task.tags:
            calling[tag].append(task.name)
    nodes = []
    for task in shown:
        lines = [f"{counts.shown(task.waiting)} waiting, {counts.shown(task.fresh)} fresh"]
        if task.failed:
            lines.append(f"✕ {counts.shown(task.failed)} failed")
        if task.gone:
            lines.append(f"{counts.shown(task.gone)} gone")
        if task.skipped or task.stashed or task.left:
            aside = counts.total([task.skipped, task.stashed, task.left])
            lines.append(f"{counts.shown(aside)} set aside")
        if not task.is_enabled:
            lines.append("▲ disabled")
        nodes.append(
            drawing.Node(
                task.name,
                short(task.name, _NAME),
                tuple(lines),
                href=root + links.of_crawl(crawl, "worklist", task=task.name),
                style="" if task.is_enabled and task.is_registered else "off",
                hint=f"{short(task.name)}: its outstanding work",
            )
        )
    edges = [drawing.Edge(need, task.name) for task in shown for need in task.depends_on]
    return drawing.drawn(nodes, edges)


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
