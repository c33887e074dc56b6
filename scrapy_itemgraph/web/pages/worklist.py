"""Outstanding work: why it runs or does not, and what people do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.model.operations import DeleteItem, Expire
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, ItemName, PageRoute, back_to

if TYPE_CHECKING:
    from collections.abc import Mapping

router = APIRouter(route_class=PageRoute)

_SHOWN = 100


@router.get("/crawls/{crawl:segment}/worklist", name="worklist")
def worklist(request: Request, visitor: Reader, graph: CrawlGraph, task: str = "") -> HTMLResponse:
    """Show outstanding work."""
    names = [one.name for one in graph.tasks()]
    rows = graph.worklist(task or None, _SHOWN)
    return page(
        request,
        "worklist.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="worklist",
        task_names=names,
        states=(),
        filters={"task": task},
        rows=[_row(one._asdict()) for one in rows],
        next_cursor=None,
    )


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return work with its state as a word."""
    return {**row, "state": "stale" if row["is_stale"] else "never run", "detail": ""}


@router.get("/crawls/{crawl:segment}/explain", name="explain")
def explain(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    name: ItemName,
    task: str = "",
) -> HTMLResponse:
    """Say why work runs, or does not."""
    found = graph.explain(name, task or None)
    return page(
        request,
        "explain.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="worklist",
        id=name,
        explanations=found,
    )


@router.post("/crawls/{crawl:segment}/expire", name="expire")
def expire(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Let a result of an item count as stale, or all of them."""
    name, task = form.exact("id"), form["task"] or None
    graph.apply([Expire(id=name, task=task)])
    what = f"{task} of {short(name)} is expired" if task else f"{short(name)} is expired"
    return messages.say(request, back_to(request, links.of_crawl(graph.crawl)), f"{what}.")


@router.post("/crawls/{crawl:segment}/delete", name="delete")
def delete(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Delete an item."""
    name = form.exact("id")
    graph.apply([DeleteItem(id=name)])
    return messages.say(
        request, back_to(request, links.of_crawl(graph.crawl)), f"{short(name)} is deleted."
    )
