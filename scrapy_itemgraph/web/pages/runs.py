"""Runs: when each began and ended, why, and what it did."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

router = APIRouter(route_class=PageRoute)


@router.get("/crawls/{crawl:segment}/runs", name="runs")
def runs(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show the runs of a crawl, the newest first."""
    return page(
        request,
        "runs.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="overview",
        runs=graph.crawls.runs(),
    )
