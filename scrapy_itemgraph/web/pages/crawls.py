"""All crawls of the database, and one of them as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.pages import summaries
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph

router = APIRouter(route_class=PageRoute)


@router.get("/", name="crawls")
def crawls(request: Request, visitor: Reader, graphs: AllGraphs) -> HTMLResponse:
    """Show the crawls of the database."""
    names = graphs.database.crawls()
    found = [summaries.of_graph(graphs.of(name)) for name in names]
    return page(request, "crawls.html", visitor=visitor, crawls=found)


@router.get("/crawls/{crawl:segment}", name="crawl")
@router.get("/crawls/{crawl:segment}/overview", name="overview")
def overview(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show how a crawl stands."""
    return page(
        request,
        "overview.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="overview",
        **overview_of(graph),
    )


def overview_of(graph: ItemGraph) -> dict[str, Any]:
    """Return what the overview shows, for the page and for what is sent as it changes."""
    status = graph.status()
    one = summaries.of_status(status)
    return {
        "one": one,
        "tasks": status["tasks"],
        "workers": [summaries.worker_of(row) for row in status["workers"]],
        "plot": None,
        "failures_badge": one.failures or "",
    }
