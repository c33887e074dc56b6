"""Runners: the daemons that run the crawls of the queue, their places and their hosts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import AwareDatetime
from starlette.responses import Response, StreamingResponse

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages import messages
from scrapy_itemgraph.web.pages.queue import root_of, to_crawl
from scrapy_itemgraph.web.pages.rendering import page, part, short
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.web.streams import Streams

router = APIRouter(route_class=PageRoute)

RunnerName = Annotated[str, Path(min_length=1)]


@router.get("/runners", name="runners")
def runners(request: Request, visitor: Reader, graphs: AllGraphs) -> HTMLResponse:
    """Show the runners, those that live first."""
    return page(
        request,
        "runners.html",
        visitor=visitor,
        tab="runners",
        live_at=f"{root_of(request)}/runners/live",
        **_seen(graphs.served),
    )


@router.get("/runners/live", name="runners-live")
async def live(
    request: Request, visitor: Reader, graphs: AllGraphs, since: AwareDatetime | None = None
) -> StreamingResponse:
    """Send the runners whenever they change, as long as somebody listens."""
    streams: Streams = request.app.state.streams
    root, may_operate = root_of(request), visitor.may_operate
    read = partial(parts_of_runners, graphs.served, root, may_operate)
    key = ("runners", root, may_operate)
    return streams.answer(request, visitor, key, read, event="parts", since=since)


def parts_of_runners(graph: ItemGraph, root: str, may_operate: bool) -> dict[str, Any]:
    """Return the HTML of the part of the runners' page that moves."""
    given = {"root": root, "to": partial(to_crawl, root), "here": f"{root}/runners"}
    html = part("parts/runners.html", may_operate=may_operate, **given, **_seen(graph))
    return {"parts": {"runners": html}, "stamps": {}}


def _seen(graph: ItemGraph) -> dict[str, Any]:
    found = sorted(graph.runners.list(), key=lambda one: (not one.lives, one.name))
    return {"runners": found, "places": graph.runners.all_places()}


@router.post("/runners/{runner:segment}/drain", name="drain-runner")
def drain(
    request: Request, visitor: Operator, graphs: AllGraphs, runner: RunnerName, form: Fields
) -> Response:
    """Have a runner start nothing more, or, with `undo`, start something again."""
    drains = not form["undo"]
    graphs.served.runners.drain(runner, by=visitor.by, drains=drains)
    says = "starts nothing more; what runs comes to its end" if drains else "starts crawls again"
    return _said(request, runner, says)


@router.post("/runners/{runner:segment}/set", name="set-runner")
def set_runner(
    request: Request, visitor: Operator, graphs: AllGraphs, runner: RunnerName, form: Fields
) -> Response:
    """Change which crawls a runner takes, until it starts again."""
    graphs.served.runners.set(
        runner,
        by=visitor.by,
        tags=list(dict.fromkeys(form["tags"].split())),
        only_tagged=bool(form["only_tagged"]),
        preempts=bool(form["preempts"]),
    )
    return _said(request, runner, "takes crawls as you say, until it starts again")


@router.post("/runners/{runner:segment}/reclaim", name="reclaim-runner")
def reclaim(
    request: Request, visitor: Operator, graphs: AllGraphs, runner: RunnerName, form: Fields
) -> Response:
    """Take from a runner what it has, as if it were dead."""
    if not form["reason"]:
        raise OperationError("say why it is taken away")
    graphs.served.runners.reclaim(runner, form["reason"], by=visitor.by)
    return _said(request, runner, "has nothing any more; its crawls are started elsewhere")


def _said(request: Request, runner: str, says: str) -> Response:
    back = back_to(request, "/runners")
    return messages.say(request, back, f"The runner {short(runner)} {says}.")
