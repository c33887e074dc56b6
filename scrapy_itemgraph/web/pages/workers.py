"""Workers: which processes crawl, where, and whether they live."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import summaries
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

router = APIRouter(route_class=PageRoute)

_STOPPED = 20  # that are shown


@router.get("/crawls/{crawl:segment}/workers", name="workers")
def workers(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show the workers of a crawl."""
    found = summaries.workers_of(graph, stopped=_STOPPED)
    return page(
        request,
        "workers.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="workers",
        workers=found,
    )
