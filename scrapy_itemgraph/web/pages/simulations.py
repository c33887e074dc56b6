"""What a task would do with an item, by the code as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool

from scrapy_itemgraph.access.visitors import Visitor
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import input_checks, item_names, page_names
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.web.access import Operator
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import typed_commands
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import Fields, ItemName, PageRoute

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.snapshots import ItemSnapshot
    from scrapy_itemgraph.store.admin.status import DeclaredTask
    from scrapy_itemgraph.web.simulation_processes import Simulated, Simulations

router = APIRouter(route_class=PageRoute)

TaskName = Annotated[str, Query(alias="task")]
_STYLES = {"+": "added", "-": "removed", "~": "changed"}


@router.get("/crawls/{crawl:segment}/simulate", name="simulate")
def look(
    request: Request, visitor: Operator, graph: CrawlGraph, name: ItemName, task: TaskName
) -> HTMLResponse:
    """Say what a simulation is, with a button that starts it."""
    return _page(request, visitor, graph, _task(graph, task), name, None)


@router.post("/crawls/{crawl:segment}/simulate", name="run_simulation")
async def run(request: Request, visitor: Operator, graph: CrawlGraph, form: Fields) -> HTMLResponse:
    """Simulate, and show what would be changed."""
    name = input_checks.check_id(form.exact("id"))  # it becomes an argument of a process
    task = await run_in_threadpool(_task, graph, form["task"])
    simulations: Simulations | None = request.app.state.simulations
    found = None
    if simulations is not None:
        found = await simulations.run(
            crawl=graph.crawl, spider=task.spider, task=task.name, item=name
        )
    return await run_in_threadpool(_page, request, visitor, graph, task, name, found)


def _task(graph: ItemGraph, name: str) -> DeclaredTask:
    known = {one.name: one for one in graph.tasks.declared()}
    if name not in known:
        raise NotFoundError(f"there is no task {name!r}{closest(name, known)}")
    return known[name]


def _page(
    request: Request,
    visitor: Visitor,
    graph: ItemGraph,
    task: DeclaredTask,
    name: str,
    found: Simulated | None,
) -> HTMLResponse:
    item = graph.get(name) if name else None
    url, method = item_names.page_of(None if item is None else item.data)
    is_possible = request.app.state.simulations is not None
    return page(
        request,
        "simulation.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="",
        item=name,
        url=url,
        method=method,
        task=task,
        command=None if is_possible else _command(graph, task, item, name),
        is_possible=is_possible,
        found=found,
        lines=[] if found is None else [(_style(line), line) for line in found.lines],
    )


def _command(graph: ItemGraph, task: DeclaredTask, item: ItemSnapshot | None, name: str) -> str:
    """Return what simulates the same in a terminal."""
    url, method = item_names.page_of(None if item is None else item.data)
    work = page_names.NamedWork(name if item is None else item.id, task.name, url, method)
    is_page = method is not None and item_names.is_request(work.item)
    written = name if item is None else graph.lookup.written([work])[0]
    simulating = typed_commands.Simulating.of(graph)
    return simulating.typed(task.spider, task.name, written, is_page=is_page)


def _style(line: str) -> str:
    """Return the class of a line by the sign before it."""
    return _STYLES.get(line.lstrip()[:1], "") if line.lstrip()[1:2] == " " else ""
